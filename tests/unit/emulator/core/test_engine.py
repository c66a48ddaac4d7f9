"""The engine: every plan trains like a plain loop, in lockstep, as traced; and a wrong device shows."""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import pytest

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core.engine import Engine, ExecutionError
from ipu_conformance.emulator.core.plan import Kind, Plan, plan
from ipu_conformance.emulator.core.topology import pipeline
from ipu_conformance.emulator.core.trace import Recorder, compare
from ipu_conformance.emulator.faults import catalogue
from tests.unit.emulator.core.numpy_machine import (
    MOMENTUM,
    RATE,
    NumpyMachine,
    Weights,
    initial_weights,
    plain_loop,
    plain_step,
    samples,
)

# Stages, accumulation, replicas and device iterations differ pairwise, so that no two can be exchanged unseen.
SIZES = [(1, 2, 3, 4), (2, 8, 1, 3), (3, 6, 2, 1), (4, 8, 3, 2)]
SCHEDULE_NAMES = ["sequential", "grouped", "interleaved", "popart"]


def same_bits(expected: List[Weights], actual: List[Weights]) -> bool:
    """Whether two sets of weights are equal bit by bit."""
    return all(
        expected[stage].keys() == actual[stage].keys()
        and all(expected[stage][name].tobytes() == actual[stage][name].tobytes() for name in expected[stage])
        for stage in range(len(expected))
    )


def trained(planned: Plan, **options: Any) -> Tuple[NumpyMachine, List[List[Any]]]:
    """A machine after one run of the plan on the standard weights and data, and the losses."""
    group = planned.micro_batches if planned.accumulate else 1
    machine = NumpyMachine(initial_weights(planned.stages), planned.replicas, group)
    return machine, run(planned, machine, samples(planned.replicas, planned.total_micro_batches), **options)


def run(
    planned: Plan, machine: NumpyMachine, data: Any, *, recorder: Optional[Recorder] = None, parallel: bool = False
) -> List[List[Any]]:
    """The losses of one run of the plan."""
    with Engine(planned, machine, parallel=parallel) as engine:
        return engine.run(data, recorder)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_a_plan_trains_like_a_plain_loop(name: str, sizes: Tuple[int, int, int, int], recompute: bool) -> None:
    """Weights and losses have the bits of a loop without stages: every schedule adds gradients in the same order."""
    stages, accumulation, replicas, iterations = sizes
    planned = plan(pipeline(stages, replicas), name, accumulation, recompute=recompute, device_iterations=iterations)
    data = samples(replicas, planned.total_micro_batches)

    machine, losses = trained(planned)
    expected, expected_losses = plain_loop(initial_weights(stages), data, accumulation)

    assert losses == expected_losses
    for replica in range(replicas):
        assert same_bits(expected, machine.values[replica])
    assert not same_bits(initial_weights(stages), machine.values[0])


@pytest.mark.parametrize("name", ["sequential", "grouped", "popart"])
def test_stages_that_share_an_ipu_train_the_same(name: str) -> None:
    """Going back to an IPU changes the plan, not the result."""
    planned = plan([0, 1, 0, 1, 2], name, 10, replicas=2, recompute=True)

    machine, _ = trained(planned)
    expected, _ = plain_loop(initial_weights(5), samples(2, 10), 10)

    assert same_bits(expected, machine.values[1])


@pytest.mark.parametrize("replicas", [1, 3])
def test_parallel_replicas_give_the_same_bits(replicas: int) -> None:
    """Threads change when a replica works, not what it computes."""
    planned = plan(pipeline(3, replicas), "popart", 5, device_iterations=2)

    serial, losses = trained(planned)
    recorder = Recorder(replicas)
    parallel, parallel_losses = trained(planned, parallel=True, recorder=recorder)

    assert losses == parallel_losses
    assert all(same_bits(serial.values[replica], parallel.values[replica]) for replica in range(replicas))
    assert compare(planned, recorder.trace()) is None


def test_replicas_that_started_alike_stay_identical() -> None:
    """Replicas see different data and hold the same bits, because they update with one reduced gradient."""
    planned = plan(pipeline(2, 4), "grouped", 4, device_iterations=3)

    machine, losses = trained(planned)

    assert all(same_bits(machine.values[0], machine.values[replica]) for replica in range(1, 4))
    assert len({loss.tobytes() for own in losses for loss in own}) == 4 * 12


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_inference_is_forward_alone(name: str) -> None:
    """Outputs come back by replica and micro-batch, nothing is kept for a backward and no weight moves."""
    planned = plan(pipeline(3, 2), name, 6, training=False, device_iterations=2)
    weights = initial_weights(3)

    machine, losses = trained(planned)

    expected = [[plain_step(weights, weights, sample)[0] for sample in own] for own in samples(2, 12)]
    assert losses == expected
    assert same_bits(weights, machine.values[0])
    assert not any(keep for _, _, keep in machine.kept)


