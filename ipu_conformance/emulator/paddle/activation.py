"""Adds to the stock wheel's modules what an IPU build has; each function may be called again on the same module."""

from __future__ import annotations

from types import ModuleType


def change_core(core: ModuleType) -> None:
    """Let ``paddle.base.core`` answer as in an IPU build."""
    core.is_compiled_with_ipu = lambda: True  # type: ignore[attr-defined]


def change_paddle(paddle: ModuleType) -> None:
    """Let the finished ``paddle`` package run compiled programs on the emulator."""
