"""Plans: order, dependencies, exclusiveness, stash depth, bubble and scale."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.core.plan import Kind, Plan, PlanError, Slot, plan
from ipu_conformance.emulator.core.schedules import SCHEDULES, ScheduleError, SharedDeviceError
from ipu_conformance.emulator.core.topology import Topology, pipeline
from tests.unit.emulator.core import strategies
from tests.unit.examples import at_most

Ticks = Dict[Tuple[Kind, int, int], int]
examples = at_most(60)


def ticks(planned: Plan) -> Ticks:
    """The tick of every (kind, stage, micro-batch or iteration); each of them is in the plan once."""
    found: Ticks = {}
    for slot in planned.slots():
        key = (slot.kind, slot.stage, slot.iteration if slot.kind >= Kind.REDUCE else slot.micro_batch)
        assert key not in found, f"{slot} is in the plan twice"
        found[key] = slot.tick
    return found


def picture(planned: Plan) -> List[str]:
    """One line an IPU, one character a tick: the micro-batch, upper case for forward, lower for the rest."""
    lines = [["."] * planned.ticks for _ in range(planned.ipus)]
    signs = {Kind.FORWARD: "ABCDEFGH", Kind.BACKWARD: "abcdefgh", Kind.RECOMPUTE: "rrrrrrrr"}
    for slot in planned.slots():
        lines[slot.ipu][slot.tick] = signs[slot.kind][slot.micro_batch] if slot.micro_batch >= 0 else "="
    return ["".join(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("sequential", {}, ["A..aB..b=", ".Aa..Bb.="]),
        ("grouped", {}, ["A.B....a.b=", "..A.Ba.b..="]),
        ("interleaved", {}, ["A.Ba.b=", ".AaBb.="]),
        ("popart", {}, ["A.B..a.b=", "..AaBb..="]),
        ("popart", {"training": False}, ["AB.", ".AB"]),
        ("popart", {"recompute": True}, ["A..B...ra.rb=", "...A.aB.b...="]),
    ],
)
def test_two_micro_batches_on_two_stages(name: str, options: Any, expected: List[str]) -> None:
    """The smallest pipeline, drawn by hand."""
    assert picture(plan(pipeline(2), name, 2, **options)) == expected


@given(strategies.plans())
@examples
def test_every_micro_batch_passes_every_stage_once(planned: Plan) -> None:
    """Each stage has one forward and, in training, one backward of each micro-batch, and updates once a group."""
    expected: Counter[Kind] = Counter({Kind.FORWARD: planned.stages * planned.total_micro_batches})
    if planned.training:
        expected[Kind.BACKWARD] = planned.stages * planned.total_micro_batches
        expected[Kind.UPDATE] = planned.stages * planned.updates
        if planned.replicas > 1:
            expected[Kind.REDUCE] = expected[Kind.UPDATE]
        if planned.recompute and planned.stages > 1:
            expected[Kind.RECOMPUTE] = (planned.stages - 1) * planned.total_micro_batches

    found = ticks(planned)

    assert Counter(kind for kind, _, _ in found) == expected
    micro_batches = {number for kind, _, number in found if kind is Kind.FORWARD}
    assert micro_batches == set(range(planned.total_micro_batches))


@given(strategies.plans())
@examples
def test_no_slot_is_before_its_inputs(planned: Plan) -> None:
    """A forward follows the stage before, a backward the stage after, and micro-batches stay in order."""
    found = ticks(planned)
    last = planned.stages - 1

    for (kind, stage, number), tick in found.items():
        needs = []
        if kind is Kind.FORWARD and stage > 0:
            needs.append((Kind.FORWARD, stage - 1, number))
        if kind is Kind.BACKWARD:
            needs.append((Kind.FORWARD, stage, number))
            needs += [(Kind.BACKWARD, stage + 1, number)] if stage < last else []
        if kind in (Kind.FORWARD, Kind.BACKWARD) and number > 0:
            needs.append((kind, stage, number - 1))
        assert all(found[need] < tick for need in needs), (kind, stage, number)


@given(strategies.plans(training=True))
@examples
def test_a_recompute_is_right_before_its_backward(planned: Plan) -> None:
    """It is the tick before, on the same IPU; the last stage and a plan without recomputation have none."""
    found = ticks(planned)
    backward = {key: tick for key, tick in found.items() if key[0] is Kind.BACKWARD}

    for (_, stage, number), tick in backward.items():
        expected = tick - 1 if planned.recompute and stage < planned.stages - 1 else None
        assert found.get((Kind.RECOMPUTE, stage, number)) == expected


@given(strategies.plans())
@examples
def test_an_ipu_has_one_slot_in_a_tick(planned: Plan) -> None:
    """No two slots of a replica share IPU and tick; a stage is always on its IPU."""
    used = [(slot.tick, slot.replica, slot.ipu) for slot in planned]

    assert len(set(used)) == len(used) == len(planned)
    assert used == sorted(used)
    assert all(slot.ipu == planned.topology.placement[slot.stage] for slot in planned)


@given(strategies.plans(training=True))
@examples
def test_an_update_follows_the_last_backward_of_its_group(planned: Plan) -> None:
    """A stage updates after the backwards of its group and its reduction, and before the next group's backward."""
    found = ticks(planned)
    group = planned.micro_batches if planned.accumulate else 1

    for stage in range(planned.stages):
        for step in range(planned.updates):
            update = found[Kind.UPDATE, stage, step]
            backwards = [found[Kind.BACKWARD, stage, number] for number in range(step * group, (step + 1) * group)]
            after = found.get((Kind.BACKWARD, stage, (step + 1) * group), planned.ticks)
            reduce = found.get((Kind.REDUCE, stage, step), update - 1)
            assert max(backwards) < update < after
            assert max(backwards) <= reduce < update
            if planned.accumulate:
                # The pipeline is empty: no forward of the next group has seen the old weights.
                assert update < found.get((Kind.FORWARD, 0, (step + 1) * group), planned.ticks)