def test_popart_without_accumulation_updates_inside_the_pipeline() -> None:
    """Stage s looks at weights that lack the last 2(S-1-s) updates in forward, and none in backward."""
    stages, count, replicas = 3, 7, 2
    planned = plan(pipeline(stages, replicas), "popart", count, accumulate=False)
    data = samples(replicas, count)
    versions = [initial_weights(stages)]
    velocity: List[Weights] = [{name: np.zeros_like(value) for name, value in s.items()} for s in versions[0]]
    losses: List[List[Any]] = [[], []]
    for micro_batch in range(count):
        seen = [versions[max(0, micro_batch - 2 * (stages - 1 - stage))][stage] for stage in range(stages)]
        steps = [plain_step(seen, versions[micro_batch], own[micro_batch]) for own in data]
        for replica, (loss, _) in enumerate(steps):
            losses[replica].append(loss)
        after: List[Weights] = []
        for stage in range(stages):
            mean = {k: (steps[1][1][stage][k] + steps[0][1][stage][k]) / np.float32(replicas) for k in seen[stage]}
            velocity[stage] = {k: np.float32(MOMENTUM) * velocity[stage][k] + mean[k] for k in mean}
            after.append({k: versions[-1][stage][k] - np.float32(RATE) * velocity[stage][k] for k in mean})
        versions.append(after)

    machine, actual_losses = trained(planned)

    assert actual_losses == losses
    assert same_bits(versions[-1], machine.values[0])
    assert same_bits(versions[-1], machine.values[1])


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_a_machine_holds_as_many_stashes_as_planned(name: str, recompute: bool) -> None:
    """The micro-batches between forward and backward are the plan's; recomputed stages keep only their input."""
    planned = plan(pipeline(4, 2), name, 16, recompute=recompute)

    machine, _ = trained(planned)

    assert machine.deepest == [planned.stash_depths()] * 2
    assert all(keep == (not recompute or stage == 3) for stage, _, keep in machine.kept)


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_what_was_executed_is_what_was_planned(name: str) -> None:
    """The trace has every slot of the plan, in order, without overlap."""
    planned = plan(pipeline(3, 2), name, 6, recompute=True, device_iterations=2)
    recorder = Recorder(2)

    trained(planned, recorder=recorder)

    trace = recorder.trace()
    assert compare(planned, trace) is None
    for replica in range(2):
        events = trace.replica(replica)
        ends = events["start"] + events["duration"]
        assert (events["duration"] >= 0).all()
        assert (events["start"][1:] >= ends[:-1]).all()
    reduces = [trace.replica(replica)[trace.replica(replica)["kind"] == Kind.REDUCE] for replica in range(2)]
    assert np.array_equal(reduces[0]["start"], reduces[1]["start"])


def test_an_engine_runs_a_plan_again_and_again() -> None:
    """Two runs of one iteration are one run of two."""
    once = plan(pipeline(2, 2), "interleaved", 4)
    machine = NumpyMachine(initial_weights(2), 2, 4)
    data = samples(2, 8)

    with Engine(once, machine) as engine:
        first = engine.run([own[:4] for own in data])
        second = engine.run([own[4:] for own in data])
    expected, losses = plain_loop(initial_weights(2), data, 4)

    assert same_bits(expected, machine.values[0])
    assert [a + b for a, b in zip(first, second)] == losses


@pytest.mark.parametrize("data", [samples(1, 4), samples(2, 3), samples(3, 4)], ids=["replicas", "fewer", "more"])
def test_inputs_that_do_not_fit_the_plan_are_refused(data: Any) -> None:
    """Two replicas with four micro-batches each are needed."""
    planned = plan(pipeline(2, 2), "interleaved", 4)

    with pytest.raises(ExecutionError, match="the plan needs 2 with 4 each"):
        run(planned, NumpyMachine(initial_weights(2), 2, 4), data)


class Broken(NumpyMachine):
    """Replica 1 fails in a backward with a KeyError of its own."""

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        if replica == 1 and micro_batch == 2:
            raise KeyError("conv9")
        return super().backward(replica, stage, micro_batch, stash, gradient)


