"""Numbers that are not finite, and numbers that are none."""

from __future__ import annotations

import numpy as np

from ipu_conformance.oracle.sample import Chooser

from .op_test_ipu import case, forward

SPECIAL = np.array([0.0, 1.5, -2.0, np.inf, -np.inf, np.nan])


def _special(chooser: Chooser) -> np.ndarray:
    return SPECIAL[chooser.integers((3, 8), 0, len(SPECIAL) - 1)]


CASES = tuple(case(op, op, _special) for op in ("isfinite", "isinf", "isnan"))

test_forward = forward(CASES)
