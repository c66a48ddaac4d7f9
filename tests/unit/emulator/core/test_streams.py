"""Streams: what goes in comes out, in the specified order, nothing lost or repeated."""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.core import streams
from ipu_conformance.emulator.core.streams import Layout, StreamError
from ipu_conformance.emulator.faults import catalogue
from tests.unit.emulator.core import strategies
from tests.unit.examples import at_most

examples = at_most(50)
sizes = st.integers(1, 3)
D, G, R = 2, 3, 5
LAYOUT = Layout(D, G, R)


def distinct(*shape: int) -> np.ndarray:
    """An array of which no two values are equal."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def outputs(layout: Layout, *shape: int) -> List[List[np.ndarray]]:
    """Distinct outputs by [replica][micro-batch]."""
    values = distinct(layout.replicas, layout.micro_batches, *shape)
    return [[np.asarray(value) for value in own] for own in values]


@given(strategies.layouts(grouped=False), sizes)
@examples
def test_samples_are_dealt_by_iteration_accumulation_replica_micro(layout: Layout, size: int) -> None:
    """Micro-batch d*G + g of replica r has the samples of [d, g, r] in the combined batch."""
    iterations, accumulation, replicas = layout.factors
    batch = distinct(layout.inputs * size, 2)

    dealt = streams.deal(batch, layout)

    expected = batch.reshape(iterations, accumulation, replicas, size, 2)
    for iteration in range(iterations):
        for step in range(accumulation):
            for replica in range(replicas):
                actual = dealt[replica][iteration * accumulation + step]
                assert np.array_equal(actual, expected[iteration, step, replica])
                assert np.shares_memory(actual, batch)


@given(strategies.layouts(grouped=False))
@examples
def test_tensorflow_replica_r_takes_element_i_r_plus_r(layout: Layout) -> None:
    """Iteration i takes R consecutive elements of the data set, replica r the element i*R + r."""
    positions = layout.positions()

    for (replica, iteration), position in np.ndenumerate(positions):
        assert position == iteration * layout.replicas + replica


@given(strategies.layouts(), sizes)
@examples
def test_groups_of_replicas_share_their_input(layout: Layout, size: int) -> None:
    """Replicas of one group get the same samples, and each sample goes to one group."""
    groups = layout.replicas // layout.grouping
    batch = distinct(layout.inputs * size)
    dealt = np.array(streams.deal(batch, layout))

    if layout.grouped_by == streams.CONSECUTIVE:
        members = [list(range(group * layout.grouping, (group + 1) * layout.grouping)) for group in range(groups)]
    else:
        members = [list(range(group, layout.replicas, groups)) for group in range(groups)]

    assert all((dealt[replicas] == dealt[replicas[0]]).all() for replicas in members)
    one_of_each = dealt[[replicas[0] for replicas in members]]
    assert np.array_equal(one_of_each.swapaxes(0, 1).reshape(-1), batch)


@pytest.mark.parametrize(
    ("by", "expected"), [("consecutive", [[0, 2], [0, 2], [1, 3], [1, 3]]), ("orthogonal", [[0, 2], [1, 3]] * 2)]
)
def test_neighbours_or_every_other_replica_form_a_group(by: str, expected: List[List[int]]) -> None:
    """Four replicas in groups of two, by hand."""
    assert Layout(1, 2, 4, 2, by).positions().tolist() == expected


@given(strategies.layouts(grouped=False), sizes)
@examples
def test_everything_that_goes_in_comes_out_in_order(layout: Layout, size: int) -> None:
    """Mode All returns the combined batch of an identity."""
    batch = distinct(layout.inputs * size, 3)

    returned = streams.join(streams.deal(batch, layout), streams.select_all(layout))

    assert np.array_equal(returned, batch)


@given(strategies.layouts(grouped=False), sizes)
@examples
def test_every_mode_selects_from_mode_all(layout: Layout, size: int) -> None:
    """EveryN keeps micro-batches N-1, 2N-1, …, Final the last, Sum adds up those of a replica."""
    produced = outputs(layout, size, 2)
    everything = streams.join(produced, streams.poptorch_selection(layout, "All"))
    by_slot = everything.reshape(layout.micro_batches, layout.replicas, size, 2)

    for period in (number for number in range(1, layout.micro_batches + 1) if layout.micro_batches % number == 0):
        selection = streams.poptorch_selection(layout, "EveryN", period)
        kept = streams.join(produced, selection)
        assert selection.multiplier == layout.micro_batches * layout.replicas // period
        assert np.array_equal(kept, by_slot[period - 1 :: period].reshape(-1, 2))
    final = streams.join(produced, streams.poptorch_selection(layout, "Final"))
    summed = streams.join(produced, streams.poptorch_selection(layout, "Sum"))
    assert np.array_equal(final, by_slot[-1].reshape(-1, 2))
    assert np.array_equal(summed, by_slot.sum(axis=0).reshape(-1, 2))


@pytest.mark.parametrize(
    ("mode", "period", "multiplier"),
    [
        ("All", 1, D * G * R),
        ("EveryN", 2, D * G * R // 2),
        ("EveryN", 3, D * G * R // 3),
        ("Final", 1, R),
        ("Sum", 1, R),
    ],
)
def test_dim_0_grows_by_the_multiplier(mode: str, period: int, multiplier: int) -> None:
    """A matrix grows along dimension 0, and a scalar becomes a vector."""
    selection = streams.poptorch_selection(LAYOUT, mode, period)

    assert streams.join(outputs(LAYOUT, 4, 2), selection).shape == (4 * multiplier, 2)
    assert streams.join(outputs(LAYOUT), selection).shape == (multiplier,)


@pytest.mark.parametrize("mode", ["All", "Final", "Sum"])
def test_a_scalar_stays_a_scalar_when_there_is_one(mode: str) -> None:
    """A multiplier of 1 leaves a 0-d output as it is."""
    layout = Layout()

    assert streams.join(outputs(layout), streams.poptorch_selection(layout, mode)).shape == ()


def test_a_scalar_counts_as_a_batch_of_one() -> None:
    """A 0-d input is one sample, dealt to a single slot and refused by more."""
    assert streams.deal(np.array(7), Layout())[0][0].tolist() == [7]
    with pytest.raises(StreamError, match="Invalid batch dimension: 1 is not a multiple of 30"):
        streams.deal(np.array(7), LAYOUT)


@given(strategies.layouts(), st.integers(0, 200))
@examples
def test_a_dim_0_that_does_not_divide_is_refused(layout: Layout, dim: int) -> None:
    """A positive multiple of the slots is accepted, anything else is an invalid batch dimension."""
    if dim and dim % layout.inputs == 0:
        assert layout.micro_batch_size(dim) * layout.inputs == dim
    else:
        with pytest.raises(StreamError, match=r"^Invalid batch dimension"):
            layout.micro_batch_size(dim)


@pytest.mark.parametrize(
    ("factors", "message"),
    [((0, 1, 1), "1 or more"), ((1, 1, 4, 3), "use a divisor"), ((1, 1, 1, 1, "all"), "'consecutive' or 'orthogonal'")],
)
def test_factors_that_cannot_be_are_refused(factors: Tuple[Any, ...], message: str) -> None:
    """Every factor is positive and a group divides the replicas."""
    with pytest.raises(StreamError, match=message):
        Layout(*factors)


@pytest.mark.parametrize("period", [0, 4, 7])
def test_a_period_that_does_not_divide_is_refused(period: int) -> None:
    """EveryN takes a divisor of the micro-batches of a replica."""
    with pytest.raises(StreamError, match=f"period of {period} was given for 6"):
        streams.poptorch_selection(LAYOUT, "EveryN", period)


def test_an_unknown_mode_is_refused() -> None:
    """The error lists the modes."""
    with pytest.raises(StreamError, match="use All, EveryN, Final or Sum"):
        streams.poptorch_selection(LAYOUT, "Most")


# Paddle


@given(strategies.layouts(grouped=False), sizes)
@examples
def test_paddle_feeds_have_one_or_two_leading_dimensions(layout: Layout, size: int) -> None:
    """[n * mb, …] and [n, mb, …] hold the same micro-batches in the same order; anything else is refused."""
    flat, stacked = (layout.inputs * size, 7), (layout.inputs, size, 7)

    assert streams.paddle_feed_size(layout, flat, (size, 7)) == 1
    assert streams.paddle_feed_size(layout, stacked, (size, 7)) == 2
    for wrong in ((layout.inputs * size + 1, 7), (layout.inputs * size, 8), (layout.inputs + 1, size, 7), (7,)):
        with pytest.raises(StreamError, match=r"^Invalid batch dimension: a feed of shape"):
            streams.paddle_feed_size(layout, wrong, (size, 7))


@given(strategies.layouts(grouped=False), sizes)
@examples
def test_paddle_fetches_report_one_order_and_hold_another(layout: Layout, size: int) -> None:
    """The shape says (replicas, accumulation, batches per step), the data is in the order of slots."""
    batch = distinct(layout.inputs * size, 3)

    fetched = streams.select_all(layout).arrange(streams.deal(batch, layout))

    steps = (layout.device_iterations,) if layout.device_iterations > 1 else ()
    shape = streams.paddle_shape(layout, fetched[0].shape, replicated=True, accumulating=True)
    assert shape == (layout.replicas, layout.accumulation, *steps, size, 3)
    assert np.array_equal(np.concatenate(fetched), batch)


@pytest.mark.parametrize(
    ("layout", "replicated", "accumulating", "shape"),
    [
        (Layout(), False, False, (4, 2)),
        (Layout(), True, True, (1, 1, 4, 2)),
        (Layout(3), False, False, (3, 4, 2)),
        (Layout(1, 5), False, True, (5, 4, 2)),
        (Layout(3, 1, 2), True, False, (2, 3, 4, 2)),
    ],
)
def test_paddle_leading_dimensions_appear_when_enabled(
    layout: Layout, replicated: bool, accumulating: bool, shape: Tuple[int, ...]
) -> None:
    """Replicas and accumulation appear whenever they are on, batches per step only above 1; a scalar is (1,)."""
    flags = {"replicated": replicated, "accumulating": accumulating}

    assert streams.paddle_shape(layout, (4, 2), **flags) == shape
    assert streams.paddle_shape(layout, (), **flags) == (*shape[:-2], 1)


@pytest.mark.parametrize("layout", [Layout(1, 2, 1), Layout(1, 1, 2)])
def test_paddle_factors_need_their_option(layout: Layout) -> None:
    """More than one replica or accumulated micro-batch with the option off is refused."""
    with pytest.raises(StreamError, match="were given with the option off"):
        streams.paddle_shape(layout, (2,), replicated=False, accumulating=False)


# TensorFlow


@given(strategies.layouts(grouped=False), sizes)
@examples
def test_outfeeds_hold_the_replicas_of_each_iteration(layout: Layout, size: int) -> None:
    """ALL is in the order of the infeed, LAST its last element, accumulated the sums of each iteration."""
    produced = outputs(layout, size)
    expected = np.array(produced).swapaxes(0, 1)

    everything, last, accumulated = (
        np.array(select(layout).arrange(produced))
        for select in (streams.select_all, streams.select_final, streams.select_accumulated)
    )

    assert np.array_equal(everything, expected.reshape(-1, size))
    assert np.array_equal(last, expected[-1])
    assert np.array_equal(accumulated, expected.reshape(*layout.factors, size).sum(axis=1).reshape(-1, size))


# Faults


@pytest.mark.parametrize("fault", [row.name for row in catalogue.table() if row.point == "streams.split"])
def test_a_fault_of_the_split_changes_what_slots_are_fed(fault: str) -> None:
    """With pairwise different factors every fault of the split is visible in some slot."""
    right = LAYOUT.positions()
    with catalogue.inject(fault):
        wrong = LAYOUT.positions()

    assert wrong.shape == right.shape
    assert not np.array_equal(wrong, right)
    assert np.array_equal(LAYOUT.positions(), right)


@pytest.mark.parametrize("fault", [row.name for row in catalogue.table() if row.point == "streams.join"])
def test_a_fault_of_the_join_changes_what_comes_back(fault: str) -> None:
    """With pairwise different factors every fault of the join is visible in mode All."""
    produced = outputs(LAYOUT, 2)
    right = streams.join(produced, streams.select_all(LAYOUT))
    with catalogue.inject(fault):
        wrong = streams.join(produced, streams.select_all(LAYOUT))

    assert wrong.shape == right.shape
    assert not np.array_equal(wrong, right)
