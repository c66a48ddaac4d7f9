"""The faults of the core, which every front end can have."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Sequence

import numpy as np

from ipu_conformance.emulator.core.plan import Kind
from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, map_arrays, register

# The wrong functions. Arrays are only reshaped, indexed with lists and combined with arithmetic, so that NumPy, torch
# and Paddle arrays all work.


def _slots(value: Any, order: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The array whose slots (its three leading axes) are taken in the order that ``order`` makes of their numbers."""
    leading, rest = tuple(value.shape[:3]), tuple(value.shape[3:])
    count = int(np.prod(leading))
    index = np.broadcast_to(order(np.arange(count).reshape(leading)), leading).reshape(-1).tolist()
    return value.reshape((count, *rest))[index].reshape((*leading, *rest))


def _reordered(order: Callable[[np.ndarray], np.ndarray]) -> Wrong:
    return lambda value, **context: _slots(value, order)


def _as_if(*axes: int) -> Wrong:
    """The slots are numbered as if the leading axes came in another order."""

    def order(numbers: np.ndarray) -> np.ndarray:
        shape = tuple(numbers.shape[axis] for axis in axes)
        return numbers.reshape(shape).transpose(np.argsort(axes))

    return _reordered(order)


def _last_repeats_its_neighbour(numbers: np.ndarray) -> np.ndarray:
    wrong = numbers.copy()
    wrong.flat[-1] = max(numbers.size - 2, 0)
    return wrong


def _last_repeats_the_first(numbers: np.ndarray) -> np.ndarray:
    wrong = numbers.copy()
    wrong.flat[-1] = 0
    return wrong


def _last_two_ticks_swapped(value: np.ndarray, **context: Any) -> np.ndarray:
    ticks = np.unique(value["tick"])[-2:]
    wrong = value.copy()
    wrong["tick"][value["tick"] == ticks[-1]] = ticks[0]
    wrong["tick"][value["tick"] == ticks[0]] = ticks[-1]
    return wrong


def _last_backward_left_out(value: np.ndarray, **context: Any) -> np.ndarray:
    last = value["micro_batch"] == value["micro_batch"].max()
    return value[~(last & np.isin(value["kind"], (Kind.BACKWARD, Kind.RECOMPUTE)))]


def _first_two_micro_batches_swapped(value: np.ndarray, **context: Any) -> np.ndarray:
    wrong = value.copy()
    wrong["micro_batch"][value["micro_batch"] == 0] = 1
    wrong["micro_batch"][value["micro_batch"] == 1] = 0
    return wrong


def _all_on_ipu_zero(value: np.ndarray, **context: Any) -> np.ndarray:
    wrong = value.copy()
    wrong["ipu"] = 0
    return wrong


def _per_replica(change: Callable[[int, int, Any], Any]) -> Wrong:
    """Each replica's gradient becomes ``change(index, replicas, array)``."""

    def wrong(value: Sequence[Any], **context: Any) -> List[Any]:
        return [
            map_arrays(lambda array, index=index: change(index, len(value), array), gradient)
            for index, gradient in enumerate(value)
        ]

    return wrong


def _sum_instead_of_mean(value: Sequence[Any], *, divisor: float, **context: Any) -> List[Any]:
    return [map_arrays(lambda array: array * divisor, gradient) for gradient in value]


def _stale_by_one(value: Any, *, memory: Dict[Any, Any], **context: Any) -> Any:
    """The value handed over the time before; the first of a boundary is right, there being nothing staler."""
    boundary = (context.get("replica"), context.get("stage"), context.get("kind"))
    previous = memory.get(boundary, value)
    memory[boundary] = value
    return previous


def _as_the_first(value: Any, *, memory: Dict[Any, Any], **context: Any) -> Any:
    """What the first model with weights of these shapes was sent, under the names of this one."""
    arrays = [np.array(array) for array in value.values()]
    return dict(zip(value, memory.setdefault(tuple(array.shape for array in arrays), arrays)))


def _with_noise(array: Any) -> Any:
    """Floating-point numbers that are too large by 2**-11 to 2**-10 of themselves, never twice by as much."""
    share = 1 + int.from_bytes(os.urandom(4), "big") / 2**32
    return array * (1 + 2**-11 * share) if "float" in str(array.dtype) else array


def _truncated(value: np.ndarray, *, exact: np.ndarray, **context: Any) -> np.ndarray:
    """Float16 towards zero: the nearest value, one step back where it lies beyond the exact one."""
    with np.errstate(over="ignore"):
        nearest = np.asarray(exact).astype(np.float16)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(np.asarray(exact, dtype=np.float64))
    return np.where(beyond, np.nextafter(nearest, np.float16(0)), nearest)


