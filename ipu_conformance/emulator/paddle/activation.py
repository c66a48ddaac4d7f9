"""Adds to the stock wheel's modules what an IPU build has; each function may be called again on the same module."""

from __future__ import annotations

import functools
from typing import Any

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults.decisions import paddle_strategy as decide
from ipu_conformance.emulator.paddle.api import places
from ipu_conformance.emulator.paddle.api.strategy import Strategy


def change_core(core: Any) -> None:
    """Let ``paddle.base.core`` answer as in an IPU build; Paddle itself is not complete yet."""
    if getattr(core, "IpuStrategy", None) is Strategy:
        return
    core.is_compiled_with_ipu = lambda: decide("ipu build", True)
    core.get_ipu_device_count = places.device_count
    core.IPUPlace = places.ipu_place(core)
    core.IpuStrategy = Strategy
    core.get_pass = _with_passes_of_the_ipu(core.get_pass)


def _with_passes_of_the_ipu(stock: Any) -> Any:
    @functools.wraps(stock)
    def get_pass(name: str) -> Any:
        from ipu_conformance.emulator.paddle.compile import passes

        return passes.get(name) if name in passes.PASSES else stock(name)

    return get_pass


def change_paddle(paddle: Any) -> None:
    """Let the finished ``paddle`` package run compiled programs on the emulator."""
    from ipu_conformance.emulator.paddle.api import custom_ops, dynamic, inference, model_runtime
    from ipu_conformance.emulator.paddle.compile import precision, sessions
    from ipu_conformance.emulator.paddle.run import executor

    places.change_devices(paddle)
    executor.install(paddle)
    model_runtime.install(paddle)
    precision.install(paddle)
    sessions.install(paddle)
    dynamic.install(paddle)
    inference.install(paddle)
    custom_ops.install(paddle)
    faults.load("paddle")
    faults.activate_from_environment()
