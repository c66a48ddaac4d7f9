"""Implementations of the ops that are not ours: SciPy, PyTorch, TensorFlow and Paddle.

The calls of the three frameworks are those of the suite's op table; SciPy's are in ``scipy_rows``. ``defects`` holds
what is known to be wrong with a library. No module here imports a framework before it is asked.
"""

from __future__ import annotations

from typing import Dict

from tests.unit.oracle.witnesses import defects, scipy_rows  # noqa: F401  they fill the witnesses
from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, Row, Witness

WITNESSES: Dict[str, Witness] = {witness.name: witness for witness in (SCIPY, TORCH, TENSORFLOW, PADDLE)}

__all__ = ["PADDLE", "SCIPY", "TENSORFLOW", "TORCH", "WITNESSES", "Row", "Witness"]
