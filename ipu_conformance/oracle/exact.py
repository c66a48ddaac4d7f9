"""Exact arithmetic: nets and samples whose training rounds nothing, so that devices are compared bit for bit.

Weights, samples and learning rates are small multiples of powers of two; sums and products of them are too, and any
order of computing gives the same bits. ``train`` proves that every time: it runs the oracle once more with every
intermediate value rounded to float32, and both runs must agree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Tuple

import numpy as np

from ipu_conformance.nets import INPUT, Data, Layer, Net, Weight
from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.tolerance.rounding import mantissa, nearest
from ipu_conformance.oracle.tolerance.runs import arrays_of
from ipu_conformance.oracle.training import train as training
from ipu_conformance.run import Array, RunConfig, RunRecord, Weights, learning_rate

STARTS = ((1.0, -2.0), (0.5, 1.5), (-1.0, 0.25), (2.0, 0.5))
"""The weights that the links of a chain of products begin with."""
SCALARS = (1.0, -2.0, 0.5, 1.5)
"""The same for a chain of scalars."""
REGRESSION_START = np.array([1.0, -2.0])
REGRESSION_RATE = 2.0**-2
"""The learning rate of the regression for a mean; a sum over a micro-batch is eight times as large."""


class Problem(NamedTuple):
    """A net, and the weights that it begins with."""

    net: Net
    weights: Weights


def products(links: int = 1) -> Problem:
    """x * w0 * w1 ..., element by element on two features; the loss is the distance from 1.

    The gradient is a sum of samples with signs that depend on the weights: not linear, and exact.
    """
    starts = {f"w{link}": np.array(STARTS[link]) for link in range(links)}
    return Problem(_product_net(starts, (2,), "l1_loss"), starts)


def scalar_products(links: int = 1, starts: Tuple[float, ...] = SCALARS) -> Problem:
    """x * w0 * w1 ... of scalars, which is the loss itself."""
    weights = {f"w{link}": np.array(starts[link]) for link in range(links)}
    return Problem(_product_net(weights, (), "sum"), weights)


def _product_net(starts: Weights, shape: Tuple[int, ...], loss: str) -> Net:
    inputs = (INPUT, *(f"product{link}" for link in range(len(starts))))
    layers = [Layer(after, "mul", (before,), (name,)) for before, after, name in zip(inputs, inputs[1:], starts)]
    return _net("products", shape, layers, starts, loss)


def folds(links: int = 1) -> Problem:
    """x * w + b, then |x| + b of every other link, with whole numbers for gradients; the loss is the sum."""
    weights = {"layers.0.weight": np.array([2.0, -1.0])}
    layers = [Layer("link0", "mul", (INPUT,), ("layers.0.weight",))]
    for link in range(links):
        bias = f"layers.{link}.bias"
        weights[bias] = np.array([0.5, -0.25]) * (link + 1)
        if link:
            layers.append(Layer(f"link{link}", "abs", (layers[-1].name,)))
        layers.append(Layer(f"sum{link}", "add", (layers[-1].name,), (bias,)))
    return Problem(_net("folds", (2,), layers, weights, "sum"), weights)


def _net(name: str, shape: Tuple[int, ...], layers: Any, weights: Weights, loss: str, reduction: str = "sum") -> Net:
    rows = tuple(Weight(weight, value.shape) for weight, value in weights.items())
    settings = () if loss == "sum" else (("reduction", reduction),)
    return Net(name, shape, 1, tuple(layers), rows, loss=loss, loss_settings=settings, labelled=loss != "sum")


def train(problem: Problem, inputs: Array, config: RunConfig) -> RunRecord:
    """The oracle's record of training on ``inputs``, the samples of all steps one after the other.

    Micro-batches are as large as the inputs make them. A run that float32 does not hold exactly is refused.
    """
    config = replace(config, micro_batch=len(inputs) // (config.steps * config.micro_batches))
    fed = np.asarray(inputs, np.float64).reshape(config.steps, config.combined_batch, *inputs.shape[1:])
    data, form = Data(fed, np.ones_like(fed)), mantissa("float32")
    record = training.train(problem.net, data, config, weights=problem.weights)
    rounded = training.train(
        problem.net, data, config, weights=problem.weights, rounding=lambda x, site: nearest(np.asarray(x), form)
    )
    expected = arrays_of(record)
    for path, value in arrays_of(rounded).items():
        if not np.array_equal(value, expected[path]):
            raise OracleError(f"{'/'.join(map(str, path))} is not exact in float32: choose other numbers")
    return record


def pairs(count: int) -> Array:
    """Distinct samples of two features for chains of products; a mean over 3 of them is exact too."""
    numbers = np.arange(count, dtype=np.float32)
    return np.stack([(numbers % 5 + 1) * np.float32(0.75), (numbers // 5 + 1) * np.float32(-0.375)], axis=1)


def scalars(count: int) -> Array:
    """Distinct scalars in no particular order; they repeat after 17."""
    return ((5 * np.arange(count) + 3) % 17 + 1).astype(np.float32) / np.float32(4)


def offsets(count: int) -> Array:
    """Distinct samples of two features on both sides of zero, for folds."""
    numbers = np.arange(count, dtype=np.float32)
    return np.stack([numbers % 7 - 3, numbers * np.float32(0.25) - np.float32(count / 16)], axis=1)


def regression_samples(count: int, first: int = 0) -> Array:
    """Samples of two features for the regression; no two of the first twelve are alike."""
    numbers = np.arange(first, first + count)
    return np.stack([(numbers % 4 + 1) * 0.5, (numbers % 3 - 0.5) * 1.0], axis=1).astype(np.float32)


def regression_targets(count: int, first: int = 0) -> Array:
    """What the regression should make of the samples."""
    numbers = np.arange(first, first + count)
    return np.stack([numbers % 5 * 0.5, numbers % 2 * -0.5], axis=1).astype(np.float32)


class Step(NamedTuple):
    """One step of the regression: outputs and losses with the weight before it, and the weight after it."""

    out: Array
    loss: Array
    weight: Array


def regression_step(
    weight: Array, x: Array, y: Array, *, rate: float = REGRESSION_RATE, reduction: str = "mean"
) -> Step:
    """One step down the gradient of (x w - y)^2; a loss that is not reduced has the gradient of its sum."""
    layers = [Layer("product", "mul", (INPUT,), ("w",))]
    net = _net("regression", (2,), layers, {"w": weight}, "mse_loss", reduction)
    config = RunConfig(micro_batch=len(x), learning_rate=learning_rate(base=rate), output_layout="paddle")
    data = Data(x.astype(np.float64)[np.newaxis], y.astype(np.float64)[np.newaxis])
    record = training.train(net, data, config, weights={"w": np.asarray(weight, np.float64)})
    return Step((record.outputs or ())[0], record.losses[0], (record.weights or {})["w"])


def float32(value: Any) -> Array:
    """The value in float32, which must hold it exactly."""
    narrow = np.asarray(value).astype(np.float32)
    if not np.array_equal(narrow, value):
        raise OracleError("the value is not exact in float32: choose other numbers")
    return narrow


def half(value: Any) -> Array:
    """The nearest float16, in float64."""
    return np.asarray(value, np.float64).astype(np.float16).astype(np.float64)


def inexact_in_half(value: Array) -> Array:
    """Values times a factor that needs more than the eleven bits of float16, as do their products."""
    return value * np.float32(1 + 2.0**-7 + 2.0**-9 + 2.0**-13)
