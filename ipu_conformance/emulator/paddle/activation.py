"""Adds to the stock wheel's modules what an IPU build has; each function may be called again on the same module."""

from __future__ import annotations

import functools
from typing import Any

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.paddle import places
from ipu_conformance.emulator.paddle.strategy import Strategy
from ipu_conformance.emulator.paddle.strategy_rules import decide


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
        from ipu_conformance.emulator.paddle import passes

        return passes.get(name) if name in passes.PASSES else stock(name)

    return get_pass


def change_paddle(paddle: Any) -> None:
    """Let the finished ``paddle`` package run compiled programs on the emulator."""
    from ipu_conformance.emulator.paddle import (
        custom_ops,
        dynamic,
        faults_execution,
        faults_host,
        faults_ops,
        faults_passes,
        faults_strategy,
        inference,
        model_runtime,
        precision,
        runtime,
        sessions,
    )

    places.change_devices(paddle)
    runtime.install(paddle)
    model_runtime.install(paddle)
    precision.install(paddle)
    sessions.install(paddle)
    dynamic.install(paddle)
    inference.install(paddle)
    custom_ops.install(paddle)
    # Whoever names a fault in the environment may name any: all have to be registered by now.
    assert all((faults_execution, faults_host, faults_ops, faults_passes, faults_strategy))
    faults.activate_from_environment()
