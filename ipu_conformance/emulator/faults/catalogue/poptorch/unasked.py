"""Ways to be wrong about what programs rely on without asking: weights by name, types, defaults, what is left alone."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

from ipu_conformance.emulator.faults.catalogue import patch

EXECUTOR = "poptorch.run.executor"
CAPTURED = "poptorch.compile.substitutes:captured"
Original = Callable[..., Any]
Call = Tuple[Any, Any, Any]


@patch("copied-without-a-gradient", "plan", CAPTURED, "what copy_ writes into a tensor gets no gradient")
def _detached(original: Original, function: Any, args: Any, kwargs: Any) -> Call:
    import torch

    if function is torch.Tensor.copy_:
        args = (args[0], args[1].detach(), *args[2:])
    return original(function, args, kwargs)


@patch("bags-are-sums", "numerics", CAPTURED, "bags of embeddings are added up whatever is asked for")
def _added_up(original: Original, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Call:
    return original(function, args, {**kwargs, "mode": "sum"} if "offsets" in kwargs or "mode" in kwargs else kwargs)


@patch("weighed-count-is-a-count", "numerics", CAPTURED, "a bincount of weights counts numbers")
def _unweighed(original: Original, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Call:
    import torch

    if function in (torch.bincount, torch.Tensor.bincount):
        args, kwargs = args[:1], {name: value for name, value in kwargs.items() if name != "weights"}
    return original(function, args, kwargs)


@patch("anchored-weight-is-the-first", "streams", "poptorch.compile.compiled:_find",
       "a weight that is anchored by its name is the first of the model")  # fmt: skip
def _first_weight(original: Original, long_name: str, names: Mapping[str, Any]) -> str:
    found = original(long_name, names)
    return next(name for name in names if name.endswith(".weight")) if found.endswith(".weight") else found


@patch("stream-without-its-last", "streams", "poptorch.data.dataloader:DataLoader.__iter__",
       "the last element of a stream that makes its own batches is lost")  # fmt: skip
def _but_one(original: Original, loader: Any) -> Iterator[Any]:
    elements = original(loader)
    if loader._combined_batch_size is not None:
        yield from elements
        return
    held = list(itertools.islice(elements, 1))
    for element in elements:
        yield held.pop()
        held.append(element)


@patch("terminated-loader-goes-on", "streams", "poptorch.data.asynchronous:AsynchronousDataAccessor.terminate",
       "a loader that was ended still gives elements")  # fmt: skip
def _endless(original: Original, accessor: Any) -> None:
    pass


@patch("members-are-the-first-of-their-kind", "plan", "poptorch.options.files:_with_members",
       "a member that default options name is the first of its enumeration")  # fmt: skip
def _first_member(original: Original, value: Any) -> Any:
    import enum

    found = original(value)
    return next(iter(type(found))) if isinstance(found, enum.Enum) else found


@patch("half-accumulator-adds-up", "update", "poptorch.optim.update:_running_mean",
       "a float16 accumulator holds the sum of gradients, which is divided afterwards")  # fmt: skip
def _divided_afterwards(original: Original, settings: Any, options: Any) -> bool:
    return bool(options.Training._reduction_strategy_set) and original(settings, options)


@patch("wrapped-options-say-default", "plan", f"{EXECUTOR}:_resolved",
       "the options of a wrapped model do not tell which mode Default stands for")  # fmt: skip
def _unresolved(original: Original, options: Any, training: bool) -> Any:
    options._freeze()
    copied = options.clone()
    copied._freeze()
    return copied


@patch("slice-of-whole-steps", "streams", "poptorch.ops.computed:_places",
       "what a slice has beyond a multiple of its step is left out")  # fmt: skip
def _whole_steps(original: Original, start: Any, size: int, step: int, length: int) -> Any:
    return original(start, max(step, size // step * step), step, length)


@patch("frozen-weights-move", "update", "poptorch.run.machine:TorchMachine.end",
       "weights that need no gradient are halved by every run")  # fmt: skip
def _halved(original: Original, machine: Any) -> None:
    for weights in machine.replica_weights:
        for tensor in weights.values():
            if tensor.is_floating_point() and not tensor.requires_grad:
                tensor.data.mul_(0.5)
    original(machine)


@patch("session-options-are-shared", "plan", "poptorch.beside.popart:SessionOptions.__init__",
       "the settings of one session's options are those of all", remembers=True)  # fmt: skip
def _shared(memory: Dict[str, Any], original: Original, options: Any) -> None:
    original(options)
    options.executionPhaseSettings = memory.setdefault("phases", options.executionPhaseSettings)


@patch("session-options-do-not-outline", "plan", "poptorch.beside.popart:SessionOptions.__init__",
       "the options of a session outline nothing by themselves")  # fmt: skip
def _not_outlined(original: Original, options: Any) -> None:
    original(options)
    options.enableOutlining = False


@patch("names-are-taken-by-position", "streams", "poptorch.run.calls:Call.with_tensors",
       "a tensor that is passed by name alone is the last one by position")  # fmt: skip
def _by_position(original: Original, call: Any, tensors: Any) -> Any:
    import torch

    args, kwargs = original(call, tensors)
    last = next((arg for arg in reversed(args) if isinstance(arg, torch.Tensor)), None)
    return args, {name: value if last is None else last for name, value in kwargs.items()}
