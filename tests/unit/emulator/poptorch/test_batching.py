"""Micro-batches and outputs of torch tensors follow the core's positions, as views and without a needless copy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.core import streams
from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import OutputMode
from ipu_conformance.emulator.poptorch.run import micro_batches, outputs
from tests.unit.examples import at_most

from .executor_strategies import layouts, modes


@at_most(60)
@given(layout=layouts(), micro=st.integers(1, 3))
def test_a_feed_deals_out_as_the_core_does(layout: streams.Layout, micro: int) -> None:
    """Every slot gets the rows that the core's positions name."""
    batch = torch.arange(float(layout.inputs * micro * 2)).reshape(-1, 2)

    dealt = micro_batches.Feed(layout, [batch]).deal([batch])

    expected = streams.deal(batch.numpy(), layout)
    for own, other in zip(dealt, expected):
        for (tensor,), array in zip(own, other):
            assert np.array_equal(tensor.numpy(), array)


@at_most(60)
@given(data=st.data(), layout=layouts(), scalar=st.booleans())
def test_outputs_are_joined_as_the_core_does(data: st.DataObject, layout: streams.Layout, scalar: bool) -> None:
    """The selected outputs come one after the other, scalars as a vector unless there is one."""
    mode, period = data.draw(modes(layout))
    shape = () if scalar else (2, 3)
    made = [
        [torch.full(shape, 100.0 * replica + number) for number in range(layout.micro_batches)]
        for replica in range(layout.replicas)
    ]
    returned = outputs.Returned(layout, OutputMode[mode], period)

    joined = returned.join([[{4: value} for value in own] for own in made], 4)

    selection = streams.poptorch_selection(layout, mode, period)
    expected = streams.join([[value.numpy() for value in own] for own in made], selection)
    assert joined.shape == expected.shape
    assert np.array_equal(joined.numpy(), expected)


@at_most(30)
@given(data=st.data(), layout=layouts())
def test_only_needed_outputs_are_asked_for(data: st.DataObject, layout: streams.Layout) -> None:
    """``sources`` are exactly the slots that joining reads."""
    mode, period = data.draw(modes(layout))
    returned = outputs.Returned(layout, OutputMode[mode], period)
    made = [
        [{0: torch.zeros(1)} if (replica, number) in returned.sources else {} for number in range(layout.micro_batches)]
        for replica in range(layout.replicas)
    ]

    returned.join(made, 0)

    for replica, number in returned.sources:
        missing = [[dict(leaf) for leaf in own] for own in made]
        missing[replica][number] = {}
        with pytest.raises(KeyError):
            returned.join(missing, 0)


def test_micro_batches_are_views() -> None:
    """Dealing out copies nothing."""
    batch = torch.zeros(6, 2)

    dealt = micro_batches.Feed(streams.Layout(3, 1, 2), [batch]).deal([batch])

    assert {part.untyped_storage().data_ptr() for own in dealt for (part,) in own} == {
        batch.untyped_storage().data_ptr()
    }


def test_inputs_that_the_model_writes_to_are_copied() -> None:
    """Only the inputs that are named get memory of their own."""
    batch = torch.zeros(2, 1)
    feed = micro_batches.Feed(streams.Layout(2), [batch, batch])
    feed.copied = frozenset({1})

    (((kept, copied), _),) = feed.deal([batch, batch])

    assert kept.untyped_storage().data_ptr() == batch.untyped_storage().data_ptr()
    assert copied.untyped_storage().data_ptr() != batch.untyped_storage().data_ptr()


def test_gradients_of_inputs_stay_on_the_host() -> None:
    """What is dealt out requires no gradient."""
    batch = torch.zeros(2, 1, requires_grad=True)

    dealt = micro_batches.Feed(streams.Layout(2), [batch]).deal([batch])

    assert not any(part.requires_grad for own in dealt for (part,) in own)


def test_a_model_without_tensors_has_empty_micro_batches() -> None:
    """Every slot gets an empty tuple."""
    assert micro_batches.Feed(streams.Layout(2, 1, 2), []).deal([]) == [[(), ()], [(), ()]]


@pytest.mark.parametrize("value", [0, 1, -5, 2**31 - 1, -(2**31)])
def test_integers_that_fit_pass_unchanged(value: int) -> None:
    """Narrowing changes only what does not fit, and keeps the type that kernels take."""
    narrowed = micro_batches.narrowed(torch.tensor([value]))

    assert (narrowed.item(), narrowed.dtype) == (value, torch.int64)


@pytest.mark.parametrize("name", ["int64-not-narrowed", "float64-not-narrowed"])
def test_narrowing_can_be_left_out(name: str) -> None:
    """Under the fault the value keeps its bits."""
    wide = torch.tensor([2**40]) if name.startswith("int") else torch.tensor([1 + 2.0**-40], dtype=torch.float64)

    right = micro_batches.narrowed(wide)
    with catalogue.inject(name):
        wrong = micro_batches.narrowed(wide)

    assert torch.equal(wrong.double(), wide.double())
    assert not torch.equal(right.double(), wide.double())


def test_a_period_that_does_not_divide_is_refused() -> None:
    """EveryN needs a divisor of the micro-batches."""
    with pytest.raises(Error, match="divisor"):
        outputs.Returned(streams.Layout(3), OutputMode.EveryN, 2)


def test_groups_that_do_not_divide_are_refused() -> None:
    """A layout that is none is an Error of the front end."""
    from ipu_conformance.emulator.poptorch.options.enums import CommGroupType

    options = SimpleNamespace(
        device_iterations=1,
        replication_factor=4,
        input_group_size=3,
        input_group_type=CommGroupType.Consecutive,
        Training=SimpleNamespace(gradient_accumulation=1),
    )

    with pytest.raises(Error, match="divisor"):
        micro_batches.layout_of(options)
