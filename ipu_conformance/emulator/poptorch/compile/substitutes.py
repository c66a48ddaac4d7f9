"""Functions of torch that look at values, or name the device, by what is captured in their place.

A device knows no value while a model is compiled. Where torch itself looks at one to choose a shape or a shortcut, the
capture takes the way that holds for every value.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple
from unittest import mock

import torch
import torch.nn.functional as F
from torch.nn.modules import transformer

from ipu_conformance.emulator.poptorch.ops import ctc
from ipu_conformance.emulator.poptorch.options.diagnostics import Error

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
        yield


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


_SUBSTITUTES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    torch.bincount: _bincount,
    torch.Tensor.bincount: _bincount,
    F.ctc_loss: ctc.ctc_loss,
    torch.ctc_loss: ctc.ctc_loss,
}


def captured(
    function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any]]:
    """The call that stands in the graph for a call of torch: what is on the device is on it already."""
    if _names_device(kwargs.get("device")):
        kwargs = {**kwargs, "device": "cpu"}
    if function is torch.Tensor.to and len(args) > 1 and _names_device(args[1]):
        args = (args[0], "cpu", *args[2:])
    return _SUBSTITUTES.get(function, function), args, kwargs


def _names_device(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == DEVICE
    return isinstance(device, str) and device.split(":")[0] == DEVICE
