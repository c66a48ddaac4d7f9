"""Ways to be wrong that show late, rarely or beside the values: in what lasts between runs, at edges, in tails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict

import numpy as np

from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, always, argument, map_arrays, patch, register
from ipu_conformance.emulator.faults.catalogue.paddle.execution import DRAW

EXECUTABLE = "paddle.run.executable:Executable"
MACHINE = "paddle.run.machine:PaddleMachine"
PROGRAMS = "paddle.compile.slot_programs:Programs"
Original = Callable[..., Any]


@patch("paddle-rate-a-run-late", "update", f"{EXECUTABLE}._set_rates",
       "a learning rate that is set counts from the run after the next on", remembers=True)  # fmt: skip
def _a_run_late(memory: Dict[Any, Any], original: Original, executable: Any) -> None:
    original(executable)
    before, memory[id(executable)] = memory.get(id(executable), executable._rates), executable._rates
    lasting = executable.lasting
    executable.machine.put({name: np.full(lasting[name].shape, rate, lasting[name].stored) for name, rate in before})


@patch("paddle-evaluation-a-run-late", "update", f"{EXECUTABLE}._set_rates",
       "the first run of an evaluation still trains", remembers=True)  # fmt: skip
def _evaluation_late(memory: Dict[Any, Any], original: Original, executable: Any) -> None:
    before = executable._rates
    original(executable)
    if before and any(rate for _, rate in before) and not any(rate for _, rate in executable._rates):
        lasting = executable.lasting
        executable.machine.put({n: np.full(lasting[n].shape, rate, lasting[n].stored) for n, rate in before})
        executable._rates = before if not memory.setdefault(id(executable), False) else executable._rates
        memory[id(executable)] = not memory[id(executable)]


@patch("paddle-steps-counted-to-five", "weights", f"{EXECUTABLE}._step_counts", "the host's step counts end with five")
def _to_five(original: Original, *arguments: Any) -> Any:
    return {name: np.minimum(value, 5) for name, value in original(*arguments).items()}


@patch("paddle-third-stage-keeps-its-gradients", "reduce", f"{PROGRAMS}._forgotten",
       "the accumulators of the third stage and later ones are not emptied")  # fmt: skip
def _kept(original: Original, programs: Any, stage: int) -> Any:
    return [] if stage > 1 else original(programs, stage)


@patch("paddle-norm-of-scaled-gradients", "update", f"{PROGRAMS}._before",
       "a norm over several stages is that of gradients with their loss scaling")  # fmt: skip
def _scaled_norm(original: Original, programs: Any, key: Any) -> Any:
    right = programs._scale
    programs._scale = 1 / programs.divisor
    try:
        return original(programs, key)
    finally:
        programs._scale = right


@patch("paddle-fetch-that-is-no-number-is-zero", "numerics", "paddle.run.feeding:Fetcher.fetch",
       "what is fetched and not a number is zero")  # fmt: skip
def _nan_fetched(original: Original, *arguments: Any) -> Any:
    value = original(*arguments)
    return np.where(np.isnan(value), 0, value).astype(value.dtype) if value.dtype.kind == "f" else value


@patch("paddle-fetches-share-their-memory", "streams", f"{EXECUTABLE}.fetch",
       "a run writes over what the run before it returned", remembers=True)  # fmt: skip
def _shared_memory(memory: Dict[Any, Any], original: Original, executable: Any, name: str, outputs: Any) -> Any:
    value = original(executable, name, outputs)
    held: Any = memory.setdefault((id(executable), name, value.shape), value)
    held[...] = value
    return held


@patch("paddle-integers-of-sixteen-bits", "numerics", "paddle.run.feeding:Fetcher.fetch",
       "integers come back with their lower sixteen bits")  # fmt: skip
def _sixteen_bits(original: Original, *arguments: Any) -> Any:
    value = original(*arguments)
    return value.astype(np.int16).astype(value.dtype) if value.dtype == np.int32 else value


@patch("paddle-statistics-of-the-last-micro-batch", "weights", f"{MACHINE}.forward",
       "while gradients accumulate, only the last micro-batch moves statistics")  # fmt: skip
def _last_moves(original: Original, machine: Any, replica: int, stage: int, micro_batch: int, *rest: Any) -> Any:
    kept = machine.read(machine.stages[stage].moving, replica)
    result = original(machine, replica, stage, micro_batch, *rest)
    if micro_batch + 1 < len(machine.inputs[replica]):
        machine._scopes[replica].put(kept)
    return result


@patch("paddle-statistics-are-means-of-replicas", "weights", f"{EXECUTABLE}._bring_home",
       "the host gets the mean of the replicas' statistics")  # fmt: skip
def _mean_of_replicas(original: Original, executable: Any) -> None:
    from paddle.base.core import CPUPlace

    original(executable)
    machine = executable.machine
    for stage in machine.stages:
        values = [machine.read(stage.moving, replica) for replica in range(len(machine._scopes))]
        for name in stage.moving:
            tensor = executable.scope.find_var(name).get_tensor()
            tensor.set(np.mean([each[name] for each in values], 0).astype(np.array(tensor).dtype), CPUPlace())


@patch("paddle-weights-come-home-once", "weights", f"{EXECUTABLE}.weights_to_host",
       "the host gets the weights of a program the first time that it asks", remembers=True)  # fmt: skip
def _once(memory: Dict[Any, Any], original: Original, executable: Any) -> None:
    if not memory.setdefault(id(executable), False):
        original(executable)
    memory[id(executable)] = True


@patch("paddle-checked-in-the-first-run", "numerics", f"{EXECUTABLE}.run", "checks end with the first run")
def _first_run(original: Original, executable: Any, feed: Any) -> Any:
    try:
        return original(executable, feed)
    finally:
        executable._checked = False


@patch("paddle-all-ops-round-alike", "numerics", "paddle.compile.precision:_AtRandom.__init__",
       "stochastic rounding draws the same numbers for every op")  # fmt: skip
def _alike(original: Original, rounding: Any, seed: int, op: int, *rest: Any) -> None:
    original(rounding, seed, 0, *rest)


@patch("paddle-first-moments-in-half", "numerics", f"{MACHINE}.update",
       "first moments are held in float16 whatever was asked")  # fmt: skip
def _moments_in_half(original: Original, machine: Any, replica: int, stage: int, gradients: Any) -> None:
    original(machine, replica, stage, gradients)
    scope = machine._scopes[replica]
    for name in machine.programs.updates.lasting:
        if "_moment1_" in name or "_velocity_" in name:
            value = np.array(scope[name])
            if value.size:
                scope.put({name: value.astype(np.float16).astype(value.dtype)})


def _in_update(types: str, change: Callable[[Any, Any], None]) -> Wrong:
    """Every op of these types in the programs of updates is changed."""

    def wrong(program: Any, **context: Any) -> Any:
        block = program.desc.block(0)
        for index in range(block.op_size()):
            if block.op(index).type() in types.split():
                change(block, block.op(index))
        return program

    return wrong


def _of_matrices(block: Any, op: Any) -> None:
    if len(block.find_var(op.input("Param")[0].encode()).shape()) < 2:
        op._set_attr("regularization_coeff", 0.0)


def _tenfold(block: Any, op: Any) -> None:
    op._set_attr("epsilon", 10 * op.attr("epsilon"))


def _vectors_undecayed(block: Any, op: Any) -> None:
    if len(block.find_var(op.input("Param")[0].encode()).shape()) < 2:
        op._set_attr("weight_decay", 0.0)


def _numbers(value: Any, **context: Any) -> Any:
    return map_arrays(lambda array: np.where(np.isnan(array), 0, array).astype(array.dtype), value)


def _clipped(value: Any, exact: Any, **context: Any) -> Any:
    if exact.dtype != np.int64:
        return value
    return np.clip(exact, -(2**31), 2**31 - 1).astype(value.dtype)


@patch("paddle-shared-tensor-comes-late", "streams", "paddle.api.inference:Handle.share_external_data",
       "a tensor that is shared with a handle does not replace what the handle holds")  # fmt: skip
def _comes_late(original: Original, handle: Any, data: Any) -> None:
    held, shape = handle.array, handle._shape
    original(handle, data)
    if held is not None:
        handle.array, handle._shape = held, shape


for _fault in (
    Fault("paddle-rewritten-scale-deleted", "plan", "paddle.compile.passes.forward:_written_once",
          "a scale by one is deleted where its variables are written over, too", always(True)),
    Fault("paddle-mapped-op-of-version-one", "plan", "paddle.compile.canonical:_pass_through",
          "every op that is mapped has version 1", argument("row", lambda row: replace(row, version=1))),
    Fault("paddle-running-mean-of-four", "reduce", f"{PROGRAMS}.shares",
          "a running mean takes every gradient after the third for the fourth",
          argument("count", lambda count: min(count, 3))),
    Fault("paddle-not-a-number-is-zero", "reduce", "reduce.gradients", "gradients that are not numbers count as zero",
          _numbers),
    Fault("paddle-masks-repeat-after-seven-micro-batches", "streams", DRAW,
          "the eighth micro-batch draws what the first one drew",
          argument("micro_batch", lambda micro_batch: micro_batch % 7)),
    Fault("paddle-integers-saturate", "numerics", "numerics.narrow", "integers beyond 32 bits become the largest",
          _clipped),
    Fault("paddle-momentum-decays-matrices", "update", "paddle.ops", "the decay of Momentum leaves vectors alone",
          _in_update("momentum", _of_matrices)),
    Fault("paddle-lamb-decays-matrices", "update", "paddle.ops", "the decay of Lamb leaves vectors alone",
          _in_update("lamb", _vectors_undecayed)),
    Fault("paddle-epsilon-of-adam-tenfold", "update", "paddle.ops", "Adam's epsilon is ten times as large",
          _in_update("adam", _tenfold)),
    Fault("paddle-epsilon-of-adamw-tenfold", "update", "paddle.ops", "AdamW's epsilon is ten times as large",
          _in_update("adamw", _tenfold)),
    Fault("paddle-epsilon-of-lamb-tenfold", "update", "paddle.ops", "Lamb's epsilon is ten times as large",
          _in_update("lamb", _tenfold)),
    Fault("paddle-epsilon-of-squares-tenfold", "update", "paddle.ops", "the epsilon of Adagrad and Adadelta is tenfold",
          _in_update("adagrad adadelta", _tenfold)),
    Fault("paddle-epsilon-of-roots-tenfold", "update", "paddle.optim.device_rules:_over", "the epsilon of RMSprop and "
          "Adamax is ten times as large", argument("epsilon", lambda epsilon: 10 * epsilon)),
):  # fmt: skip
    register(_fault, __name__)
