"""Implementations of the ops that are not ours: SciPy, PyTorch, TensorFlow and Paddle, each as a table of rows.

A row is ``row(module, *inputs, **attributes) -> output(s)`` on the witness's own tensors; ``module`` is scipy, torch,
tensorflow or paddle, so that no file of rows imports a framework. A row raises ``Unsupported`` for attributes that the
witness cannot express. The files of this package hold the rows, one file per family.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Dict

from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH, Row, Unsupported, Witness

WITNESSES: Dict[str, Witness] = {witness.name: witness for witness in (SCIPY, TORCH, TENSORFLOW, PADDLE)}

for _family in iter_modules(__path__):
    if _family.name != "__main__":
        import_module(f"{__name__}.{_family.name}")

__all__ = ["PADDLE", "SCIPY", "TENSORFLOW", "TORCH", "WITNESSES", "Row", "Unsupported", "Witness"]
