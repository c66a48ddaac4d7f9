"""The digits workload trains on the device as its native twin does, however many replicas share a batch."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, ArrayTolerance
from ipu_conformance.workloads.keras_mnist import Settings
from ipu_conformance.workloads.keras_mnist.reference import SHORT as RECORDED
from ipu_conformance.workloads.reference import verdict

from ...training import native_reference
from .dumped import RATE, Watched, check_run, check_told, epochs, graphs_of, remembered, run, shared, taken, weights_of

SHORT = Settings(
    epochs=2, steps_per_epoch=6, steps_per_execution=3, train_size=100, test_size=40, batch_size=12, learning_rate=0.125
)
"""Two epochs of two executions each; they begin and end within a pass over the samples."""
WAYS: Dict[str, Settings] = {
    "one IPU": SHORT,
    "two replicas": replace(SHORT, replicas=2),
    "four replicas": replace(SHORT, replicas=4),
}
each_way = pytest.mark.parametrize(
    "way", [pytest.param(word, marks=pytest.mark.ipus(each.replicas)) for word, each in WAYS.items()]
)
WEIGHTS = ("hidden kernel", "hidden bias", "output kernel", "output bias")


Runs = Callable[[Settings], Watched]


@pytest.fixture(scope="session")
def runs() -> Runs:
    """Runs on the device, one for all cases that only look at it."""
    return remembered("keras_mnist")


data = functools.lru_cache(maxsize=None)(lambda: taken("keras_mnist", SHORT, SHORT.epochs * SHORT.steps_per_epoch))
"""What a run begins with and takes."""


def specified(dtype: str, order: int = -1) -> List[np.ndarray]:
    """The run in plain NumPy in a precision: two layers, their gradients and SGD.

    With an order of pixels and hidden units the mathematics stays the same and the roundings do not.
    """
    weights, batches, tests = data()
    pixels, units = np.arange(weights[0].shape[0]), np.arange(weights[0].shape[1])
    if order >= 0:
        random = np.random.default_rng(order)
        pixels, units = random.permutation(pixels), random.permutation(units)
    kernel, bias = weights[0].astype(dtype)[pixels][:, units], weights[1].astype(dtype)[units]
    out_kernel, out_bias = weights[2].astype(dtype)[units], weights[3].astype(dtype)
    rate = np.dtype(dtype).type(SHORT.learning_rate)

    def forward(images: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        hidden = np.maximum(images @ kernel + bias, 0)
        scores = hidden @ out_kernel + out_bias
        grown = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, grown / grown.sum(axis=1, keepdims=True)

    losses = []
    for images, labels in batches:
        images = images.reshape(len(labels), -1).astype(dtype)[:, pixels]
        hidden, probabilities = forward(images)
        rows = np.arange(len(labels))
        losses.append(-np.log(probabilities[rows, labels]).mean())
        backward = probabilities.copy()
        backward[rows, labels] -= 1
        backward /= np.dtype(dtype).type(len(labels))
        inner = (backward @ out_kernel.T) * (hidden > 0)
        out_kernel = out_kernel - rate * (hidden.T @ backward)
        out_bias = out_bias - rate * backward.sum(axis=0)
        kernel = kernel - rate * (images.T @ inner)
        bias = bias - rate * inner.sum(axis=0)
    _, probabilities = forward(tests.reshape(len(tests), -1).astype(dtype)[:, pixels])
    back, straight = np.argsort(pixels), np.argsort(units)
    means = np.array(losses).reshape(SHORT.epochs, -1).mean(axis=1)
    learned = kernel[back][:, straight], bias[straight], out_kernel[straight], out_bias
    return [value.astype(np.float64) for value in (means, probabilities, *learned)]


@functools.lru_cache(maxsize=None)
def noise() -> List[Tuple[np.ndarray, ArrayTolerance]]:
    """Losses, final probabilities and final weights in float64, each with the tolerance that float32 needs."""
    others = [specified("float32", order) for order in range(LEAST_RUNS)]
    return native_reference(specified("float64"), specified("float32"), others, "pixels and hidden units")


@each_way
def test_the_device_trains_as_its_native_twin(runs: Runs, way: str) -> None:
    """Losses are those of all steps and replicas of an epoch, weights and probabilities those of plain NumPy.

    An update is that of one batch, however many replicas share it; test samples come back in their order.
    """
    check_run(runs(WAYS[way]).result, WEIGHTS, noise())


@each_way
def test_the_executed_dumps_are_what_the_device_did(runs: Runs, way: str) -> None:
    """Losses and accuracies of epochs, trained weights and probabilities are those of the device's own programs."""
    settings, ran = WAYS[way], runs(WAYS[way])
    training, testing = graphs_of(ran)
    weights, batches, tests = data()
    names = weights_of(testing)
    size = settings.batch_size // settings.replicas
    elements = shared(batches, size)
    held = {**dict(zip(names, weights)), RATE: np.asarray(settings.learning_rate / settings.replicas)}
    told = list(epochs(training, held, elements, settings.epochs))

    accuracies, losses = (np.array([each.outputs[name][-1, 0, 0] for each in told]) for name in training.outputs[:2])
    seen, told_shares = (np.asarray(each, np.float32) for each in (ran.result.training_accuracies, accuracies))
    check.identical(actual=seen, expected=told_shares, what="the share that is recognised in each epoch")
    parts = tests.reshape(-1, settings.test_batch, *tests.shape[1:])
    check_told(ran.result, (losses, told[-1].variables[0]), testing, parts, names, noise())


def check_same(actual: Any, expected: Any) -> None:
    """Two runs have the same losses and weights."""
    __tracebackhide__ = True
    check.equal(actual=actual.losses, expected=expected.losses, what="the losses of epochs")
    for name, value, other in zip(WEIGHTS, actual.weights, expected.weights):
        check.identical(actual=value, expected=other, what=f"the {name}")


def test_the_length_of_an_execution_changes_no_bit(runs: Runs) -> None:
    """However many steps the device takes on its own, the weights and the losses of epochs are the same."""
    for steps in (1, 6):
        check_same(runs(replace(SHORT, steps_per_execution=steps)).result, runs(SHORT).result)


def test_a_seed_makes_a_run_repeatable(runs: Runs) -> None:
    """The same seed gives the same bits; another one does not."""
    again, other = (run("keras_mnist", replace(SHORT, seed=seed)).result for seed in (SHORT.seed, SHORT.seed + 1))

    check_same(again, runs(SHORT).result)
    check.differs(actual=other.losses, other=again.losses, what="the losses of another seed")


def test_the_workload_converges_like_its_baseline() -> None:
    """The losses of runs with new seeds lie in the band of the native runs, neither below nor above; they learn."""
    from ipu_conformance.data import load

    runs = [run("keras_mnist", replace(RECORDED.settings, seed=seed)).result for seed in (1000, 1001, 1002)]
    band = verdict(RECORDED, runs)

    check.holds(band.passed, band.sentence)
    labels = load(RECORDED.settings.data, train=RECORDED.settings.train_size, test=0).train.labels
    # The best model that does not look at the images has the entropy of the labels.
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    last, blind = max(each.losses[-1] for each in runs), float(-(shares * np.log(shares)).sum())
    check.holds(last < blind, f"a run ends at a loss of {last}, and a blind model at {blind}")
