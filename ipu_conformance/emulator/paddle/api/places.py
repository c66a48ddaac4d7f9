"""The IPU as a place: what ``set_device("ipu")``, ``IPUPlace`` and the questions about devices give."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable, Type

from ipu_conformance.emulator.paddle.compile import environment
from ipu_conformance.emulator.paddle.errors import Unavailable


def is_compiled_with_ipu() -> bool:
    """Whether this is an IPU build."""
    return True


class OnIpus:
    """What the place of IPUs is beside a place of the host."""

    def __init__(self) -> None:
        super().__init__()
        if not environment.device_count():
            raise Unavailable("Cannot use IPU because there is no IPU detected on your machine.")

    def __repr__(self) -> str:
        return "Place(ipu)"

    def __str__(self) -> str:
        return repr(self)

    def _equals(self, other: Any) -> bool:
        return isinstance(other, OnIpus)


def ipu_place(core: ModuleType) -> Type[Any]:
    """The class ``IPUPlace``.

    An IPU build keeps the tensors of this place in the host's memory; so does this one, which Paddle's kernels accept
    as the place of the CPU.
    """

    class IPUPlace(OnIpus, core.CPUPlace):  # type: ignore[name-defined]
        """The place of tensors that belong to IPUs."""

    IPUPlace.__module__, IPUPlace.__qualname__ = "paddle.base.libpaddle", "IPUPlace"
    return IPUPlace


def with_ipus(device: ModuleType, core: ModuleType) -> Callable[[], str]:
    """``get_device`` of the module ``device`` that knows IPUs."""
    stock = device.get_device

    @functools.wraps(stock)
    def get_device() -> str:
        # An IPUPlace is a CPUPlace to the kernels, and the stock function asks for that first.
        if _is_set(device):
            return f"ipus:{{0-{core.get_ipu_device_count() - 1}}}"
        return str(stock())

    return get_device


def _is_set(device: ModuleType) -> bool:
    """Whether the device that was set is the IPU."""
    return isinstance(device.framework._current_expected_place_(), OnIpus)