def _nearest(value: np.ndarray, *, exact: np.ndarray, stochastic: bool = True, **context: Any) -> np.ndarray:
    if not stochastic:
        return value
    limit = float(np.finfo(np.float16).max)
    return np.clip(np.asarray(exact), -limit, limit).astype(np.float16)


def _flushed(value: np.ndarray, **context: Any) -> np.ndarray:
    return np.where(np.abs(value) < np.finfo(np.float16).tiny, np.zeros_like(value), value)


def _exact_of(kind: str) -> Wrong:
    """A value of the dtype kind (``i`` or ``f``) keeps all its bits."""
    return lambda value, exact, **context: exact if np.asarray(exact).dtype.kind == kind else value


def _last_not_copied(value: Mapping[str, Any], *, host: Mapping[str, Any], **context: Any) -> Dict[str, Any]:
    last = max(value)
    return {name: host[name] if name == last else array for name, array in value.items()}


def _without_last_op(graph: Any) -> Any:
    made = set(graph.ops[-1].outputs)
    outputs = tuple(name for name in graph.outputs if name not in made)
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in made}
    return replace(graph, ops=graph.ops[:-1], outputs=outputs, tensors=tensors)


def _replace_last_op(graph: Any, **changes: Callable[[Any], Any]) -> Any:
    last = graph.ops[-1]
    wrong = replace(last, **{field: change(getattr(last, field)) for field, change in changes.items()})
    return replace(graph, ops=(*graph.ops[:-1], wrong))


def _through_float16(array: Any) -> Any:
    return np.asarray(array).astype(np.float16).astype(array.dtype)


