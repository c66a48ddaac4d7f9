"""Truth values: together, turned round, and reduced. They are the same in programs of every type."""

from __future__ import annotations

from .op_test_ipu import FLOAT32, called, case, forward, truths

CASES = (
    *(
        case(op, op, truths(2, 3, 4), truths(3, 4), modes=FLOAT32)
        for op in ("logical_and", "logical_or", "logical_xor")
    ),
    case("logical_not", "logical_not", truths(2, 3), modes=FLOAT32),
    case("all", called("all", "axis", "keepdims"), truths(2, 3), modes=FLOAT32, axis=1, keepdims=False),
    case("any", called("any", "axis", "keepdims"), truths(2, 3), modes=FLOAT32, axis=0, keepdims=True),
)

test_forward = forward(CASES)
