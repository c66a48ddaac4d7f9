"""The digits workload trains on the device as its native twin does, however many replicas share a batch."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, ArrayTolerance, from_runs
from ipu_conformance.workloads.keras_mnist import Settings
from ipu_conformance.workloads.keras_mnist.reference import SHORT as RECORDED
from ipu_conformance.workloads.reference import verdict

from .dumped import RATE, Watched, epochs, executed, graph_of, left_by, shared, watched, weights_of

SHORT = Settings(
    epochs=2,
    steps_per_epoch=6,
    steps_per_execution=3,
    train_size=100,
    test_size=40,
    batch_size=12,
    learning_rate=0.125,
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


def train(settings: Settings) -> Any:
    """A run of the workload on the device."""
    return run(settings).result


def run(settings: Settings) -> Watched:
    """A run of the workload on the device, with its programs."""
    from ipu_conformance.workloads.keras_mnist.training import train as running

    return watched(lambda watch: running(settings, native=False, watch=watch))


Runs = Callable[[Settings], Watched]


@pytest.fixture(scope="session")
def runs() -> Runs:
    """Runs on the device, one for all cases that only look at it."""
    return functools.lru_cache(maxsize=None)(run)


@pytest.fixture(scope="session")
def trained(runs: Runs) -> Callable[[Settings], Any]:
    """What these runs have given."""
    return lambda settings: runs(settings).result


@functools.lru_cache(maxsize=None)
def inputs() -> Tuple[Any, ...]:
    """The initial weights of a run, its batches in order and its test images, from the workload without a device."""
    import tensorflow as tf

    from ipu_conformance.workloads.keras.data import test_set, training_set
    from ipu_conformance.workloads.keras_mnist.training import job_of

    job = job_of(SHORT)
    taken = training_set(job.data.train, SHORT.batch_size, SHORT.seed).take(SHORT.epochs * SHORT.steps_per_epoch)
    batches = [(images.reshape(len(labels), -1), labels) for images, labels in taken.as_numpy_iterator()]
    ((tests, _),) = test_set(job.data.test, SHORT.test_size).as_numpy_iterator()
    weights = [np.array(value) for value in job.build().get_weights()]
    tf.keras.backend.clear_session()
    return weights, batches, tests.reshape(SHORT.test_size, -1)


def specified(dtype: str, order: int = -1) -> Dict[str, np.ndarray]:
    """The run in plain NumPy in a precision: two layers, their gradients and SGD.

    With an order of pixels and hidden units the mathematics stays the same and the roundings do not.
    """
    weights, batches, tests = inputs()
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
        images = images.astype(dtype)[:, pixels]
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
    _, probabilities = forward(tests.astype(dtype)[:, pixels])
    back, straight = np.argsort(pixels), np.argsort(units)
    arrays = (kernel[back][:, straight], bias[straight], out_kernel[straight], out_bias)
    return {
        "losses": np.array(losses).reshape(SHORT.epochs, -1).mean(axis=1).astype(np.float64),
        "probabilities": probabilities.astype(np.float64),
        **{name: value.astype(np.float64) for name, value in zip(WEIGHTS, arrays)},
    }


@functools.lru_cache(maxsize=None)
def noise() -> Dict[str, Tuple[np.ndarray, ArrayTolerance]]:
    """What a run gives in float64, each with the tolerance that float32 needs."""
    exact, plain = specified("float64"), specified("float32")
    runs = [specified("float32", order) for order in range(LEAST_RUNS)]
    how = f"float32, {LEAST_RUNS} NumPy runs with pixels and hidden units in other orders"
    allowed = from_runs(exact, runs, plain, how)
    return {name: (value, allowed[name]) for name, value in exact.items()}


@each_way
def test_the_loss_of_an_epoch_is_the_mean_over_its_samples(trained: Any, way: str) -> None:
    """The losses that are printed are those of all steps and all replicas of an epoch."""
    expected, tolerance = noise()["losses"]

    check.close(
        actual=np.array(trained(WAYS[way]).losses),
        expected=expected,
        tolerance=tolerance,
        what="the loss of each epoch",
    )


@each_way
def test_the_device_learns_the_weights_of_its_native_twin(trained: Any, way: str) -> None:
    """An update is that of one batch, however many replicas share it."""
    for name, value in zip(WEIGHTS, trained(WAYS[way]).weights):
        expected, tolerance = noise()[name]
        check.close(actual=value, expected=expected, tolerance=tolerance, what=f"the {name}")


@each_way
def test_the_device_classifies_as_its_native_twin(trained: Any, way: str) -> None:
    """All test samples come back in their order, with the probabilities that the trained weights give them."""
    expected, tolerance = noise()["probabilities"]

    check.close(
        actual=trained(WAYS[way]).probabilities,
        expected=expected,
        tolerance=tolerance,
        what="the probabilities of the test set",
    )


@each_way
def test_the_executed_dumps_are_what_the_device_did(runs: Runs, way: str) -> None:
    """Losses and accuracies of epochs, trained weights and probabilities are those of the device's own programs."""
    settings, (result, programs) = WAYS[way], runs(WAYS[way])
    training, testing = (graph_of(program) for program in programs)
    weights, batches, tests = inputs()
    names = weights_of(testing)
    size = settings.batch_size // settings.replicas
    elements = shared([(images.reshape(-1, 28, 28, 1), labels) for images, labels in batches], size)
    held = {**dict(zip(names, weights)), RATE: np.asarray(settings.learning_rate / settings.replicas)}
    told = list(epochs(training, held, elements, settings.epochs))

    end = told[-1].variables[0]
    parts = tests.reshape(-1, settings.test_batch, 28, 28, 1)
    classified = executed(testing, {name: end[name] for name in names}, [(each,) for each in parts])
    accuracies, losses = (np.array([each.outputs[name][-1, 0, 0] for each in told]) for name in training.outputs[:2])
    probabilities = classified.outputs[left_by(testing)[0]]
    check.identical(
        actual=np.array(result.training_accuracies, np.float32),
        expected=accuracies.astype(np.float32),
        what="the share that is recognised in each epoch",
    )
    rows = {"losses": (result.losses, losses), "probabilities": (result.probabilities, probabilities)}
    rows.update((key, (value, end[name])) for key, value, name in zip(WEIGHTS, result.weights, names))
    for key, (returned, expected) in rows.items():
        tolerance = noise()[key][1]
        values = expected.reshape(np.shape(returned))
        check.close(actual=np.asarray(returned), expected=values, tolerance=tolerance, what=f"the {key}")


