"""Ways to be wrong at edges: the last of a kind, rare settings, what is shared, and what is left out once."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np

from ipu_conformance.emulator.faults.catalogue import Fault, patch, register
from ipu_conformance.emulator.faults.catalogue.paddle.lasting import _in_update

EXECUTABLE = "paddle.run.executable:Executable"
MACHINE = "paddle.run.machine:PaddleMachine"
PROGRAMS = "paddle.compile.slot_programs:Programs"
FEEDER = "paddle.run.feeding:Feeder"
Original = Callable[..., Any]


@patch("paddle-fourth-replica-keeps-its-gradients", "reduce", f"{MACHINE}.reduce",
       "the sum of gradients reaches three replicas", remembers=True)  # fmt: skip
def _three(memory: Dict[Any, Any], original: Original, machine: Any, stage: int, gradients: Any) -> Any:
    own = [{name: np.array(value) for name, value in tensors.items()} for tensors in gradients]
    result = original(machine, stage, gradients)
    for replica in range(3, len(gradients)):
        machine._scopes[replica].put({
            machine.programs.reduced(weight): value * len(gradients) for weight, value in own[replica].items()
        })  # fmt: skip
    return result


@patch("paddle-nested-feed-transposed", "streams", f"{FEEDER}._cut",
       "a feed with an axis of micro-batches is read with the samples first")  # fmt: skip
def _transposed(original: Original, feeder: Any, spec: Any, held: Any) -> Any:
    if held.ndim > len(spec.shape) and held.ndim > 1:
        held = np.ascontiguousarray(np.swapaxes(held, 0, 1)).reshape(held.shape)
    return original(feeder, spec, held)


@patch("paddle-large-feed-of-the-first", "streams", f"{FEEDER}.deal",
       "from the ninth micro-batch on, feeds are those of the eighth")  # fmt: skip
def _eighth(original: Original, feeder: Any, feed: Any) -> Any:
    dealt = original(feeder, feed)
    return [[fed[min(place, 7)] for place in range(len(fed))] for fed in dealt]


@patch("paddle-clone-shares-its-outputs", "streams", "paddle.api.inference:Predictor.clone",
       "a clone of a predictor has the outputs of its original")  # fmt: skip
def _shares(original: Original, predictor: Any) -> Any:
    other = original(predictor)
    other._outputs = predictor._outputs
    return other


@patch("paddle-rate-of-the-schedule-lags", "update", "paddle.run.executor:_schedule",
       "a scheduler's rate reaches the device one run late", remembers=True)  # fmt: skip
def _lags(memory: Dict[Any, Any], original: Original, scheduler: Any, scope: Any) -> None:
    rate = scheduler()
    before, memory[id(scheduler)] = memory.get(id(scheduler), rate), rate
    original(type("Late", (), {"_var_name": scheduler._var_name, "__call__": lambda self: before})(), scope)


@patch("paddle-fifth-micro-batch-forgotten", "reduce", f"{MACHINE}.backward",
       "of more than four accumulated micro-batches the fifth has no gradient in early stages")  # fmt: skip
def _fifth(original: Original, machine: Any, replica: int, stage: int, micro_batch: int, *rest: Any) -> Any:
    names = [machine.programs.sources[stage][weight] for weight in machine.programs.sources[stage]
             if weight in machine.programs.accumulated]  # fmt: skip
    scope = machine._scopes[replica]
    held = {name: np.array(scope[name]) for name in names} if micro_batch == 4 else {}
    result = original(machine, replica, stage, micro_batch, *rest)
    scope.put({name: value for name, value in held.items() if value.size})
    return result


@patch("paddle-sums-of-four-replicas", "reduce", f"{PROGRAMS}._reduce",
       "of more than four replicas the first four are added up")  # fmt: skip
def _four(original: Original, programs: Any, key: Any) -> Any:
    replicas, programs.replicas = programs.replicas, min(programs.replicas, 4)
    try:
        ops, kept = original(programs, key)
    finally:
        programs.replicas = replicas
    return ops, [*kept, *(programs.met(weight, replica) for weight in programs.sources[key.stage]
                          for replica in range(4, replicas))]  # fmt: skip


@patch("paddle-first-of-many-replicas-lost", "reduce", f"{MACHINE}.reduce",
       "of more than five replicas the last counts for the first too")  # fmt: skip
def _first_lost(original: Original, machine: Any, stage: int, gradients: Any) -> Any:
    return original(machine, stage, [gradients[-1], *gradients[1:]] if len(gradients) > 5 else gradients)


@patch("paddle-late-fetch-of-the-run-before", "streams", "paddle.run.executable:Executable.fetch",
       "from the third on, what is fetched is of the run before", remembers=True)  # fmt: skip
def _run_before(memory: Dict[Any, Any], original: Original, executable: Any, name: str, outputs: Any) -> Any:
    value = original(executable, name, outputs)
    if list(executable.fetches).index(name) < 2:
        return value
    before, memory[executable.number, name] = memory.get((executable.number, name), value), value.copy()
    return before


@patch("paddle-outputs-of-a-layer-stale", "streams", "paddle.run.dynamic:_run",
       "the third call of a dynamic model gives what the second gave", remembers=True)  # fmt: skip
def _stale(memory: Dict[Any, Any], original: Original, program: Any, feed: Any) -> Any:
    calls = memory.setdefault(id(program), [])
    calls.append(original(program, feed))
    return calls[1] if len(calls) == 3 else calls[-1]


def _epsilon(block: Any, op: Any) -> None:
    op._set_attr("epsilon", op.attr("epsilon") / 4)


def _unbiased(block: Any, op: Any) -> None:
    op._set_attr("momentum", 0.99 * op.attr("momentum"))


for _fault in (
    Fault("paddle-statistics-of-shorter-memory", "weights", "paddle.ops", "statistics forget one per cent faster",
          _in_update("batch_norm", _unbiased)),
    Fault("paddle-layer-norm-epsilon-quartered", "numerics", "paddle.ops", "layer_norm's epsilon is a quarter",
          _in_update("layer_norm layer_norm_grad", _epsilon)),
    Fault("paddle-group-norm-epsilon-quartered", "numerics", "paddle.ops", "group_norm's epsilon is a quarter",
          _in_update("group_norm group_norm_grad instance_norm instance_norm_grad", _epsilon)),
):  # fmt: skip
    register(_fault, __name__)


@patch("paddle-fetched-feed-of-the-first", "streams", f"{EXECUTABLE}.fetch",
       "a fed variable that is fetched has the values of the first micro-batch")  # fmt: skip
def _first_fed(original: Original, executable: Any, name: str, outputs: Any) -> Any:
    fed = name in executable.feeds
    return original(executable, name, [[run[0]] * len(run) for run in outputs] if fed else outputs)


@patch("paddle-tensors-of-the-first-fetch", "streams", "paddle.run.executor:run",
       "without return_numpy every fetch has the values of the first")  # fmt: skip
def _first_fetch(original: Original, *arguments: Any, return_numpy: bool, **settings: Any) -> Any:
    results = original(*arguments, return_numpy=return_numpy, **settings)
    return results if return_numpy else results[:1] * len(results)
