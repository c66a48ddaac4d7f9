"""What a row of the op table is: an operation's forward, its gradient and its error model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

Array = np.ndarray
Outputs = Union[Array, Tuple[Array, ...]]


@dataclass(frozen=True)
class Term:
    """One source of rounding error of an output, element by element.

    ``length`` roundings accumulate (a reduction of that many terms), each relative to ``magnitude`` (for a dot product
    the sum of |a|*|b|). ``where`` is "accumulate" for partial sums held in the accumulation type and "store" for
    values rounded to the element type. ``ulps`` is the documented error of a transcendental function, 1 for a
    correctly rounded one.
    """

    magnitude: Array
    length: int = 1
    ulps: float = 1.0
    where: str = "store"


ErrorModel = Callable[..., Sequence[Sequence[Term]]]
"""``error(outputs, *inputs, **attributes)`` lists the terms of every output; an empty list means bit-exact."""


@dataclass(frozen=True)
class Op:
    """A row of the table of operations: plain NumPy float64 functions and how a device may round them."""

    name: str
    family: str
    forward: Callable[..., Outputs]
    error: ErrorModel
    vjp: Optional[Callable[..., Sequence[Optional[Array]]]] = None
    """``vjp(cotangents, *inputs, **attributes)`` gives one gradient per input, None where there is none.

    ``cotangents`` is an array for one output and a tuple for several.
    """
    vjp_error: Optional[ErrorModel] = None
    """``vjp_error(gradients, cotangents, *inputs, **attributes)``, in the form of ``error``."""


@dataclass(frozen=True)
class Sample:
    """Inputs and attributes for one call of an op; all that a witness or a device is given."""

    inputs: Tuple[Array, ...]
    attributes: Mapping[str, Any]


class OpTable:
    """Every op by its name; a name is registered once."""

    def __init__(self) -> None:
        self._ops: Dict[str, Op] = {}

    def add(self, op: Op) -> Op:
        """Register ``op`` and return it."""
        if op.name in self._ops:
            raise ValueError(f"op {op.name!r} is registered twice")
        self._ops[op.name] = op
        return op

    def __getitem__(self, name: str) -> Op:
        return self._ops[name]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._ops.values())

    def __len__(self) -> int:
        return len(self._ops)


OPS = OpTable()
"""The table itself; importing ``ipu_conformance.oracle.ops`` fills it."""
