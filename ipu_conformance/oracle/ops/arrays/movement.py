"""How a row that only moves data is made: its gradient follows from where each output element came from.

The forward function is called once more with every float operand replaced by the positions 1, 2, 3, … of its elements.
What it returns says, for each output element, which input element it is, and 0 says a constant. The gradient adds each
cotangent at that position: right for repeated indices, broadcasting and views, and with one definition for all.
"""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Sequence

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Outputs, Term, as_tuple, exact
from ipu_conformance.oracle.ops.arithmetic.pointwise import Draw, summed


def _is_moved(x: Array) -> bool:
    return x.dtype.kind == "f"


def sources(forward: Callable[..., Outputs], inputs: Sequence[Array], attributes: Mapping[str, Any]) -> Array:
    """The position, counted from 1 over all float operands, of every output element; 0 for a constant."""
    first, positions = 1.0, []
    for x in inputs:
        positions.append(np.arange(first, first + x.size).reshape(x.shape) if _is_moved(x) else x)
        first += x.size if _is_moved(x) else 0
    constants = {"value": 0.0} if "value" in attributes else {}
    outputs = as_tuple(forward(*positions, **{**attributes, **constants}))
    return np.concatenate([np.ravel(y) for y in outputs]).astype(np.int64)


def pull(sources: Array, cotangents: Outputs, inputs: Sequence[Array]) -> List[Any]:
    """The cotangents added up at their sources, as one array per float operand, None for the others."""
    flat = np.concatenate([np.ravel(c) for c in as_tuple(cotangents)])
    total = np.bincount(sources, weights=flat, minlength=1 + sum(x.size for x in inputs if _is_moved(x)))
    gradients: List[Any] = []
    first = 1
    for x in inputs:
        gradients.append(total[first : first + x.size].reshape(x.shape) if _is_moved(x) else None)
        first += x.size if _is_moved(x) else 0
    return gradients


def pull_terms(sources: Array, cotangents: Outputs, inputs: Sequence[Array]) -> List[List[Term]]:
    """The terms of ``pull``: exact where no element is used twice."""
    magnitudes = pull(sources, tuple(np.abs(c) for c in as_tuple(cotangents)), inputs)
    uses = pull(sources, tuple(np.ones(np.shape(c)) for c in as_tuple(cotangents)), inputs)
    return [
        [] if magnitude is None else summed(magnitude, int(used.max(initial=0)))
        for magnitude, used in zip(magnitudes, uses)
    ]


def movement(name: str, family: str, forward: Callable[..., Outputs], draw: Draw) -> Op:
    """A registered op whose every output element is an input element, or the constant named ``value``, or zero."""

    def vjp(cotangents: Outputs, *inputs: Array, **attributes: Any) -> List[Any]:
        return pull(sources(forward, inputs, attributes), cotangents, inputs)

    def vjp_error(gradients: Sequence[Any], cotangents: Outputs, *inputs: Array, **attributes: Any) -> List[List[Term]]:
        return pull_terms(sources(forward, inputs, attributes), cotangents, inputs)

    return OPS.add(Op(name, family, forward, exact, draw, vjp, vjp_error))
