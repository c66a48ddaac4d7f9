"""Models whose arithmetic has no rounding, and what a plain loop over the micro-batches makes of them.

Weights and samples are small multiples of powers of two, so any order of computing gives the same bits and results are
compared exactly. ``plain_run`` proves it each time: it computes in float64 and in float32 and asks for the same values.
"""

from __future__ import annotations

import copy
from typing import Any, Dict, List, NamedTuple, Optional

RATE = 2.0**-6
"""The learning rate."""
FEATURES = 2


class Factors(NamedTuple):
    """Device iterations, gradient accumulation and replicas; in a case they differ in pairs."""

    D: int
    G: int
    R: int

    def __str__(self) -> str:
        return f"D{self.D}-G{self.G}-R{self.R}"

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one call."""
        return self.D * self.G * self.R


TRAINING = (Factors(2, 3, 1), Factors(3, 1, 2), Factors(1, 4, 2), Factors(2, 1, 4), Factors(2, 3, 4), Factors(4, 2, 1))
INFERENCE = (Factors(3, 1, 2), Factors(2, 1, 4), Factors(5, 1, 2), Factors(2, 1, 3))


class Run(NamedTuple):
    """What a plain loop gives: outputs and losses by [call][micro-batch], weights at the end."""

    outputs: List[List[Any]]
    losses: List[List[Any]]
    weights: Dict[str, Any]


def scale(poptorch: Any, *, loss: bool = True) -> Any:
    """A model that multiplies by a weight; its loss is the distance from 1, and both are returned.

    The gradient is a sum of samples with signs that depend on the weight: not linear, and exact.
    """
    import torch

    class Scale(torch.nn.Module):
        """One weight for each feature."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))

        def forward(self, x: Any) -> Any:
            out = x * self.weight
            if not loss:
                return out
            return out, poptorch.identity_loss((out - 1).abs(), reduction="sum")

    return Scale()


def samples(count: int) -> Any:
    """That many samples of two features, no two of them alike; a mean over 3 of them is exact too."""
    import torch

    numbers = torch.arange(count, dtype=torch.float32)
    return torch.stack([(numbers % 5 + 1) * 0.75, (numbers // 5 + 1) * -0.375], dim=1)


def batch(factors: Factors, micro: int = 1) -> Any:
    """The combined batch of one call."""
    return samples(factors.micro_batches * micro)


def options(poptorch: Any, factors: Factors, mode: Optional[str] = "All", period: Optional[int] = None) -> Any:
    """Options with these factors; IPUs are rounded up to what can be reserved."""
    made = poptorch.Options().deviceIterations(factors.D).replicationFactor(factors.R).autoRoundNumIPUs(True)
    made.Training.gradientAccumulation(factors.G)
    if mode is not None:
        made.outputMode(getattr(poptorch.OutputMode, mode), period)
    return made


def sgd(model: Any, **settings: Any) -> Any:
    """Plain gradient descent with the exact rate."""
    import torch

    return torch.optim.SGD(model.parameters(), lr=RATE, **settings)


def plain_run(model: Any, x: Any, factors: Factors, *, mean: bool = True, calls: int = 1, rate: float = RATE) -> Run:
    """Train a copy of the model by a plain loop: one update per device iteration, on the gradients of G x R parts."""
    import torch

    exact = _loop(copy.deepcopy(model).double(), x.double(), factors, mean, calls, rate)
    rounded = _loop(copy.deepcopy(model), x, factors, mean, calls, rate)
    for name, value in exact.weights.items():
        assert torch.equal(value, rounded.weights[name].double()), f"{name} is not exact; choose other numbers"
    return Run(
        [[out.float() for out in call] for call in exact.outputs],
        [[loss.float() for loss in call] for call in exact.losses],
        {name: value.float() for name, value in exact.weights.items()},
    )


def _loop(model: Any, x: Any, factors: Factors, mean: bool, calls: int, rate: float) -> Run:
    import torch

    run = Run([], [], {})
    for _ in range(calls):
        outputs, losses = [], []
        parts = x.chunk(factors.micro_batches)
        per_update = factors.G * factors.R
        for iteration in range(factors.D):
            model.zero_grad()
            for part in parts[iteration * per_update : (iteration + 1) * per_update]:
                out, loss = model(part)
                loss.backward()
                outputs.append(out.detach().clone())
                losses.append(loss.detach().clone())
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= rate * weight.grad / (per_update if mean else 1)
        run.outputs.append(outputs)
        run.losses.append(losses)
    run.weights.update({name: value.detach().clone() for name, value in model.named_parameters()})
    return run


def assert_same(actual: Any, expected: Any, what: str) -> None:
    """Two tensors have the same shape, type and bits."""
    import torch

    __tracebackhide__ = True
    assert actual.shape == expected.shape, f"{what} has the shape {list(actual.shape)}, not {list(expected.shape)}"
    assert actual.dtype == expected.dtype, f"{what} has the type {actual.dtype}, not {expected.dtype}"
    assert torch.equal(actual, expected), f"{what} is {actual}, expected {expected}"


def assert_weights(model: Any, expected: Dict[str, Any]) -> None:
    """The model's weights have exactly these values."""
    __tracebackhide__ = True
    for name, value in model.named_parameters():
        assert_same(value.detach(), expected[name], name)
