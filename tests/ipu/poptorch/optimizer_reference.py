"""A small training problem, what the oracle makes of it, and the same on the device.

The problem is linear regression: the gradient depends on the weights, so that every update shows in the next one, and
is short enough to write down. Its reference is computed in float64; what float32 may make of it is measured by rounding
every intermediate value of the reference at random.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance import check
from ipu_conformance.oracle.tolerance import runs
from ipu_conformance.oracle.tolerance.rounding import mantissa, nearest, stochastic
from ipu_conformance.oracle.training import optimizers
from ipu_conformance.run import Rule

Array = np.ndarray
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


def same(rule: Rule, rate: float, calls: int = 3) -> List[Call]:
    """Calls in which both weights follow one rule."""
    return [{WEIGHT: (rule, rate), BIAS: (rule, rate)} for _ in range(calls)]


def assert_weights(
    actual: Mapping[str, Array],
    calls: Sequence[Call],
    *,
    accumulation: int = 1,
    clip: Optional[float] = None,
    begin: Optional[Mapping[str, float]] = None,
) -> None:
    """The weights are those of the oracle after the calls; ``begin`` gives states that do not begin with zeros."""
    __tracebackhide__ = True

    def run(r: Rounding) -> Dict[str, Array]:
        return _reference(calls, r, accumulation, clip, begin or {})

    form = mantissa("float32")
    exact, fixed = run(optimizers.exact), run(lambda x: nearest(x, form))
    noisy = [run(_at_random(seed)) for seed in range(runs.LEAST_RUNS)]
    for name, want in exact.items():
        tolerance = runs.estimate(
            want,
            np.stack([own[name] - want for own in noisy]),
            fixed[name] - want,
            runs.FALSE_ALARM_RATE / len(exact),
            f"float32, {len(noisy)} oracle runs with random rounding",
        )
        check.close(actual=actual[name], expected=want, tolerance=tolerance, what=name, dtype=np.float32)


def _at_random(seed: int) -> Rounding:
    form, random = mantissa("float32"), np.random.Generator(np.random.Philox(seed))
    return lambda x: stochastic(np.asarray(x), form, random)


def _reference(
    calls: Sequence[Call], r: Rounding, accumulation: int, clip: Optional[float], begin: Mapping[str, float]
) -> Dict[str, Array]:
    weights = {name: value.astype(np.float64) for name, value in START.items()}
    states: Dict[str, Any] = {}
    counts: Dict[str, int] = {}
    for number, call in enumerate(calls):
        gradients = _gradients(weights, number, accumulation, r)
        if clip is not None:
            gradients = optimizers.clipped(gradients, clip, r)
        for name, (rule, rate) in call.items():
            if name not in states:
                states[name] = optimizers.begin(rule, weights[name])
                states[name].update({slot: np.full_like(weights[name], value) for slot, value in begin.items()})
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


class Problem:
    """The problem on the device: a model with the starting weights, and an executor for it.

    A ``pipelined`` model has its weight on one IPU and its bias and loss on the next.
    """

    def __init__(
        self,
        poptorch: Any,
        make: Callable[[Any], Any],
        *,
        accumulation: int = 1,
        replicas: int = 1,
        pipelined: bool = False,
        options: Optional[Any] = None,
    ) -> None:
        import torch

        class Regression(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(INPUTS, OUTPUTS)
                self.loss = torch.nn.MSELoss()

            def forward(self, x: Any, y: Any) -> Any:
                if not pipelined:
                    out = self.layer(x)
                    return out, self.loss(out, y)
                with poptorch.Block("weight", ipu_id=0):
                    out = torch.nn.functional.linear(x, self.layer.weight)
                with poptorch.Block("bias", ipu_id=1):
                    out = out + self.layer.bias
                    return out, self.loss(out, y)

        self.samples = accumulation * replicas * BATCH
        self.model = Regression()
        self.model.load_state_dict({name: torch.tensor(value) for name, value in START.items()})
        self.optimizer = make(self.model)
        options = poptorch.Options() if options is None else options
        options.Training.gradientAccumulation(accumulation)
        options.replicationFactor(replicas)
        self.executor = poptorch.trainingModel(self.model, options, self.optimizer)
        self.calls = 0

    def call(self, times: int = 1) -> Any:
        """Call the executor with the next data and return what the last call returned."""
        import torch

        result = None
        for _ in range(times):
            x, y = (torch.tensor(data[self.calls, : self.samples]) for data in (X, Y))
            result = self.executor(x, y)
            self.calls += 1
        return result

    def weights(self) -> Dict[str, Array]:
        """Copies of the weights, brought to the host."""
        return {name: value.detach().numpy().copy() for name, value in self.model.state_dict().items()}


def trained(poptorch: Any, make: Callable[[Any], Any], calls: int = 3, **problem: Any) -> Dict[str, Array]:
    """The weights after some calls with the optimizer that ``make`` gives for the model."""
    own = Problem(poptorch, make, **problem)
    own.call(calls)
    return own.weights()
