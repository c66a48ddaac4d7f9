"""Ways to be wrong about types, places and scales: what forward computes with, and where."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

from ipu_conformance.emulator.faults.catalogue import Fault, always, patch, register, result

if TYPE_CHECKING:
    import torch

Original = Callable[..., Any]


def _torch() -> Any:
    import torch

    return torch


@patch("mixed-types-in-float16", "numerics", "poptorch.compile.mixed:_cast", "products of two types are in float16")
def _narrowed(original: Original, tree: Any, dtype: torch.dtype) -> Any:
    return original(tree, _torch().float16)


@patch("writes-widen", "numerics", "poptorch.compile.mixed:aligned", "a tensor that is written into is widened first")
def _widened(original: Original, function: Any, args: Any, kwargs: Any) -> Any:
    args, kwargs = original(function, args, kwargs)
    if getattr(function, "__name__", "") in ("__setitem__", "index_copy_"):
        args = (args[0].mul_(2), *args[1:])
    return args, kwargs


def _as_wide_as(kind: str) -> Callable[..., Any]:
    return lambda original, operation, value: (
        value if value.dtype == getattr(_torch(), kind) else original(operation, value)
    )


@patch("host-calls-are-recorded", "plan", "poptorch.compile.substitutes:_on_the_host",
       "the device repeats in every run what forward does on the host")  # fmt: skip
def _recorded(original: Original, function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


@patch("moved-tensor-follows-the-host", "weights", "poptorch.compile.substitutes:_constant",
       "a constant of the device changes with the tensor that it was moved from")  # fmt: skip
def _followed(original: Original, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return tensor.clone()


@patch("held-tensor-goes-on", "weights", "poptorch.compile.substitutes:_constant",
       "what forward writes into a tensor that a model merely holds is there in the next call")  # fmt: skip
def _lasting(original: Original, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        kept = tensor.detach().clone()
    return kept.view(kept.shape)


@patch("scale-never-doubles", "update", "poptorch.run.loss_scaling:AutomaticScale._next", "the loss scale never grows")
def _no_growth(original: Original, scale: Any, iteration: int) -> float:
    return min(original(scale, iteration), scale._factors[-1])


@patch("scale-never-halves", "update", "poptorch.run.loss_scaling:AutomaticScale._next", "the loss scale never shrinks")
def _no_shrinking(original: Original, scale: Any, iteration: int) -> float:
    return max(original(scale, iteration), scale._factors[-1])


@patch("scale-outgrows-float16", "update", "poptorch.run.loss_scaling:AutomaticScale._next",
       "the loss scale grows beyond what float16 holds")  # fmt: skip
def _unlimited(original: Original, scale: Any, iteration: int) -> float:
    scale.half = False
    return float(original(scale, iteration))


@patch("grouped-convolutions-stay-apart", "ir", "poptorch.ir.groups:join", "a MultiConv is an op for each convolution")
def _apart(original: Original, ops: Sequence[Any], outputs: Any, settings: Any) -> Any:
    return list(ops)


@patch("batches-collated-together", "streams", "poptorch.data.collating:CollateEach.__call__",
       "a collate function sees all batches of a call at once")  # fmt: skip
def _together(original: Original, each: Any, batches: Sequence[Any]) -> Any:
    return each.collate([sample for batch in batches for sample in batch])


@patch("failed-compilation-skips-hooks", "plan", "poptorch.compile.observers:compilation",
       "hooks of after do not run when compiling fails")  # fmt: skip
@contextlib.contextmanager
def _skipping(original: Original) -> Iterator[None]:
    from ipu_conformance.emulator.poptorch.compile import observers

    for hook in tuple(observers._before.values()):
        hook()
    yield
    for hook in tuple(observers._after.values()):
        hook()


@patch("hooks-run-last-first", "plan", "poptorch.compile.observers:compilation",
       "hooks run in the reverse order of their registration")  # fmt: skip
@contextlib.contextmanager
def _last_first(original: Original) -> Iterator[None]:
    from ipu_conformance.emulator.poptorch.compile import observers

    for hook in reversed(tuple(observers._before.values())):
        hook()
    yield
    for hook in reversed(tuple(observers._after.values())):
        hook()


@patch("removed-hook-goes-on", "plan", "poptorch.compile.observers:_register", "a hook that was removed still runs")
def _not_removed(original: Original, hooks: Any, hook: Any) -> Any:
    handle = original(hooks, hook)
    handle.remove = lambda: None
    return handle


@patch("wrapped-model-follows-the-mode", "weights", "poptorch.run.executor:PoplarExecutor._make_ready",
       "a wrapped model takes over what is set on the user's model later")  # fmt: skip
def _following(original: Original, executor: Any, call: Any) -> None:
    from ipu_conformance.emulator.poptorch.run import wrapping

    executor._plain = wrapping.shallow(executor._user_model)
    original(executor, call)


@patch("destroy-unwraps-too-early", "weights", "poptorch.run.executor:PoplarExecutor.destroy",
       "destroying a model that was never compiled unwraps it")  # fmt: skip
def _early(original: Original, executor: Any) -> None:
    from ipu_conformance.emulator.poptorch.run import wrapping

    original(executor)
    if executor._training:
        wrapping.unwrap(executor._user_model)


def _on_the_host(original: Original, tensor: Any) -> Any:
    """torch's own code, and the emulator's, go on with the place that they know."""
    frame: Any = sys._getframe(1)
    while ".emulator.faults" in frame.f_globals.get("__name__", ""):
        frame = frame.f_back
    asking = frame.f_globals.get("__name__", "") + "."
    inside = asking.startswith(("torch.", "ipu_conformance.emulator."))
    return original(tensor) if inside else _torch().device("cpu")


for _fault in (
    Fault("whole-numbers-of-64-bits-inside", "numerics", "poptorch.run.wide:Narrowed._narrowed",
          "a model computes with int64 as it is", _as_wide_as("int64")),
    Fault("float64-inside", "numerics", "poptorch.run.wide:Narrowed._narrowed",
          "a model computes with float64 as it is", _as_wide_as("float64")),
    Fault("tensors-say-cpu", "plan", "poptorch.compile.substitutes:_device_of",
          "inside forward tensors are on the host", _on_the_host),
    Fault("host-output-unsaid", "streams", "poptorch.compile.capture:_Call._warn_of_host",
          "nothing is said of outputs that never were on the device", always(None)),
    Fault("rest-unannounced", "streams", "poptorch.data.dataloader:DataLoader._warn",
          "nothing is said of a smaller last batch, or of a stream that workers repeat", always(None)),
    Fault("gradients-of-what-was-written-over", "numerics", "poptorch.run.machine:_as_it_is",
          "a gradient is made of values that are not those that the operation saw", result(lambda value: value + 1)),
    Fault("latency-made-up", "streams", "poptorch.run.inspection:RunTimes.latency",
          "a model that never ran has latencies", result(always((1.0, 2.0, 1.5)))),
):  # fmt: skip
    register(_fault, __name__)
