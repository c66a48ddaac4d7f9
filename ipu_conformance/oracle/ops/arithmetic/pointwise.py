"""How a row of element-wise operations is made: a function, its partial derivatives and what each may lose."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Term, unbroadcast
from ipu_conformance.oracle.sample import Chooser, Sample

Function = Callable[..., Array]
Draw = Callable[[Chooser], Sample]


def summed(magnitude: Array, length: int, ulps: float = 0.0) -> List[Term]:
    """The terms of a sum of ``length`` values that were each computed to ``ulps``."""
    partial = [Term(magnitude, length, where="accumulate")] if length > 1 else []
    return [*partial, Term(magnitude, ulps=ulps)] if ulps else partial


def broadcastable(chooser: Chooser, operands: int) -> List[Tuple[int, ...]]:
    """Shapes that broadcast against each other: of one shape, an operand may lack leading axes or have ones."""
    full = chooser.shape(1, 3, 4)
    kept = [full[chooser.integer(0, len(full) - 1) if chooser.boolean() else 0 :] for _ in range(operands)]
    return [tuple(1 if chooser.integer(0, 3) == 3 else size for size in shape) for shape in kept]


def operands(*ranges: Sequence[Any], attributes: Optional[Callable[[Chooser], Dict[str, Any]]] = None) -> Draw:
    """Samples with an operand from each range (low, high, kinks to avoid…), of shapes that broadcast."""

    def draw(chooser: Chooser) -> Sample:
        shapes = broadcastable(chooser, len(ranges)) if len(ranges) > 1 else [chooser.shape()]
        values = tuple(chooser.array(shape, r[0], r[1], r[2:]) for shape, r in zip(shapes, ranges))
        return Sample(values, attributes(chooser) if attributes else {})

    return draw


def pointwise(
    name: str,
    f: Function,
    *partials: Function,
    draw: Draw,
    ulps: float = 0.5,
    steps: Optional[Function] = None,
    partial_ulps: float = 0.5,
    partial_steps: Sequence[Optional[Function]] = (),
    family: str = "elementwise",
) -> Op:
    """A registered element-wise op whose operands broadcast against each other.

    ``partials`` are the derivatives by each operand; no partials at all means no gradient. ``ulps`` and
    ``partial_ulps`` are the errors of the value and of a gradient's terms, 0 for exact ones. Where intermediate values
    are larger than the result, ``steps`` and ``partial_steps`` give the sum of their magnitudes.
    """

    def error(outputs: Array, *inputs: Array, **attributes: Any) -> List[List[Term]]:
        magnitude = np.abs(outputs if steps is None else steps(*inputs, **attributes))
        return [[Term(magnitude, ulps=ulps)] if ulps else []]

    def vjp(cotangent: Array, *inputs: Array, **attributes: Any) -> List[Array]:
        return [unbroadcast(cotangent * d(*inputs, **attributes), x.shape) for d, x in zip(partials, inputs)]

    def vjp_error(gradients: Sequence[Array], cotangent: Array, *inputs: Array, **attributes: Any) -> List[List[Term]]:
        terms = []
        for i, x in enumerate(inputs):
            size = (partial_steps[i] if i < len(partial_steps) else None) or partials[i]
            magnitude = unbroadcast(np.abs(cotangent * size(*inputs, **attributes)), x.shape)
            terms.append(summed(magnitude, cotangent.size // x.size, partial_ulps))
        return terms

    if not partials:
        return OPS.add(Op(name, family, f, error, draw))
    return OPS.add(Op(name, family, f, error, draw, vjp, vjp_error))
