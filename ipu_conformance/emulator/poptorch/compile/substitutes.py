"""Functions of torch that look at values, or name the device, by what is captured in their place.

A device knows no value while a model is compiled. Where torch itself looks at one to choose a shape or a shortcut, the
capture takes the way that holds for every value.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple
from unittest import mock

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import transformer
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ipu_conformance.emulator.poptorch.compile import mixed
from ipu_conformance.emulator.poptorch.ops import ctc
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.refusals import ops as refusals

DEVICE = "ipu"


@contextlib.contextmanager
def values_unknown() -> Iterator[None]:
    """Inside the block torch's own modules ask no tensor for its values."""
    with contextlib.ExitStack() as stack:
        # A mask that happens to be causal is applied as any other mask is.
        stack.enter_context(mock.patch.object(transformer, "_detect_is_causal_mask", _told_to_be_causal))
        stack.enter_context(mock.patch.object(torch.distributions.Distribution, "_validate_args", False))
        shortcut = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, shortcut)
        stack.enter_context(mock.patch.object(FakeTensor, "device", property(_device_of)))
        yield


_place_of = FakeTensor.device.fget


def _device_of(tensor: FakeTensor) -> torch.device:
    """Where a tensor without values is: on the device to the user's code, on the host to torch's own."""
    asking = sys._getframe(1).f_globals.get("__name__", "") + "."
    inside = asking.startswith(("torch.", "ipu_conformance.emulator."))
    place: torch.device = _place_of(tensor)
    return place if inside else torch.device(DEVICE, 0)


def _told_to_be_causal(mask: Optional[torch.Tensor], is_causal: Optional[bool] = None, size: Any = None) -> bool:
    return bool(is_causal)


def _bincount(input: torch.Tensor, weights: Optional[torch.Tensor] = None, minlength: int = 0) -> torch.Tensor:
    """How often each number below ``minlength`` occurs; a larger one has no place to be counted in."""
    if minlength < 1:
        raise Error(
            "torch.bincount was called without minlength: the length of its result would depend on the values of a "
            "tensor, which are known on the device only"
        )
    numbers = torch.arange(minlength, dtype=input.dtype)
    found = input.reshape(1, -1) == numbers.reshape(-1, 1)
    if weights is None:
        return found.sum(1)
    return torch.where(found, weights.reshape(1, -1), torch.zeros((), dtype=weights.dtype)).sum(1)


def _interpolate(
    input: torch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", **more: Any
) -> Any:
    """Upsampling by a mode that the device has."""
    refusals.UPSAMPLING(mode=mode)
    return F.interpolate(input, size, scale_factor, mode, **more)


_SUBSTITUTES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    torch.bincount: _bincount,
    torch.Tensor.bincount: _bincount,
    F.ctc_loss: ctc.ctc_loss,
    torch.ctc_loss: ctc.ctc_loss,
    F.interpolate: _interpolate,
    # The tracer does not see what ``data`` gives; on a device it is the same tensor without a gradient.
    torch.Tensor.data.__get__: torch.Tensor.detach,
}

_MOVES = frozenset({torch.Tensor.to, torch.Tensor.copy_, torch.Tensor.type_as})
"""Functions through which a tensor of the host reaches the device."""


def captured(
    function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any]]:
    """The call that stands in the graph for a call of torch: what is on the device is on it already."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    host = [tensor for tensor in tensors if not isinstance(tensor, FakeTensor)]
    moved = function is torch.Tensor.to and (_names_device(args[1:2]) or _names_device(kwargs.get("device")))
    if host and moved:
        return _constant, (host[0], *_without_device(args[1:])), {**kwargs, "device": None}
    if host and len(host) == len(tensors):
        # A call without a tensor of the device is the host's own business, and done at once.
        return _on_the_host, (function, args, kwargs), {}
    if host and function not in _MOVES:
        refusals.HOST_TENSOR(tensor=host[0])
    if _names_device(kwargs.get("device")):
        kwargs = {**kwargs, "device": "cpu"}
    if moved:
        args = (args[0], *_without_device(args[1:]))
    args, kwargs = mixed.aligned(function, args, kwargs)
    return _SUBSTITUTES.get(function, function), args, kwargs


def _on_the_host(function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    with _disable_current_modes():
        return function(*args, **kwargs)


def _constant(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The values that a tensor of the host has now, as a constant of the device."""
    with _disable_current_modes():
        kept = tensor.detach().clone()
    return torch.Tensor.to(kept.clone(), *args, **{name: value for name, value in kwargs.items() if name != "device"})


def _without_device(args: Tuple[Any, ...]) -> Tuple[Any, ...]:
    return ("cpu", *args[1:]) if _names_device(args[:1]) else args


def _names_device(device: Any) -> bool:
    if isinstance(device, tuple):
        return bool(device) and _names_device(device[0])
    if isinstance(device, torch.device):
        return device.type == DEVICE
    return isinstance(device, str) and device.split(":")[0] == DEVICE
