"""Reductions over some and over all dimensions."""

from __future__ import annotations

from typing import Any, Dict

from .op_test_ipu import FLOAT32, Build, called, case, distinct, forward_and_gradient, values


def _reduced(name: str) -> Build:
    return called(name, "axis", keepdim="keepdims")


SHAPE = (2, 3, 4)
SOME: Dict[str, Any] = {"axis": (0, 2), "keepdims": False}
ALL: Dict[str, Any] = {"axis": None, "keepdims": False}
KEPT: Dict[str, Any] = {"axis": 1, "keepdims": True}

CASES = (
    *(case(op, _reduced(op), values(*SHAPE), name=f"{op}-{name}", **how)
      for op in ("sum", "mean", "logsumexp") for name, how in (("some", SOME), ("all", ALL), ("kept", KEPT))),
    case("prod", _reduced("prod"), values(*SHAPE, low=0.5), **KEPT),
    case("max", _reduced("max"), distinct(*SHAPE), ties="all", **KEPT),
    case("min", _reduced("min"), distinct(*SHAPE), ties="all", **SOME),
    *(case(op, lambda p, x, axis, keepdims, correction, op=op: getattr(p, op)(x, axis, bool(correction), keepdims),
           values(*SHAPE), modes=FLOAT32, name=f"{op}-{correction}", correction=correction, **KEPT)
      for op in ("var", "std") for correction in (0, 1)),
    case("p_norm", lambda paddle, x, axis, keepdims, p: paddle.norm(x, p, axis, keepdims), values(*SHAPE, low=0.25),
         p=2.0, **KEPT),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
