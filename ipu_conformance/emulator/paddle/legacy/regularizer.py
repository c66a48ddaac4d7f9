"""``paddle.fluid.regularizer``: decay by its old parameters."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.paddle.legacy import table
from ipu_conformance.emulator.paddle.legacy.table import Old

_FUNCTIONS = table.functions(
    Old(name, "regularization_coeff=0.0", f"regularizer.{kind}", {"regularization_coeff": "coeff"})
    for kind in ("L1Decay", "L2Decay")
    for name in (kind, f"{kind}Regularizer")
)


def __getattr__(name: str) -> Any:
    return _FUNCTIONS[name] if name in _FUNCTIONS else table.missing("paddle.fluid.regularizer", name)
