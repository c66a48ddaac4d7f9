"""Running error analysis: numbers that carry a bound of what a device may have lost on the way to them.

A row that is many steps (a recurrent cell, the decoding of boxes) is written once, in ``Tracked`` numbers. Every step
adds its own rounding to the bound and passes on the bounds of what it reads, to first order. Bounds count units of
rounding of the element type, that is half units in the last place.
"""

from __future__ import annotations

import math
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Outputs, Term, as_tuple
from ipu_conformance.oracle.ops.arithmetic.pointwise import Draw
from ipu_conformance.oracle.tolerance.ops import ULPS

_UNITS = 2.0
"""Units of rounding in a unit in the last place."""

_FEWEST_BITS = 8
"""The bits of the shortest significand, that of bfloat16."""

Number = Union["Tracked", float, Array]


class Tracked:
    """Values, and how many units of rounding each may be off."""

    __array_priority__ = 1000  # an array on the left leaves the work to us

    def __init__(self, value: Array, error: Optional[Array] = None) -> None:
        self.value = np.asarray(value, np.float64)
        self.error = np.zeros(self.value.shape) if error is None else np.broadcast_to(error, self.value.shape)

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of the values."""
        return self.value.shape

    def __add__(self, other: Number) -> Tracked:
        one, two = self, tracked(other)
        value = one.value + two.value
        return Tracked(value, one.error + two.error + np.abs(value))

    __radd__ = __add__

    def __neg__(self) -> Tracked:
        return Tracked(-self.value, self.error)

    def __sub__(self, other: Number) -> Tracked:
        return self + -tracked(other)

    def __rsub__(self, other: Number) -> Tracked:
        return tracked(other) + -self

    def __mul__(self, other: Number) -> Tracked:
        one, two = self, tracked(other)
        value = one.value * two.value
        passed = one.error * np.abs(two.value) + two.error * np.abs(one.value)
        return Tracked(value, passed + np.abs(value))

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Tracked:
        one, two = self, tracked(other)
        value = one.value / two.value
        passed = (one.error + two.error * np.abs(value)) / np.abs(two.value)
        return Tracked(value, passed + _UNITS * ULPS["divide"] * np.abs(value))

    def __matmul__(self, other: Tracked) -> Tracked:
        one, two = np.abs(self.value), np.abs(other.value)
        passed = self.error @ two + one @ other.error
        return Tracked(self.value @ other.value, passed + self.shape[-1] * (one @ two))

    def __getitem__(self, index: Any) -> Tracked:
        return Tracked(self.value[index], self.error[index])

    @property
    def T(self) -> Tracked:  # noqa: N802 - as NumPy has it
        """The transposed matrix."""
        return Tracked(self.value.T, self.error.T)

    def reshape(self, *shape: int) -> Tracked:
        """The same numbers in another shape."""
        return Tracked(self.value.reshape(*shape), self.error.reshape(*shape))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Tracked:
        """The sum along axes: each of its additions rounds."""
        value = self.value.sum(axis=axis, keepdims=keepdims)
        count = self.value.size // max(np.size(value), 1)
        added = (count - 1) * np.abs(self.value).sum(axis=axis, keepdims=keepdims)
        return Tracked(value, self.error.sum(axis=axis, keepdims=keepdims) + added)

    def where(self, condition: Array, other: Number = 0.0) -> Tracked:
        """The numbers where a condition holds, and others elsewhere."""
        two = tracked(other)
        return Tracked(np.where(condition, self.value, two.value), np.where(condition, self.error, two.error))

    def mapped(self, f: Callable[[Array], Array], slope: Callable[[Array], Array], ulps: float) -> Tracked:
        """A function of every number, computed to ``ulps``."""
        value = f(self.value)
        return Tracked(value, self.error * np.abs(slope(self.value)) + _UNITS * ulps * np.abs(value))


def tracked(value: Number) -> Tracked:
    """A number as it is; arrays are exact, and a single number is rounded unless every type of number holds it."""
    if isinstance(value, Tracked):
        return value
    if isinstance(value, float) and math.frexp(value)[0] * 2**_FEWEST_BITS % 1:
        return Tracked(np.asarray(value), np.abs(value))
    return Tracked(np.asarray(value, np.float64))


def sigmoid(x: Tracked) -> Tracked:
    """1 / (1 + exp(-x))."""

    def f(value: Array) -> Array:
        return 1.0 / (1.0 + np.exp(-value))

    return x.mapped(f, lambda value: f(value) * (1 - f(value)), ULPS["exp"] + 0.5 + ULPS["divide"])


def tanh(x: Tracked) -> Tracked:
    """The hyperbolic tangent."""
    return x.mapped(np.tanh, lambda value: 1 - np.tanh(value) ** 2, ULPS["tanh"])


def exp(x: Tracked) -> Tracked:
    """The exponential function."""
    return x.mapped(np.exp, np.exp, ULPS["exp"])


def joined(parts: Sequence[Tracked], axis: int = 0) -> Tracked:
    """Numbers one behind the other."""
    return Tracked(
        np.concatenate([part.value for part in parts], axis), np.concatenate([part.error for part in parts], axis)
    )


def stacked(parts: Sequence[Tracked], axis: int = 0) -> Tracked:
    """Numbers along a new axis."""
    return Tracked(np.stack([part.value for part in parts], axis), np.stack([part.error for part in parts], axis))


Forward = Callable[..., Sequence[Tracked]]
Pull = Callable[..., Sequence[Optional[Tracked]]]


def tracked_op(name: str, family: str, forward: Forward, draw: Draw, pull: Optional[Pull] = None) -> Op:
    """A registered op of many steps.

    ``forward(*inputs)`` gives the outputs and ``pull(cotangents, *inputs)`` a gradient for every input, None where
    there is none. Inputs of floating point and cotangents arrive tracked, whole numbers as they are.
    """

    def as_tracked(inputs: Sequence[Array]) -> List[Any]:
        return [Tracked(x) if x.dtype.kind == "f" else x for x in inputs]

    def values(*inputs: Array, **attributes: Any) -> Outputs:
        outputs = tuple(output.value for output in forward(*as_tracked(inputs), **attributes))
        return outputs if len(outputs) > 1 else outputs[0]

    def error(outputs: Outputs, *inputs: Array, **attributes: Any) -> List[List[Term]]:
        return [[Term(output.error)] for output in forward(*as_tracked(inputs), **attributes)]

    def pulled(cotangents: Outputs, inputs: Sequence[Array], attributes: Any) -> Sequence[Optional[Tracked]]:
        assert pull is not None
        return pull(tuple(Tracked(g) for g in as_tuple(cotangents)), *as_tracked(inputs), **attributes)

    def vjp(cotangents: Outputs, *inputs: Array, **attributes: Any) -> List[Optional[Array]]:
        return [None if each is None else each.value for each in pulled(cotangents, inputs, attributes)]

    def vjp_error(gradients: Any, cotangents: Outputs, *inputs: Array, **attributes: Any) -> List[List[Term]]:
        return [[] if each is None else [Term(each.error)] for each in pulled(cotangents, inputs, attributes)]

    if pull is None:
        return OPS.add(Op(name, family, values, error, draw))
    return OPS.add(Op(name, family, values, error, draw, vjp, vjp_error))
