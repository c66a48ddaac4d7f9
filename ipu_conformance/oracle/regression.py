"""Linear regression with an optimizer rule and a learning rate for each weight and each call.

The gradient depends on the weights, so that every update shows in the next one, and is short enough to write down. The
reference is computed in float64; its tolerance in float32 comes from runs that round every intermediate value.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.tolerance.rounding import mantissa, nearest, stochastic
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, ArrayTolerance, from_runs
from ipu_conformance.oracle.training import optimizers
from ipu_conformance.run import Array, Rule

Rounding = Callable[[Array], Array]
Call = Mapping[str, Tuple[Rule, float]]
"""The rule and the learning rate of each weight in one call; a weight that is left out stays."""

WEIGHT, BIAS = "layer.weight", "layer.bias"
BATCH, INPUTS, OUTPUTS, MOST_CALLS = 4, 3, 2, 6
_random = np.random.Generator(np.random.Philox(2021))
X = _random.standard_normal((MOST_CALLS, 3 * BATCH, INPUTS)).astype(np.float32)
Y = (3 * _random.standard_normal((MOST_CALLS, 3 * BATCH, OUTPUTS))).astype(np.float32)
START: Dict[str, Array] = {
    WEIGHT: _random.standard_normal((OUTPUTS, INPUTS)).astype(np.float32),
    BIAS: _random.standard_normal(OUTPUTS).astype(np.float32),
}


def same_rule(rule: Rule, rate: float, calls: int = 3) -> List[Call]:
    """Calls in which both weights follow one rule."""
    return [{WEIGHT: (rule, rate), BIAS: (rule, rate)} for _ in range(calls)]


def train(
    calls: Sequence[Call],
    *,
    accumulation: int = 1,
    clip: Optional[float] = None,
    initial_state: Optional[Mapping[str, float]] = None,
) -> Tuple[Dict[str, Array], Dict[str, ArrayTolerance]]:
    """The weights after the calls and their tolerances; ``initial_state`` has states that do not begin with zeros."""

    def weights(r: Rounding) -> Dict[str, Array]:
        return _train(calls, r, accumulation, clip, initial_state or {})

    form = mantissa("float32")
    exact = weights(optimizers.exact)
    rounded = [weights(_at_random(seed)) for seed in range(LEAST_RUNS)]
    how = f"float32, {LEAST_RUNS} oracle runs with random rounding"
    return exact, from_runs(exact, rounded, weights(lambda x: nearest(x, form)), how)


def _at_random(seed: int) -> Rounding:
    form, random = mantissa("float32"), np.random.Generator(np.random.Philox(seed))
    return lambda x: stochastic(np.asarray(x), form, random)


def _train(
    calls: Sequence[Call], r: Rounding, accumulation: int, clip: Optional[float], initial_state: Mapping[str, float]
) -> Dict[str, Array]:
    weights = {name: value.astype(np.float64) for name, value in START.items()}
    states: Dict[str, Dict[str, Array]] = {}
    counts: Dict[str, int] = {}
    for number, call in enumerate(calls):
        gradients = _gradients(weights, number, accumulation, r)
        if clip is not None:
            gradients = optimizers.clipped(gradients, clip, r)
        for name, (rule, rate) in call.items():
            if name not in states:
                states[name] = optimizers.begin(rule, weights[name])
                states[name].update({slot: np.full_like(weights[name], value) for slot, value in initial_state.items()})
            counts[name] = counts.get(name, 0) + 1
            weights[name], states[name] = optimizers.step(
                rule, weights[name], gradients[name], states[name], rate, counts[name], r
            )
    return weights


def _gradients(weights: Mapping[str, Array], number: int, accumulation: int, r: Rounding) -> Dict[str, Array]:
    """The mean over the micro-batches of the gradient of the mean squared error."""
    total = {name: np.zeros_like(value) for name, value in weights.items()}
    for micro in range(accumulation):
        rows = slice(micro * BATCH, (micro + 1) * BATCH)
        x, y = X[number, rows].astype(np.float64), Y[number, rows].astype(np.float64)
        error = r(r(_dot(x, weights[WEIGHT].T, r) + weights[BIAS]) - y)
        slope = r(error * (2.0 / error.size))
        total[WEIGHT] = r(total[WEIGHT] + _dot(slope.T, x, r))
        total[BIAS] = r(total[BIAS] + _dot(slope.T, np.ones((BATCH, 1)), r)[:, 0])
    return {name: r(value / accumulation) for name, value in total.items()}


def _dot(left: Array, right: Array, r: Rounding) -> Array:
    """A matrix product whose products and partial sums are all rounded."""
    total = np.zeros((left.shape[0], right.shape[1]))
    for k in range(left.shape[1]):
        total = r(total + r(left[:, k : k + 1] * right[k : k + 1, :]))
    return total
