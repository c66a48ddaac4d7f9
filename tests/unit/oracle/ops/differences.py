"""Central differences of an op, refined by Richardson, with a bound on their own error."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.op import Array, Op, as_tuple
from ipu_conformance.oracle.sample import Sample
from ipu_conformance.oracle.tolerance import ops
from tests.unit.oracle.witnesses.agreement import cotangents

STEP = 2.0**-12
"""Far smaller than the distance that samples keep from kinks and ties; a power of two, so that dividing is exact."""
UNIT = 2.0**-53


def gradient_ratio(op: Op, sample: Sample, seed: int) -> float:
    """The largest error of the gradients along random directions, in units of what rounding and truncation allow.

    The derivative D of s -> sum(c * f(x + s v)) at 0 is taken with steps h, h/2 and h/4; two steps of Richardson
    leave an error of order h^6, and the last refinement bounds what is left of it. A function value with error e
    enters the last differences over a step of h/2, and with the weights of the refinements its errors reach 6.6 e / h.
    """
    assert op.vjp is not None
    outputs = op.forward(*sample.inputs, **sample.attributes)
    weights = cotangents(outputs, seed)
    gradients = op.vjp(weights, *sample.inputs, **sample.attributes)
    limits = ops.for_gradients(op, sample, weights, dtype="float64")
    generator = np.random.default_rng([seed, 1])  # not the stream that the weights are from
    ratios = [0.0]
    for position, (gradient, limit) in enumerate(zip(gradients, limits)):
        if gradient is None or limit is None:
            continue
        value = sample.inputs[position]
        assert gradient.shape == value.shape, f"the gradient of input {position} has another shape"
        direction = generator.uniform(-1.0, 1.0, value.shape)
        found, truncation = _derivative(op, sample, as_tuple(weights), position, direction)
        noise = _noise(op, sample, as_tuple(weights)) + UNIT * np.sum(np.abs(gradient * value))
        allowed = truncation + 6.6 * noise / STEP + np.sum(np.abs(direction) * limit.allowed)
        error = abs(float(np.sum(gradient * direction)) - found)
        ratios.append(error / allowed if allowed else (0.0 if error == 0.0 else np.inf))
    return max(ratios)


def _derivative(
    op: Op, sample: Sample, weights: Sequence[Array], position: int, direction: Array
) -> Tuple[float, float]:
    """The derivative along ``direction`` and the size of its last refinement."""

    def at(step: float) -> float:
        inputs: List[Array] = list(sample.inputs)
        inputs[position] = inputs[position] + step * direction
        outputs = as_tuple(op.forward(*inputs, **sample.attributes))
        return float(sum(np.sum(c * y) for c, y in zip(weights, outputs) if y.dtype.kind == "f"))

    plain = [(at(h) - at(-h)) / (2 * h) for h in (STEP, STEP / 2, STEP / 4)]
    once = [(4 * finer - coarser) / 3 for coarser, finer in zip(plain, plain[1:])]
    twice = (16 * once[1] - once[0]) / 15
    return twice, abs(twice - once[1])


def _noise(op: Op, sample: Sample, weights: Sequence[Array]) -> float:
    """The error of one function value: that of the outputs, and that of the weighted sum over them."""
    outputs = as_tuple(op.forward(*sample.inputs, **sample.attributes))
    limits = ops.for_outputs(op, sample, dtype="float64")
    return float(
        sum(
            np.sum(np.abs(c) * limit.allowed) + (y.size + 1) * UNIT * np.sum(np.abs(c * y))
            for c, y, limit in zip(weights, outputs, limits)
            if y.dtype.kind == "f"
        )
    )
