"""The IPU as a place: what ``set_device("ipu")``, ``IPUPlace`` and the questions about devices give."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Type

from ipu_conformance.emulator.faults.decisions import paddle_strategy as decide
from ipu_conformance.emulator.paddle import environment
from ipu_conformance.emulator.paddle.errors import Unavailable
from ipu_conformance.targets import EMULATED_IPUS


def device_count() -> int:
    """How many IPUs a program may attach to; the IPU model is one device."""
    return decide("devices", 1 if environment.uses_model() else EMULATED_IPUS)


def ipu_place(core: ModuleType) -> Type[Any]:
    """The class ``IPUPlace``.

    An IPU build keeps the tensors of this place in the host's memory; so does this one, which Paddle's kernels accept
    as the place of the CPU.
    """

    class IPUPlace(core.CPUPlace):  # type: ignore[name-defined]
        """The place of tensors that belong to IPUs."""

        def __init__(self) -> None:
            super().__init__()
            if not device_count():
                raise Unavailable("Cannot use IPU because there is no IPU detected on your machine.")

        def __repr__(self) -> str:
            return decide("place", "Place(ipu)")

        __str__ = __repr__

        def _equals(self, other: Any) -> bool:
            return decide("places equal", isinstance(other, IPUPlace))

    IPUPlace.__module__, IPUPlace.__qualname__ = "paddle.base.libpaddle", "IPUPlace"
    return IPUPlace


def change_devices(paddle: Any) -> None:
    """Let every module of Paddle that holds the stock ``IPUPlace`` hold ours, and ``get_device`` know it."""
    core: Any = paddle.base.core
    stock: Any = core.libpaddle.IPUPlace
    for module in (paddle, paddle.base, paddle.framework):
        if module.IPUPlace is stock:
            module.IPUPlace = core.IPUPlace
    device: Any = paddle.device
    if hasattr(device.get_device, "__wrapped__"):
        return
    stock_get_device = device.get_device

    @functools.wraps(stock_get_device)
    def get_device() -> str:
        # An IPUPlace is a CPUPlace to the kernels, and the stock function asks for that first.
        if decide("device is an ipu", isinstance(device.framework._current_expected_place_(), core.IPUPlace)):
            return f"ipus:{{0-{core.get_ipu_device_count() - 1}}}"
        return str(stock_get_device())

    device.get_device = paddle.get_device = get_device