def counted_stash(planned: Plan, stage: int) -> int:
    """The largest number of micro-batches between forward and backward, by walking the slots."""
    waiting, most = 0, 0
    for slot in planned.slots():
        if slot.stage == stage:
            waiting += {Kind.FORWARD: 1, Kind.BACKWARD: -1}.get(slot.kind, 0)
            most = max(most, waiting)
    return most


STASH = {
    "sequential": lambda stages, stage: 1,
    "grouped": lambda stages, stage: 2 * (stages - stage),
    "interleaved": lambda stages, stage: stages - stage,
    "popart": lambda stages, stage: 2 * (stages - stage) - 1,
}


@given(strategies.plans(training=True))
@examples
def test_the_stash_depth_is_its_bound(planned: Plan) -> None:
    """The depth is the schedule's formula, or all the micro-batches when there are fewer."""
    bound = STASH[planned.schedule.name]
    expected = [min(planned.micro_batches, bound(planned.stages, stage)) for stage in range(planned.stages)]

    assert [counted_stash(planned, stage) for stage in range(planned.stages)] == expected
    assert planned.stash_depths() == expected


def test_inference_stashes_nothing() -> None:
    """There is no backward to keep anything for."""
    assert plan(pipeline(3), "grouped", 6, training=False).stash_depths() == [0, 0, 0]


