"""Whole numbers as rows with one 1."""

from __future__ import annotations

from .op_test_ipu import FLOAT32, F, called, case, forward, integers

ONE_HOT = called(F + "one_hot", "depth")
CASES = (case("one_hot", ONE_HOT, integers(2, 3, high=4), modes=FLOAT32, depth=5, on=1.0, off=0.0),)

test_forward = forward(CASES)
