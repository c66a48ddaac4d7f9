"""Truth values: together, turned round, and reduced."""

from __future__ import annotations

from .op_test_ipu import case, forward, truths

FULL = ["IPU_FP32"]
"""Truth values are the same in programs of every type."""

CASES = (
    *(case(op, op, truths(2, 3, 4), truths(3, 4), modes=FULL) for op in ("logical_and", "logical_or", "logical_xor")),
    case("logical_not", "logical_not", truths(2, 3), modes=FULL),
    case(
        "all", lambda p, x, axis, keepdims: p.all(x, axis, keepdims), truths(2, 3), modes=FULL, axis=1, keepdims=False
    ),
    case("any", lambda p, x, axis, keepdims: p.any(x, axis, keepdims), truths(2, 3), modes=FULL, axis=0, keepdims=True),
)

test_forward = forward(CASES)
