"""Writing a program in PopART's ops."""

from __future__ import annotations

from typing import Any, Mapping

from ipu_conformance.emulator.paddle.passes.compilation import Compilation


def canonicalize(record: Compilation, values: Mapping[str, Any]) -> None:
    """Replace every op of Paddle by ops of PopART."""
    record.custom_ops = tuple(sorted(values.get("custom_ops", ())))
    record.canonical = record.snapshot()
