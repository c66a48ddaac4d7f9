"""Casts: to float16 to nearest even, to whole numbers towards zero, and from them.

Turning a program into float16 adds casts of its own, so programs are in float32.
"""

from __future__ import annotations

from .op_test_ipu import FLOAT32, case, forward, integers, values

CASES = (
    case("cast_narrow", "cast", values(3, 4, low=-100.0, high=100.0), name="float16", modes=FLOAT32, dtype="float16"),
    case("cast_integer", "cast", values(3, 4, low=-9.0, high=9.0), name="int32", modes=FLOAT32, dtype="int32"),
    case("cast_integer", "cast", integers(3, 4, low=-3, high=3), name="from-int64", modes=FLOAT32, dtype="float32"),
)

test_forward = forward(CASES)