BUBBLE = {
    ("sequential", True): lambda n, m: 1 - Fraction(1, n),
    ("sequential", False): lambda n, m: 1 - Fraction(1, n),
    ("grouped", True): lambda n, m: Fraction(2 * n - 1, m + 2 * n - 1),
    ("grouped", False): lambda n, m: Fraction(n - 1, m + n - 1),
    ("interleaved", True): lambda n, m: Fraction(n - 1, m + n - 1),
    ("interleaved", False): lambda n, m: Fraction(n - 1, m + n - 1),
    ("popart", True): lambda n, m: Fraction(2 * n - 2, m + 2 * n - 2),
    ("popart", False): lambda n, m: Fraction(n - 1, m + n - 1),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", sorted(SCHEDULES))
@given(stages=st.integers(1, 7), micro_batches=st.integers(1, 20), iterations=st.integers(1, 3))
@at_most(15)
def test_the_bubble_is_the_theoretical_fraction(
    name: str, training: bool, stages: int, micro_batches: int, iterations: int
) -> None:
    """One stage per IPU without recomputation idles for exactly the fraction that theory gives."""
    planned = plan(pipeline(stages), name, micro_batches, training=training, device_iterations=iterations)
    moving = [slot for slot in planned.slots() if slot.kind < Kind.REDUCE]
    first_run = [slot.tick for slot in moving if slot.micro_batch < micro_batches]
    idle = 1 - Fraction(len(first_run), stages * (max(first_run) - min(first_run) + 1))

    expected = BUBBLE[name, training](stages, micro_batches)

    assert idle == expected
    assert planned.bubble() == expected
    assert planned.schedule.bubble(planned.shape) == expected


@given(strategies.plans())
@examples
def test_the_counted_bubble_is_the_schedules_formula(planned: Plan) -> None:
    """With shared IPUs, recomputation, or updates inside the pipeline, too."""
    assert planned.bubble() == planned.schedule.bubble(planned.shape)


@given(strategies.plans())
@examples
def test_replicas_do_the_same(planned: Plan) -> None:
    """Every replica has the slots of replica 0 under its own number."""
    by_replica: Dict[int, List[Slot]] = defaultdict(list)
    for slot in planned:
        by_replica[slot.replica].append(slot)

    assert sorted(by_replica) == list(range(planned.replicas))
    for replica, slots in by_replica.items():
        assert slots == list(planned.slots(replica)) == [slot._replace(replica=replica) for slot in by_replica[0]]


def test_columns_cannot_be_written_to() -> None:
    """A plan is a specification; what executes it cannot change it."""
    planned = plan(pipeline(2), "grouped", 4)

    with pytest.raises(ValueError, match="read-only"):
        planned.columns["tick"][0] = 7
    assert planned.slot(0) == next(planned.slots())
    assert str(planned.slot(0)) == "forward of stage 0, micro-batch 0, on IPU 0 of replica 0 in tick 0"
    assert str(planned.slot(len(planned.columns) - 1)).startswith("update of stage 1, iteration 0, on IPU 1")
    assert np.array_equal(planned.rows(Kind.UPDATE)["ipu"], [0, 1])


def test_a_placement_may_stand_for_a_topology() -> None:
    """The IPU of each stage and the replicas are enough."""
    short = plan([0, 1, 0], "popart", 5, replicas=2)
    full = plan(Topology((0, 1, 0), 2), "popart", 5)

    assert np.array_equal(short.columns, full.columns)
    assert (short.replicas, short.stages, short.ipus) == (2, 3, 2)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((pipeline(2), "grouped", 0), {}, PlanError, "0 micro-batches were given"),
        ((pipeline(2), "grouped", 4), {"device_iterations": 0}, PlanError, "0 device iterations"),
        ((pipeline(2), "grouped", 4), {"training": False, "recompute": True}, PlanError, "without training"),
        ((pipeline(2), "grouped", 4), {"replicas": 3}, PlanError, "3 replicas were given for a topology of 1"),
        ((pipeline(2), "grouped", 4), {"accumulate": False}, ScheduleError, "grouped schedule updates once per run"),
        ((pipeline(2), "zigzag", 4), {}, ScheduleError, "use one of sequential, grouped, interleaved, popart"),
        (([0, 1, 0], "interleaved", 4), {}, SharedDeviceError, "2 pipeline stages on one IPU"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(arguments: Any, options: Any, error: Any, message: str) -> None:
    """The sentence says what was given and what to do."""
    with pytest.raises(error, match=message):
        plan(*arguments, **options)


# Scale


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_storage_grows_with_one_replicas_slots(name: str) -> None:
    """64 stages, 1,024 micro-batches and 16 replicas store the rows of one replica, exactly as many as there are."""
    planned = plan(pipeline(64, 16), name, 1024, recompute=True)

    rows = 1024 * (64 + 63 + 64) + 64 + 64
    assert len(planned.columns) == rows
    assert len(planned) == 16 * rows
    assert planned.columns.nbytes == rows * planned.columns.dtype.itemsize
    assert planned.bubble() == planned.schedule.bubble(planned.shape)