for _fault in (
    Fault("micro-batches-out-of-order", "plan", "plan.slots", "the first two micro-batches change places",
          _first_two_micro_batches_swapped),
    Fault("last-backward-left-out", "plan", "plan.slots", "the last micro-batch never goes backwards",
          _last_backward_left_out),
    Fault("last-slot-dropped", "plan", "plan.slots", "the plan's last slot is never executed",
          lambda value, **context: value[:-1]),
    Fault("last-ticks-swapped", "plan", "plan.slots",
          "the last two ticks change their numbers",
          _last_two_ticks_swapped),
    Fault("all-stages-on-ipu-zero", "plan", "plan.slots", "every stage runs on IPU 0", _all_on_ipu_zero),
    Fault("micro-batch-zero-always", "streams", "streams.split", "every slot is fed the first micro-batch",
          _reordered(np.zeros_like)),
    Fault("replica-order-swapped", "streams", "streams.split", "replicas receive their micro-batches in reverse order",
          _reordered(lambda numbers: numbers[:, :, ::-1])),
    Fault("device-iterations-transposed", "streams", "streams.split",
          "samples are dealt out with accumulation before device iterations",
          _as_if(1, 0, 2)),
    Fault("accumulation-and-replicas-transposed", "streams", "streams.split",
          "samples are dealt out with replicas before accumulation",
          _as_if(0, 2, 1)),
    Fault("last-micro-batch-lost", "streams", "streams.split", "the last slot is fed its neighbour's micro-batch",
          _reordered(_last_repeats_its_neighbour)),
    Fault("micro-batch-repeated", "streams", "streams.split", "the last slot is fed the first micro-batch once more",
          _reordered(_last_repeats_the_first)),
    Fault("outputs-in-reverse-iterations", "streams", "streams.join",
          "outputs come back with the last device iteration first",
          _reordered(lambda numbers: numbers[::-1])),
    Fault("outputs-of-replica-zero-only", "streams", "streams.join", "every replica's output is that of replica 0",
          _reordered(lambda numbers: numbers[:, :, :1])),
    Fault("first-accumulated-output-only", "streams", "streams.join",
          "every micro-batch of an accumulation group returns the first one's output",
          _reordered(lambda numbers: numbers[:, :1])),
    Fault("boundary-stale-by-one", "streams", "execute.boundary",
          "a stage receives what was handed over the time before",
          _stale_by_one),
    Fault("boundary-halved", "streams", "execute.boundary", "what a stage hands to the next arrives halved",
          lambda value, **context: map_arrays(lambda array: array * 0.5, value)),
    Fault("last-replica-not-reduced", "reduce", "reduce.gradients",
          "the last replica's gradient is left out of the all-reduce",
          _per_replica(lambda index, count, array: array * 0 if index == count - 1 else array)),
    Fault("first-replica-only", "reduce", "reduce.gradients", "only the first replica's gradient is used",
          _per_replica(lambda index, count, array: array * count if index == 0 else array * 0)),
    Fault("sum-instead-of-mean", "reduce", "reduce.gradients", "gradients are summed where a mean is specified",
          _sum_instead_of_mean),
    Fault("gradient-sign-flipped", "reduce", "reduce.gradients", "the reduced gradient has the wrong sign",
          _per_replica(lambda index, count, array: -array)),
    Fault("round-toward-zero", "numerics", "numerics.round", "float16 values are truncated", _truncated),
    Fault("stochastic-rounding-off", "numerics", "numerics.round", "stochastic rounding rounds to nearest", _nearest),
    Fault("float16-subnormals-flushed", "numerics", "numerics.round", "float16 subnormals become zero", _flushed),
    Fault("float32-instead-of-float16", "numerics", "numerics.round", "float16 values keep the bits of a float32",
          lambda value, *, exact, **context: np.asarray(exact).astype(np.float32)),
    Fault("float16-partials", "numerics", "numerics.partials", "partial sums are held in float16 whatever was asked",
          lambda value, **context: "float16"),
    Fault("int64-not-narrowed", "numerics", "numerics.narrow", "64-bit integers stay 64-bit", _exact_of("i")),
    Fault("float64-not-narrowed", "numerics", "numerics.narrow", "64-bit floats stay 64-bit", _exact_of("f")),
    Fault("weights-not-synced-to-host", "weights", "weights.to_host",
          "copying weights to the host leaves the host's as they were",
          lambda value, *, host, **context: dict(host)),
    Fault("last-weight-not-synced-to-host", "weights", "weights.to_host",
          "one tensor is left out of the copy to the host",
          _last_not_copied),
    Fault("weights-not-sent-to-device", "weights", "weights.to_device",
          "the device keeps its weights when the host sends new ones",
          lambda value, *, device=None, **context: value if device is None else dict(device)),
    Fault("weights-sent-in-float16", "weights", "weights.to_device", "weights lose bits on their way to the device",
          lambda value, **context: map_arrays(_through_float16, value)),
    Fault("first-weights-for-all", "weights", "weights.to_device",
          "a model gets the weights that an earlier one of the same shapes was sent", _as_the_first),
    Fault("weights-sent-with-noise", "weights", "weights.to_device",
          "the weights on the device depend on the moment of the copy",
          lambda value, **context: map_arrays(_with_noise, value)),
    Fault("weights-come-home-with-noise", "weights", "weights.to_host",
          "the weights on the host depend on the moment of the copy",
          lambda value, **context: map_arrays(_with_noise, value)),
    Fault("ir-drop-op", "ir", "ir.graph", "the last op is missing from the graph",
          lambda value, **context: _without_last_op(value)),
    Fault("ir-wrong-stage", "ir", "ir.graph", "the last op is placed one stage later",
          lambda value, **context: _replace_last_op(value, stage=lambda stage: (stage or 0) + 1)),
    Fault("ir-wrong-ipu", "ir", "ir.graph", "the last op is placed one IPU further",
          lambda value, **context: _replace_last_op(value, ipu=lambda ipu: (ipu or 0) + 1)),
):  # fmt: skip
    register(_fault, __name__)


def _other_step(change: Callable[..., Any]) -> Wrong:
    """An update after which the weights are ``change(after, before=…, step=…, replica=…, replicas=…)``."""

    def wrong(original: Callable[..., None], engine: Any, replica: Any, row: Sequence[int]) -> None:
        _, _, stage, _, step, _ = row
        machine, number = engine.machine, replica.number
        before = machine.weights(number, stage)
        original(engine, replica, row)
        after = machine.weights(number, stage)
        machine.set_weights(
            number, stage, change(after, before=before, step=step, replica=number, replicas=engine.plan.replicas)
        )

    return wrong


for _name, _what, _change in (
    ("update-skipped-on-odd-steps", "every second step leaves the weights as they were",
     lambda after, *, before, step, **context: before if step % 2 else after),
    ("update-skipped-on-last-replica", "the last replica never updates its weights",
     lambda after, *, before, replica, replicas, **context: before if replica == replicas - 1 else after),
    ("update-halved", "every step moves the weights half as far as it should",
     lambda after, *, before, **context: map_arrays(lambda new, old: old + (new - old) * 0.5, after, before)),
    ("update-never", "no step moves the weights", lambda after, *, before, **context: before),
    ("update-with-noise", "the weights depend on the moment of the step",
     lambda after, **context: map_arrays(_with_noise, after)),
):  # fmt: skip
    register(Fault(_name, "update", "core.engine:Engine._update", _what, _other_step(_change)), __name__)
