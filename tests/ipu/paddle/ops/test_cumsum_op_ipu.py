"""Sums of all that comes before."""

from __future__ import annotations

from typing import Any, Dict

from .op_test_ipu import called, case, forward_and_gradient, values

PLAIN: Dict[str, Any] = {"exclusive": False, "reverse": False}

CASES = (
    case("cumsum", called("cumsum", "axis"), values(2, 3, 4), axis=1, **PLAIN),
    case("cumsum", called("cumsum", "axis"), values(2, 3, 4), name="cumsum-last", axis=-1, **PLAIN),
)

test_forward, test_gradient = forward_and_gradient(CASES)