def test_the_length_of_an_execution_changes_no_bit(trained: Any) -> None:
    """However many steps the device takes on its own, the weights and the losses of epochs are the same."""
    first, *others = (trained(replace(SHORT, steps_per_execution=steps)) for steps in (3, 1, 6))

    for other in others:
        check.equal(actual=other.losses, expected=first.losses, what="the losses of epochs")
        for name, value, expected in zip(WEIGHTS, other.weights, first.weights):
            check.identical(actual=value, expected=expected, what=f"the {name}")


def test_a_seed_makes_a_run_repeatable(trained: Any) -> None:
    """The same seed gives the same bits; another one does not."""
    again, other = train(SHORT), train(replace(SHORT, seed=SHORT.seed + 1))

    check.equal(actual=again.losses, expected=trained(SHORT).losses, what="the losses of the same seed")
    check.differs(actual=other.losses, other=again.losses, what="the losses of another seed")
    for name, value, expected in zip(WEIGHTS, again.weights, trained(SHORT).weights):
        check.identical(actual=value, expected=expected, what=f"the {name}")


def blind_loss(labels: np.ndarray) -> float:
    """The mean loss of the best model that does not look at the images: the entropy of the labels."""
    shares: List[float] = list(np.bincount(labels) / len(labels))
    return -sum(share * math.log(share) for share in shares if share)


def test_the_workload_converges_like_its_baseline() -> None:
    """The losses of runs with new seeds lie in the band of the native runs, neither below nor above; they learn."""
    from ipu_conformance.data import load

    runs = [train(replace(RECORDED.settings, seed=seed)) for seed in (1000, 1001, 1002)]
    band = verdict(RECORDED, runs)

    check.holds(band.passed, band.sentence)
    labels = load(RECORDED.settings.data, train=RECORDED.settings.train_size, test=0).train.labels
    last, blind = max(run.losses[-1] for run in runs), blind_loss(labels)
    check.holds(last < blind, f"a run ends at a loss of {last}, and a blind model at {blind}")
