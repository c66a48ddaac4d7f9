"""What a row of the op table is: an op's forward, its gradient, its error model and how samples are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from ipu_conformance.errors import ConformanceError
from ipu_conformance.oracle.sample import Chooser, Sample

Array = np.ndarray
Outputs = Union[Array, Tuple[Array, ...]]


class OracleError(ConformanceError):
    """The oracle was asked for an op, a number format or an attribute that it does not specify."""


@dataclass(frozen=True)
class Term:
    """One source of rounding error of an output, element by element.

    ``length`` roundings accumulate (a reduction of that many terms), each of ``ulps`` units in the last place relative
    to ``magnitude`` (for a dot product the sum of |a|*|b|). A correctly rounded operation errs by 0.5 ulp; the
    documented errors of transcendental functions are in ``tolerance.ULPS``. ``where`` is "accumulate" for partial
    sums held in the accumulation type and "store" for values rounded to the element type. ``spread``, where it is
    known, is the root of the sum of squares of what is added up: sums of terms that cancel stay well below their
    magnitude on the way, too.
    """

    magnitude: Array
    length: int = 1
    ulps: float = 0.5
    where: str = "store"
    spread: Optional[Array] = None


ErrorModel = Callable[..., Sequence[Sequence[Term]]]
"""``error(outputs, *inputs, **attributes)`` lists the terms of every output; an empty list means bit-exact.

``outputs`` has the form that ``forward`` returns: an array for one output, a tuple for several. The rounding of a sum
from the accumulation type to a narrower element type is not listed: every output with a partial sum has it.
"""


@dataclass(frozen=True)
class Op:
    """A row of the table of operations: plain NumPy float64 functions and how a device may round them."""

    name: str
    family: str
    forward: Callable[..., Outputs]
    """``forward(*inputs, **attributes)``."""
    error: ErrorModel
    draw: Callable[[Chooser], Sample]
    """A random call of the op: shapes, attributes and values away from ties and kinks."""
    vjp: Optional[Callable[..., Sequence[Optional[Array]]]] = None
    """``vjp(cotangents, *inputs, **attributes)`` gives one gradient per input, None where there is none.

    ``cotangents`` is an array for one output and a tuple for several.
    """
    vjp_error: Optional[ErrorModel] = None
    """``vjp_error(gradients, cotangents, *inputs, **attributes)``: one list of terms per gradient (empty for None)."""


def as_tuple(outputs: Outputs) -> Tuple[Array, ...]:
    """The outputs of an op as a tuple, however many there are."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def exact(outputs: Any, *_: Any, **__: Any) -> Sequence[Sequence[Term]]:
    """The error model of data movement: every output (or gradient) is bit-exact."""
    return [[] for _ in (outputs if isinstance(outputs, (tuple, list)) else (outputs,))]


def rounded(ulps: float = 0.5) -> ErrorModel:
    """The error model of a function evaluated to ``ulps`` units in the last place of its result."""

    def error(outputs: Any, *_: Any, **__: Any) -> Sequence[Sequence[Term]]:
        values = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return [[] if value is None else [Term(np.abs(value), ulps=ulps)] for value in values]

    return error


def multilinear(forward: Callable[..., Array], extra: int = 0) -> ErrorModel:
    """The error model of an op that is linear in each input (a product, a convolution, a sum).

    The magnitude is the op applied to absolute values, the spread the root of the op applied to squares, and the op
    applied to ones counts the products that it adds up. ``extra`` roundings come on top, for factors that are
    attributes; of those the spread knows nothing.
    """

    def error(outputs: Any, *inputs: Array, **attributes: Any) -> Sequence[Sequence[Term]]:
        size = forward(*map(np.abs, inputs), **attributes)
        count = forward(*map(np.ones_like, inputs), **attributes)
        spread = None if extra else np.sqrt(forward(*map(np.square, inputs), **attributes))
        return [[Term(size, length=_longest(count) + extra, where="accumulate", spread=spread)]]

    return error


def multilinear_vjp(vjp: Callable[..., Sequence[Optional[Array]]], extra: int = 0) -> ErrorModel:
    """The error model of the gradients of a multilinear op, which are multilinear themselves."""

    def error(gradients: Any, g: Array, *inputs: Array, **attributes: Any) -> Sequence[Sequence[Term]]:
        sizes = vjp(np.abs(g), *map(np.abs, inputs), **attributes)
        counts = vjp(np.ones_like(g), *map(np.ones_like, inputs), **attributes)
        squares = vjp(np.square(g), *map(np.square, inputs), **attributes)
        return [
            []
            if size is None or count is None or square is None
            else [Term(size, _longest(count) + extra, where="accumulate", spread=None if extra else np.sqrt(square))]
            for size, count, square in zip(sizes, counts, squares)
        ]

    return error


def _longest(count: Array) -> int:
    return max(1, int(np.max(count, initial=1)))


def unbroadcast(gradient: Array, shape: Sequence[int]) -> Array:
    """The gradient of an array of ``shape`` from that of its broadcast: the sum over the repeated axes."""
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    repeated = tuple(axis for axis, size in enumerate(shape) if size == 1 and gradient.shape[axis] != 1)
    return gradient.sum(axis=repeated, keepdims=True)


class OpTable(Mapping[str, Op]):
    """Every op by its name; a name is registered once."""

    def __init__(self) -> None:
        self._ops: Dict[str, Op] = {}

    def add(self, op: Op) -> Op:
        """Register ``op`` and return it."""
        if op.name in self._ops:
            raise OracleError(f"op {op.name!r} is registered twice; give one of the two another name")
        self._ops[op.name] = op
        return op

    def __getitem__(self, name: str) -> Op:
        try:
            return self._ops[name]
        except KeyError:
            raise OracleError(f"the oracle has no op {name!r}; it has {', '.join(sorted(self._ops))}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._ops

    def __iter__(self) -> Iterator[str]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)


OPS = OpTable()
"""The table itself, by name; importing ``ipu_conformance.oracle.ops`` fills it."""
