"""Writing a program in PopART's ops."""

from __future__ import annotations

from typing import Any, Mapping

from ipu_conformance.emulator.paddle.compile import canonical
from ipu_conformance.emulator.paddle.compile.passes.compilation import Compilation


def canonicalize(record: Compilation, values: Mapping[str, Any]) -> None:
    """Replace every op of Paddle's by ops of PopART's; custom ops pass through under their own names."""
    record.custom_ops = tuple(sorted(values.get("custom_ops", ())))
    rows = [row for row in record.strategy.custom_ops if row.paddle_op in record.custom_ops]
    record.written = canonical.translated(record.program, rows)
    canonical.write(record.program, record.written)
