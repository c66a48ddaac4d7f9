"""Casts between number formats, exact by definition.

Float to integer drops the fraction; float to a narrower float rounds to nearest, halves to even; an integer is
narrowed by keeping its low bits; anything but 0 is true. Frameworks and devices differ for a float outside the
integer's range, so there is no specified value there. A gradient passes between floats and nowhere else.
"""

from __future__ import annotations

from typing import List, Optional

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, OracleError, exact
from ipu_conformance.oracle.sample import Chooser, Sample


def _cast(x: Array, *, dtype: str) -> Array:
    target = np.dtype(dtype)
    if x.dtype.kind == "f" and target.kind in "iu":
        limits = np.iinfo(target)
        if not np.all((np.trunc(x) >= limits.min) & (np.trunc(x) <= limits.max)):
            raise OracleError(f"a cast to {dtype} is specified from {limits.min} to {limits.max}; keep values in there")
    with np.errstate(over="ignore"):  # a float beyond the largest becomes infinite
        return x.astype(target)


def _vjp(cotangent: Array, x: Array, *, dtype: str) -> List[Optional[Array]]:
    passes = x.dtype.kind == "f" and np.dtype(dtype).kind == "f"
    return [np.array(cotangent, dtype=float) if passes else None]


def _draw(chooser: Chooser) -> Sample:
    return Sample((chooser.array(chooser.shape()),), {"dtype": "float64"})


def _draw_narrow(chooser: Chooser) -> Sample:
    dtype = chooser.choice(["float32", "float16"])
    scale = chooser.choice([1.0, 1e-6, 1e4])  # normal, subnormal and near the top of float16
    return Sample((scale * chooser.array(chooser.shape()),), {"dtype": dtype})


def _draw_integer(chooser: Chooser) -> Sample:
    dtype = chooser.choice(["int64", "int32", "int16", "int8", "uint8", "bool"])
    shape = chooser.shape()
    if chooser.boolean():
        most = chooser.choice([300, 2**30, 2**40])  # the last is beyond what a device holds
        return Sample((chooser.integers(shape, -most, most),), {"dtype": dtype})
    x = chooser.array(shape, 0.0 if dtype == "uint8" else -100.0, 100.0)
    return Sample((np.where(chooser.integers(shape, 0, 4) == 4, 0.0, x),), {"dtype": dtype})


OPS.add(Op("cast", "cast", _cast, exact, _draw, _vjp, exact))
# The same op, sampled where it is a staircase, on which no difference quotient shows the gradient.
OPS.add(Op("cast_narrow", "cast", _cast, exact, _draw_narrow))
OPS.add(Op("cast_integer", "cast", _cast, exact, _draw_integer))
