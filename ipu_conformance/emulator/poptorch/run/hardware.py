"""What a program asks about the machine that it runs on.

There is no hardware behind the emulator, and it does not pretend: ``ipuHardwareIsAvailable`` is False, and
``ipuHardwareVersion`` raises the error of a machine without IPUs.
"""

from __future__ import annotations

import itertools

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ipu_conformance.emulator.poptorch.compile import capture
from ipu_conformance.emulator.poptorch.options.diagnostics import createPoptorchError

_numbers = WeakTensorKeyDictionary()
_next_number = itertools.count(1)


def isRunningOnIpu() -> bool:
    """Whether this code runs while a model is built for the IPU; the same code on the host sees False."""
    return capture.is_capturing()


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Whether that many IPUs of real hardware are there: never on the emulator."""
    _check_count(num_ipus)
    return False


def ipuHardwareVersion() -> int:
    """The generation of the IPUs that are there; without hardware an error."""
    raise createPoptorchError("No IPU hardware available: the emulator has none")


def getIpuTensorId(tensor: torch.Tensor) -> int:
    """The number of a tensor on the device, the same each time while the model is built."""
    if not isinstance(tensor, torch.Tensor):
        raise createPoptorchError(f"{type(tensor).__name__} was given: only tensors have a number on the device")
    if not capture.is_capturing():
        raise createPoptorchError("the tensor is not on the IPU: ask for its number inside a model's forward")
    if tensor not in _numbers:
        _numbers[tensor] = next(_next_number)
    return int(_numbers[tensor])


def _check_count(num_ipus: int) -> None:
    if num_ipus < 1:
        raise AssertionError(f"{num_ipus} IPUs were asked for: ask for 1 or more")
