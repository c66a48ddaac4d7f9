"""The sequences and weights that recurrent layers are given, and the comparison with the oracle's."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np

from ipu_conformance import check
from ipu_conformance.oracle.recurrence import Sequences
from ipu_conformance.oracle.tape import Specification, with_tolerances

from .operations import values

STEPS, BATCH, SIZE, UNITS = 6, 3, 4, 5
LENGTHS = np.array([6, 1, 4])
"""A sequence of all steps, one of the first alone, and one that ends in between."""


def weights(gates: int, dtype: str = "float32", biases: int = 1) -> Tuple[np.ndarray, np.ndarray]:
    """A kernel for inputs and state together, and as many rows of biases for every gate."""
    kernel = values((SIZE + UNITS, gates * UNITS), 51, -1.0, 1.0, dtype)
    return kernel, values((gates, UNITS) if biases == 1 else (gates, biases, UNITS), 52, -1.0, 1.0, dtype)


def sequences(states: int, dtype: str = "float32", lengths: Any = None) -> Sequences:
    """Inputs, the states that they begin with, and cotangents of the outputs and the last states."""
    inputs, outputs = values((STEPS, BATCH, SIZE), 53, dtype=dtype), values((STEPS, BATCH, UNITS), 54, dtype=dtype)
    start = [values((BATCH, UNITS), 55 + place, -1.0, 1.0, dtype) for place in range(states)]
    last = [values((BATCH, UNITS), 57 + place, dtype=dtype) for place in range(states)]
    return Sequences(inputs, start, outputs, last, lengths)


def compare(actual: Dict[str, Any], specification: Specification, dtype: str = "float32") -> None:
    """Everything that a specification names is there, and within its tolerance."""
    __tracebackhide__ = True
    expected, tolerances = with_tolerances(specification, dtype)
    check.equal(actual=sorted(actual), expected=sorted(expected), what="the outputs and gradients of the layer")
    for name, value in expected.items():
        check.close(actual=actual[name], expected=value, tolerance=tolerances[name], what=name, dtype=dtype)
