"""Ways to be right for the first of a kind, or for few of it, and wrong for those that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import numpy as np

from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, always, argument, patch, register
from ipu_conformance.emulator.faults.catalogue.paddle.execution import DRAW

LOAD = "paddle.run.machine:PaddleMachine.load"
PROGRAMS = "paddle.compile.slot_programs:Programs.__init__"
Original = Callable[..., Any]


@patch("paddle-seed-goes-on-with-the-runs", "streams", DRAW, "a run drops what the next seed dropped in the run before")
def _next_seed(original: Original, seed: int, run: int, *place: int) -> int:
    return original(seed + run, 0, *place)


@patch("paddle-recomputation-moves-statistics", "weights", "paddle.run.machine:PaddleMachine.recompute",
       "going forward again moves a stage's first statistics again")  # fmt: skip
def _moved_again(original: Original, machine: Any, replica: int, stage: int, *arguments: Any) -> Any:
    right = machine.stages[stage]
    machine.stages[stage] = replace(right, moving=right.moving[1:])
    try:
        return original(machine, replica, stage, *arguments)
    finally:
        machine.stages[stage] = right


@patch("paddle-random-rounding-never-traps", "numerics", "paddle.compile.precision:_AtRandom.__init__",
       "floating-point checks are not made where rounding is stochastic")  # fmt: skip
def _never_traps(original: Original, rounding: Any, seed: int, op: int, traps: Any) -> None:
    original(rounding, seed, op, type(traps)())


@patch("paddle-running-mean-of-replicas-is-sum", "reduce", PROGRAMS,
       "a running mean is not divided by the number of replicas")  # fmt: skip
def _of_replicas(original: Original, programs: Any, *arguments: Any, **settings: Any) -> None:
    original(programs, *arguments, **settings)
    if programs.running:
        programs._scale *= programs.replicas


@patch("paddle-mean-of-four-replicas-at-most", "reduce", PROGRAMS,
       "a mean over more than four replicas is divided by four")  # fmt: skip
def _four_at_most(original: Original, programs: Any, *arguments: Any, mean: bool = True, **settings: Any) -> None:
    original(programs, *arguments, mean=mean, **settings)
    if mean and programs.replicas > 4:
        programs._scale *= programs.replicas / 4


@patch("paddle-output-is-not-copied", "streams", "paddle.api.inference:Handle.copy_to_cpu",
       "an output of a predictor is the array that the predictor holds")  # fmt: skip
def _not_copied(original: Original, handle: Any) -> Any:
    original(handle)
    return handle.array


def _lost(*words: str) -> Wrong:
    """State whose name holds one of the words is not sent to the device."""

    def wrong(original: Original, machine: Any, values: Any) -> None:
        lost = {name: np.zeros_like(np.array(value)) for name, value in values.items() if any(w in name for w in words)}
        original(machine, {**values, **lost})

    return wrong


@patch("paddle-fourth-replica-keeps-its-rate", "update", "paddle.run.machine:PaddleMachine.put",
       "replicas from the fourth on keep the first learning rate")  # fmt: skip
def _first_rate(original: Original, machine: Any, values: Any) -> None:
    replicas = machine._scopes
    if machine.runs and all("learning_rate" in name for name in values):
        machine._scopes = replicas[:3]
    try:
        original(machine, values)
    finally:
        machine._scopes = replicas


for _fault in (
    Fault("paddle-velocity-not-sent", "weights", LOAD, "a velocity that was saved is not sent", _lost("_velocity_")),
    Fault("paddle-norms-not-sent", "weights", LOAD, "the norms of Adamax that were saved are not sent",
          _lost("_inf_norm_")),
    Fault("paddle-squares-not-sent", "weights", LOAD, "means of squares that were saved are not sent",
          _lost("mean_square", "_avg_squared_", "_moment_0")),
    Fault("paddle-dump-all-recomputed", "ir", "popart.lowering:lower", "all stages but the last are recomputed",
          argument("execution", lambda execution: replace(execution, recompute=True))),
    Fault("paddle-drops-repeat-after-sixteen-runs", "streams", DRAW, "the 17th run drops what the first one dropped",
          argument("run", lambda run: run % 16)),
    Fault("paddle-fourth-dropout-is-the-third", "streams", DRAW, "dropouts from the fourth on drop as the third one",
          argument("place", lambda place: min(place, 2))),
    Fault("paddle-seed-of-eight-bits", "streams", DRAW, "seeds count modulo 256", argument("seed", lambda n: n % 256)),
    Fault("paddle-late-optimizer-ops-accepted", "ir", "paddle.optim.folding:_refuse",
          "only the first three ops of an optimizer are looked at", argument("optimizing", lambda ops: ops[:3])),
    Fault("paddle-integers-in-half", "numerics", "paddle.compile.passes.inference:_is_float",
          "integers of an inference in float16 pass through float16, too", always(True)),
):  # fmt: skip
    register(_fault, __name__)


@patch("paddle-late-stages-move-statistics", "weights", "paddle.run.machine:PaddleMachine.recompute",
       "from the third stage on, going forward again moves statistics again")  # fmt: skip
def _late_moved_again(original: Original, machine: Any, replica: int, stage: int, *arguments: Any) -> Any:
    right = machine.stages[stage]
    machine.stages[stage] = replace(right, moving=right.moving[:0]) if stage > 1 else right
    try:
        return original(machine, replica, stage, *arguments)
    finally:
        machine.stages[stage] = right


@patch("paddle-second-stage-drops-anew", "streams", "paddle.run.machine:PaddleMachine.recompute",
       "the second stage drops other values again")  # fmt: skip
def _second_drops_anew(original: Original, machine: Any, replica: int, stage: int, *arguments: Any) -> Any:
    seed = machine.seed
    machine.seed = seed + (stage == 1)
    try:
        return original(machine, replica, stage, *arguments)
    finally:
        machine.seed = seed


@patch("paddle-first-mark-counts", "plan", "paddle.optim.folding:find_loss", "gradients begin at the first marked loss")
def _first_mark(original: Original, ops: Any, **settings: Any) -> Any:
    marks = [op for op in ops if op.type == "identity_loss"]
    return original([op for op in ops if op not in marks[1:]], **settings)


@patch("paddle-weights-stay-in-evaluation", "weights", "paddle.run.executable:Executable.weights_to_host",
       "no weight comes home while evaluation is on")  # fmt: skip
def _stay(original: Original, executable: Any) -> None:
    if not executable.strategy.value("runtime_options.enable_eval"):
        original(executable)


@patch("paddle-every-loss-is-final", "plan", "paddle.optim.folding:_final_losses",
       "gradients begin at the last loss, whatever reads it")  # fmt: skip
def _every_loss(original: Original, ops: Any) -> Any:
    from ipu_conformance.emulator.paddle.optim.folding import LOSSES, TAILS

    # What reads a loss and is no reduction of it is not seen.
    return original([op for op in ops if op.type in (*LOSSES, *TAILS)])


@patch("paddle-running-mean-goes-on", "update", "paddle.run.machine:PaddleMachine.update",
       "stages after the first go on with their running mean after an update")  # fmt: skip
def _mean_goes_on(original: Original, machine: Any, replica: int, stage: int, gradients: Any) -> None:
    count = machine._counts[replica].get(stage)
    original(machine, replica, stage, gradients)
    if stage and count:
        machine._counts[replica][stage] = count


@patch("paddle-every-replica-counts-steps", "update", "paddle.run.machine:PaddleMachine.update",
       "a step counts for each of the replicas")  # fmt: skip
def _all_count(original: Original, machine: Any, replica: int, stage: int, gradients: Any) -> None:
    original(machine, replica, stage, gradients)
    if replica and not machine._updated[replica]:
        machine.updates += 1
