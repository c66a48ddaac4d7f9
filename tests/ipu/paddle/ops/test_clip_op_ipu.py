"""Clipping between two bounds, and at one: the other is then beyond all numbers of float16."""

from __future__ import annotations

import math

from .op_test_ipu import called, case, forward_and_gradient, values

CASES = (
    case("clip", called("clip", "low", "high"), values(2, 3, 4, avoid=[-0.5, 1.25]), low=-0.5, high=1.25),
    case("clip", called("clip", "low"), values(2, 3, 4, avoid=[-0.5]), name="clip-below", low=-0.5,
         high=math.inf),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
