"""Casts: to float16 to nearest even, to whole numbers towards zero, and from them."""

from __future__ import annotations

from .op_test_ipu import case, forward, integers, values

FULL = ["IPU_FP32"]
"""Turned into float16, a program is cast elsewhere as well."""

CASES = (
    case("cast_narrow", "cast", values(3, 4, low=-100.0, high=100.0), name="float16", modes=FULL, dtype="float16"),
    case("cast_integer", "cast", values(3, 4, low=-9.0, high=9.0), name="int32", modes=FULL, dtype="int32"),
    case("cast_integer", "cast", integers(3, 4, low=-3, high=3), name="from-int64", modes=FULL, dtype="float32"),
)

test_forward = forward(CASES)