@pytest.mark.parametrize("parallel", [False, True])
def test_an_error_of_the_machine_comes_through(parallel: bool) -> None:
    """The machine's exception is raised as it is, and no thread is left behind."""
    planned = plan(pipeline(2, 3), "grouped", 4)
    before = threading.active_count()

    with pytest.raises(KeyError, match="conv9"):
        run(planned, Broken(initial_weights(2), 3, 4), samples(3, 4), parallel=parallel)
    assert threading.active_count() == before


# Faults

CORE_POINTS = ("plan.slots", "execute.boundary", "reduce.gradients", "core.engine:Engine._update")
CORE_FAULTS = [row.name for row in catalogue.table() if row.point in CORE_POINTS]


@pytest.mark.parametrize("fault", CORE_FAULTS)
def test_a_fault_of_the_core_shows(fault: str) -> None:
    """Each one changes weights or losses, makes the trace differ from the plan, or stops the run with a sentence."""
    planned = plan(pipeline(3, 2), "popart", 6, device_iterations=2)
    right, losses = trained(planned)
    recorder = Recorder(2)

    symptoms: Dict[str, bool] = {}
    with catalogue.inject(fault):
        try:
            wrong, wrong_losses = trained(planned, recorder=recorder)
        except ExecutionError as error:
            symptoms["stopped"] = " " in str(error)
        else:
            symptoms["weights"] = not all(same_bits(right.values[r], wrong.values[r]) for r in range(2))
            symptoms["losses"] = wrong_losses != losses
            symptoms["trace"] = compare(planned, recorder.trace()) is not None

    assert any(symptoms.values())
    again, _ = trained(planned)
    assert same_bits(right.values[0], again.values[0])


def test_every_hook_point_is_told_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault sees each boundary in both directions and each reduction, with the numbers it may use."""
    planned = plan(pipeline(3, 2), "popart", 5, device_iterations=2)
    seen: Dict[str, List[Any]] = {point: [] for point in CORE_POINTS}

    def look(point: str, value: Any, **context: Any) -> Any:
        seen[point].append(context)
        return value

    monkeypatch.setattr(faults, "at", look)
    trained(planned)

    crossings = {(c["kind"], c["replica"], c["stage"], c["micro_batch"]) for c in seen["execute.boundary"]}
    assert crossings == {
        (kind, replica, stage, micro_batch)
        for kind, stages in ((Kind.FORWARD, (0, 1)), (Kind.BACKWARD, (2, 1)))
        for replica in range(2)
        for stage in stages
        for micro_batch in range(10)
    }
    assert len(seen["execute.boundary"]) == len(crossings)
    assert len(seen["plan.slots"]) == 1
    assert [(c["stage"], c["divisor"]) for c in seen["reduce.gradients"]] == [(0, 10), (1, 10), (2, 10)] * 2


def test_a_single_replica_also_passes_the_reduction_hook() -> None:
    """A mean over accumulated micro-batches can go wrong without replicas, too."""
    planned = plan(pipeline(2), "popart", 3)
    right, _ = trained(planned)

    with catalogue.inject("sum-instead-of-mean"):
        wrong, _ = trained(planned)

    assert not same_bits(right.values[0], wrong.values[0])


def test_the_core_has_faults_to_show() -> None:
    """Every hook point of the engine has a fault in the table."""
    assert {catalogue.get(name).point for name in CORE_FAULTS} == set(CORE_POINTS)


@pytest.mark.parametrize(
    ("drop", "message"),
    [
        (lambda rows: rows[1:], r"^forward of stage 1, micro-batch 0, on IPU 1 of replica 0 in tick 1 has no input"),
        (lambda rows: rows[rows["kind"] != Kind.REDUCE], r"^update of stage 0, iteration 0, .* has no input"),
        (
            lambda rows: rows[~((rows["stage"] == 1) & (rows["micro_batch"] == 3))],
            r"^backward of stage 0, micro-batch 3, .* has no input",
        ),
        (lambda rows: rows[rows["micro_batch"] != 3], r"^micro-batch 3 of replica 0 never left the last stage"),
    ],
)
def test_a_slot_without_input_is_named(drop: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that leaves out a slot stops at the first that needs it."""
    planned = plan(pipeline(2, 2), "interleaved", 4)
    monkeypatch.setattr(faults, "at", lambda point, value, **_: drop(value) if point == "plan.slots" else value)

    with pytest.raises(ExecutionError, match=message):
        trained(planned)
