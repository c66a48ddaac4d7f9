"""A model whose arithmetic rounds nothing, its options, and what the oracle makes of it; see ``oracle.exact``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from ipu_conformance import check
from ipu_conformance.oracle import exact
from ipu_conformance.run import RunConfig, learning_rate

from .lazily import torch
from .on_device import as_model

RATE = 2.0**-6
"""The learning rate."""
counts = RunConfig(micro_batch=1, learning_rate=learning_rate(base=RATE)).with_counts
"""``counts(2, 3, 4)``: device iterations, gradient accumulation and replicas; in a case they differ in pairs."""
TRAINING = (counts(2, 3, 1), counts(3, 1, 2), counts(1, 4, 2), counts(2, 1, 4), counts(2, 3, 4), counts(4, 2, 1))
INFERENCE = (counts(3, 1, 2), counts(2, 1, 4), counts(5, 1, 2), counts(2, 1, 3))


class Run(NamedTuple):
    """What the oracle's run gives: outputs and losses by [call][micro-batch], weights at the end."""

    outputs: List[List[Any]]
    losses: List[List[Any]]
    weights: Dict[str, Any]


def scale(
    poptorch: Any, *, loss: bool = True, first: Optional[Callable[[Any, Any], Any]] = None, **buffers: Any
) -> Any:
    """A model that multiplies by a weight; its loss is the distance from 1, and both are returned.

    ``first`` is called with the model and the input before they are multiplied; it may change the ``buffers``.
    """

    def forward(model: Any, x: Any) -> Any:
        if first is not None:
            first(model, x)
        out = x * model.weight
        return (out, poptorch.identity_loss((out - 1).abs(), reduction="sum")) if loss else out

    model = as_model(forward, weight=torch.nn.Parameter(torch.tensor(exact.STARTS[0])))
    for name, value in buffers.items():
        model.register_buffer(name, value)
    return model


def samples(count: int) -> Any:
    """Distinct samples of two features."""
    return torch.tensor(exact.pairs(count))


def batch(config: RunConfig, micro: int = 1) -> Any:
    """The combined batch of one call."""
    return samples(config.micro_batches * micro)


def options(poptorch: Any, config: RunConfig, mode: Optional[str] = "All", period: Optional[int] = None) -> Any:
    """Options with the counts of a configuration; IPUs are rounded up to what can be reserved."""
    chosen = poptorch.Options().deviceIterations(config.device_iterations).replicationFactor(config.replicas)
    chosen.autoRoundNumIPUs(True)
    if config.training:
        chosen.Training.gradientAccumulation(config.gradient_accumulation)
    if mode is not None:
        chosen.outputMode(getattr(poptorch.OutputMode, mode), period)
    return chosen


def sgd(model: Any, **settings: Any) -> Any:
    """Plain gradient descent with the exact rate."""
    return torch.optim.SGD(model.parameters(), lr=RATE, **settings)


def trainer(
    poptorch: Any, config: Optional[RunConfig] = None, *, chosen: Optional[Any] = None, model: Optional[Any] = None
) -> Tuple[Any, Any]:
    """A training model with the counts of a configuration or the options ``chosen``, and the model that it wraps.

    The model is ``scale`` unless another is given, and plain gradient descent trains it.
    """
    model = scale(poptorch) if model is None else model
    if config is not None:
        chosen = options(poptorch, config)
    return poptorch.trainingModel(model, chosen, sgd(model)), model


def ran(poptorch: Any) -> Tuple[Any, Any]:
    """The training model of ``scale`` after one call, and the model that it wraps."""
    executor, model = trainer(poptorch)
    executor(samples(1))
    return executor, model


def plain_run(x: Any, config: RunConfig, *, calls: int = 1) -> Run:
    """The oracle's run of ``scale`` with one update per device iteration, on the same batch in every call."""
    record = exact.train(exact.products(), np.tile(x.numpy(), (calls, 1)), replace(config, steps=calls))
    return Run(
        [list(torch.tensor(exact.float32(each)).chunk(config.micro_batches)) for each in record.outputs or ()],
        [list(torch.tensor(exact.float32(each)).reshape(-1)) for each in record.losses],
        {"weight": torch.tensor(exact.float32((record.weights or {})["w0"]))},
    )


def assert_same(actual: Any, expected: Any, what: str) -> None:
    """Two tensors have the same shape, type and bits."""
    __tracebackhide__ = True
    check.identical(actual=actual.detach(), expected=expected.detach(), what=what)


def assert_weights(model: Any, expected: Dict[str, Any]) -> None:
    """The model has parameters of these names, with exactly these values."""
    __tracebackhide__ = True
    weights = dict(model.named_parameters())
    check.equal(actual=sorted(weights), expected=sorted(expected), what="the list of the parameters")
    for name, value in weights.items():
        assert_same(value, expected[name], name)
