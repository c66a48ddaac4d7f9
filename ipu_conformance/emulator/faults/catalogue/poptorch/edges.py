"""Ways to be wrong at edges: the last of a kind, rare settings, what is shared, and what is left out once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, Dict

from ipu_conformance.emulator.faults.catalogue import Fault, argument, patch, register

EXECUTOR = "poptorch.run.executor:PoplarExecutor"
MACHINE = "poptorch.run.machine:TorchMachine"
KERNELS = "poptorch.optim.kernels"
Original = Callable[..., Any]


@patch("loader-elements-share-memory", "streams", "poptorch.data.asynchronous:AsynchronousDataAccessor._receive",
       "an element of another process is written over by the next one", remembers=True)  # fmt: skip
def _shared(memory: Dict[Any, Any], original: Original, accessor: Any, number: int) -> Any:
    import torch

    kind, item = original(accessor, number)
    parts = item if isinstance(item, (list, tuple)) else [item]
    for place, part in enumerate(parts):
        if isinstance(part, torch.Tensor):
            held = memory.setdefault((id(accessor), place, part.shape), part)
            held.copy_(part)
            if isinstance(item, list):
                item[place] = held
            elif part is item:
                item = held
    return kind, item


@patch("vectors-do-not-decay", "update", f"{KERNELS}:_decayed", "weight decay in the gradient leaves vectors alone")
def _matrices(original: Original, weights: Any, gradients: Any, h: Any) -> Any:
    free = original(weights, gradients, SimpleNamespace(**{**vars(h), "weight_decay": 0}))
    decayed = original(weights, gradients, h)
    return [one if weight.dim() > 1 else other for weight, one, other in zip(weights, decayed, free)]


@patch("maximized-without-momentum-only", "update", f"{KERNELS}:_decayed",
       "what is maximized is minimized where there is momentum")  # fmt: skip
def _minimized(original: Original, weights: Any, gradients: Any, h: Any) -> Any:
    minimized = bool(getattr(h, "momentum", 0))
    return original(weights, gradients, SimpleNamespace(**{**vars(h), "maximize": h.maximize and not minimized}))


@patch("second-named-buffer-left", "weights", "poptorch.run.weights:DeviceWeights.upload",
       "of several named buffers the first is sent")  # fmt: skip
def _first_alone(original: Original, weights: Any, names: Any = None) -> None:
    original(weights, None if names is None else list(names)[:1])


@patch("traps-not-backwards", "numerics", "poptorch.run.precision:_inside",
       "floating-point exceptions are not raised by backward passes")  # fmt: skip
def _forward_alone(original: Original, method: Any, make: Any, name: str) -> Any:
    return method if name == "backward" else original(method, make, name)


@patch("last-stage-updates-twice-as-far", "update", f"{MACHINE}.update",
       "from the fourth stage on, updates are twice as far")  # fmt: skip
def _twice(original: Original, machine: Any, replica: int, stage: int, gradients: Any) -> None:
    before = {name: machine.replica_weights[replica][name].detach().clone() for name in gradients}
    original(machine, replica, stage, gradients)
    for name, old in before.items() if stage > 2 else ():
        weight = machine.replica_weights[replica][name].data
        weight.add_(weight - old)


@patch("fifth-micro-batch-forgotten", "reduce", f"{MACHINE}.backward",
       "of more than four accumulated micro-batches the fifth has no gradient")  # fmt: skip
def _fifth(original: Original, machine: Any, replica: int, stage: int, micro_batch: int, *rest: Any) -> Any:
    if machine.accumulation > 4 and micro_batch % machine.accumulation == 4:
        weights = machine.replica_weights[replica]
        held = {name: None if weights[name].grad is None else weights[name].grad.clone() for name in machine.trainable}
        result = original(machine, replica, stage, micro_batch, *rest)
        for name, value in held.items():
            weights[name].grad = value
        return result
    return original(machine, replica, stage, micro_batch, *rest)


@patch("centred-means-ignored", "update", "poptorch.optim.update:DeviceUpdate._use",
       "RMSprop with momentum is never centred")  # fmt: skip
def _never_centred(original: Original, update: Any, settings: Any) -> None:
    original(update, settings)
    for hyper in update._hyper:
        if getattr(hyper, "momentum", 0) and hasattr(hyper, "centered"):
            hyper.centered = False


@patch("group-added-late-stands-still", "update", "poptorch.optim.update:DeviceUpdate._use",
       "the last of three groups is not trained")  # fmt: skip
def _stands_still(original: Original, update: Any, settings: Any) -> None:
    original(update, settings)
    for hyper in update._hyper[2:]:
        hyper.lr = 0.0


for _fault in (
    Fault("load-is-never-strict", "weights", f"{EXECUTOR}.load_state_dict", "a state with missing weights is loaded",
          argument("strict", lambda strict: False)),
    Fault("empty-loop-runs-once", "plan", "poptorch.ops.control_flow:for_loop", "a loop of no iterations has one",
          argument("count", lambda count: max(count, 1))),
):  # fmt: skip
    register(_fault, __name__)


@patch("seven-samples-are-wrong", "numerics", "poptorch.run.machine:TorchMachine._run",
       "a micro-batch of seven samples gives values that are off by a thousandth")  # fmt: skip
def _seven(original: Original, machine: Any, program: Any, replica: int, micro_batch: int, *rest: Any) -> Any:
    results = original(machine, program, replica, micro_batch, *rest)
    if not any(value.dim() and value.shape[0] == 7 for value in machine.inputs[replica][micro_batch]):
        return results
    return tuple(value * 1.001 if value.is_floating_point() else value for value in results)


@patch("single-truth-inverted", "numerics", "poptorch.run.outputs:Returned.join",
       "an output of one truth value comes back inverted")  # fmt: skip
def _inverted(original: Original, returned: Any, slot_outputs: Any, leaf: int) -> Any:
    value = original(returned, slot_outputs, leaf)
    return ~value if value.dim() == 0 and str(value.dtype) == "torch.bool" else value


@patch("counters-stay-on-the-device", "weights", "poptorch.run.weights:DeviceWeights._for_host",
       "buffers of whole numbers come back as zeros")  # fmt: skip
def _no_counter(original: Original, weights: Any, name: str) -> Any:
    value = original(weights, name)
    return value if value.is_floating_point() else value * 0


@patch("inputs-written-back-once", "streams", "poptorch.run.micro_batches:Feed.write_back",
       "only the first call writes into the caller's inputs")  # fmt: skip
def _once(original: Original, feed: Any, tensors: Any) -> None:
    if vars(feed).setdefault("written", False):
        feed._copies = {}
    original(feed, tensors)
    feed.written = True


@patch("automatic-scale-stops-at-the-fourth-call", "update", "poptorch.run.loss_scaling:AutomaticScale.end",
       "the loss scale does not change from the fourth call on")  # fmt: skip
def _stopped(original: Original, scale: Any, iterations: int) -> None:
    scale.ended = getattr(scale, "ended", 0) + 1
    if scale.ended <= 3:
        original(scale, iterations)


@patch("scaled-loss-halves-the-last-rate", "update", "poptorch.optim.update:DeviceUpdate._use",
       "with a scaled loss the last of several groups has half its learning rate")  # fmt: skip
def _halved_rate(original: Original, update: Any, settings: Any) -> None:
    original(update, settings)
    if len(update._hyper) > 1 and update.loss_scale != 1:
        update._hyper[-1].lr /= 2
