"""The network on small pictures trains on the device as its native twin does, with every approach to it."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.convergence.band import Verdict
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, ArrayTolerance
from ipu_conformance.workloads.keras_cifar10 import APPROACHES, Settings
from ipu_conformance.workloads.keras_cifar10.reference import SHORT as RECORDED
from ipu_conformance.workloads.reference import verdict

from ...training import native_reference

SHORT = Settings(epochs=2, train_size=12, test_size=10, batch_size=4, learning_rate=0.015625, dropout=False)
"""Two epochs of three updates, without random numbers on the device."""
WAYS: Dict[str, Settings] = {
    "strategy, one IPU": SHORT,
    "strategy, two IPUs": replace(SHORT, ipus=2),
    "strategy, two micro-batches": replace(SHORT, gradient_accumulation_count=2),
    "estimator, one IPU": replace(SHORT, approach="estimator"),
    "estimator, two micro-batches": replace(SHORT, approach="estimator", gradient_accumulation_count=2),
    "replica, two IPUs": replace(SHORT, approach="replica", ipus=2),
    "replica, two IPUs, two micro-batches": replace(SHORT, approach="replica", ipus=2, gradient_accumulation_count=2),
    "pipeline, two IPUs": replace(SHORT, approach="pipeline", ipus=2, gradient_accumulation_count=4),
}


def marks(settings: Settings) -> List[Any]:
    """What a way takes."""
    estimated = settings.approach != "strategy"
    return [
        pytest.mark.ipus(settings.ipus),
        *([pytest.mark.requires("tensorflow_estimator")] if estimated else []),
    ]


each_way = pytest.mark.parametrize("way", [pytest.param(word, marks=marks(each)) for word, each in WAYS.items()])


def train(settings: Settings) -> Any:
    """A run of the workload on the device."""
    from ipu_conformance.workloads.keras_cifar10.training import train as run

    return run(settings, native=False)


def reordered(weights: Sequence[np.ndarray], seed: int) -> List[np.ndarray]:
    """The weights of a network that computes the same with its channels and hidden units in another order."""
    random = np.random.default_rng(seed)
    orders = [random.permutation(kernel.shape[-1]) for kernel in weights[:-2:2]]
    changed: List[np.ndarray] = []
    inner = np.arange(weights[0].shape[2])
    for kernel, bias, order in zip(weights[::2], weights[1::2], [*orders, np.arange(weights[-1].shape[0])]):
        if kernel.ndim == 2 and kernel.shape[0] != len(inner):
            # Flattened pictures: every pixel has all channels, one beside the other.
            pixels = kernel.shape[0] // len(inner)
            inner = (np.arange(pixels)[:, np.newaxis] * len(inner) + inner).reshape(-1)
        changed += [np.take(np.take(kernel, inner, axis=-2), order, axis=-1), bias[order]]
        inner = order
    return changed


@functools.lru_cache(maxsize=None)
def noise() -> List[Tuple[np.ndarray, ArrayTolerance]]:
    """Losses and final probabilities in float64, each with the tolerance that float32 needs.

    The deviations are those of float32 runs whose channels stand in other orders: the same mathematics with other
    roundings.
    """
    import tensorflow as tf

    from ipu_conformance.workloads.keras.data import test_set, training_set
    from ipu_conformance.workloads.keras_cifar10.training import job_of

    job = job_of(SHORT)
    taken = list(training_set(job.data.train, SHORT.batch_size, SHORT.seed).take(SHORT.epochs * SHORT.steps))
    ((tests, _),) = test_set(job.data.test, SHORT.test_size)
    initial = job.build().get_weights()

    def runs(dtype: str, starts: Sequence[Sequence[np.ndarray]]) -> List[Tuple[np.ndarray, np.ndarray]]:
        before = tf.keras.backend.floatx()
        tf.keras.backend.set_floatx(dtype)
        try:
            model = job.build()
            variables = model.trainable_variables

            @tf.function
            def step(images: Any, labels: Any) -> Any:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(
                        tf.keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True))
                    )
                for variable, gradient in zip(variables, tape.gradient(loss, variables)):
                    variable.assign_sub(SHORT.learning_rate * gradient)
                return loss

            results = []
            for start in starts:
                model.set_weights(start)
                losses = [float(step(tf.cast(images, dtype), labels)) for images, labels in taken]
                means = np.array(losses).reshape(SHORT.epochs, -1).mean(axis=1)
                results.append((means, np.array(model(tf.cast(tests, dtype)), np.float64)))
            return results
        finally:
            tf.keras.backend.set_floatx(before)

    (exact,) = runs("float64", [initial])
    plain, *others = runs("float32", [initial, *(reordered(initial, order) for order in range(LEAST_RUNS))])
    tf.keras.backend.clear_session()
    return native_reference(exact, plain, others, "channels")


@each_way
def test_the_device_trains_as_its_native_twin(trained: Any, way: str) -> None:
    """The loss of each epoch is that of plain TensorFlow on the same batches, from the same initial weights."""
    expected, tolerance = noise()[0]

    check.close(
        actual=np.array(trained(WAYS[way]).losses),
        expected=expected,
        tolerance=tolerance,
        what="the loss of each epoch",
    )


@each_way
def test_the_device_classifies_as_its_native_twin(trained: Any, way: str) -> None:
    """The probabilities of all test samples are those that plain TensorFlow's weights give after as many updates."""
    expected, tolerance = noise()[1]
    run = trained(WAYS[way])

    check.close(
        actual=run.probabilities, expected=expected, tolerance=tolerance, what="the probabilities of the test set"
    )
    right = run.accuracy * SHORT.test_size
    check.equal(actual=right, expected=round(right), what="the number of images that are recognised")


@pytest.mark.parametrize(
    "way",
    [
        "strategy, one IPU",
        *(pytest.param(way, marks=marks(WAYS[way])) for way in ("estimator, one IPU", "pipeline, two IPUs")),
    ],
)
def test_dropout_is_random_in_training_and_absent_in_tests(trained: Any, way: str) -> None:
    """Dropout changes the loss of the first update on; a seed makes it repeatable."""
    once = replace(WAYS[way], epochs=1, train_size=SHORT.batch_size)
    first, again = (train(replace(once, dropout=True)) for _ in range(2))

    check.equal(actual=again.losses, expected=first.losses, what="the losses of the same seed")
    check.differs(actual=trained(once).losses, other=first.losses, what="the losses without dropout")
    check.identical(actual=again.probabilities, expected=first.probabilities, what="the probabilities of the test set")


CONVERGING: Dict[str, Settings] = {
    name: replace(RECORDED.settings, approach=name, seed=seed, **approach._asdict())
    for seed, (name, approach) in enumerate(APPROACHES.items(), start=1000)
}
"""Every approach with the baseline's budget, and seeds that the baseline does not have."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(each)) for name, each in CONVERGING.items()])
def test_an_approach_converges_like_the_baseline(trained: Any, converges: Callable[[Verdict], None], name: str) -> None:
    """The losses of a run lie in the band of the native runs, neither below nor above."""
    converges(verdict(RECORDED, [trained(CONVERGING[name])]))


@pytest.mark.ipus(2)
@pytest.mark.requires("tensorflow_estimator")
def test_the_approaches_together_converge_like_the_baseline(trained: Any, converges: Callable[[Verdict], None]) -> None:
    """The mean over the approaches, which do the same mathematics, lies in a narrower band."""
    converges(verdict(RECORDED, [trained(settings) for settings in CONVERGING.values()]))


PIPELINED = [replace(CONVERGING["pipeline"], seed=seed) for seed in (CONVERGING["pipeline"].seed, 1010, 1011)]
"""Of three runs together the band is so narrow that gradients which are summed instead of averaged leave it."""


@pytest.mark.ipus(2)
@pytest.mark.requires("tensorflow_estimator")
def test_pipelines_together_converge_like_the_baseline(trained: Any, converges: Callable[[Verdict], None]) -> None:
    """The mean over pipelined runs of three seeds lies in a narrower band."""
    converges(verdict(RECORDED, [trained(settings) for settings in PIPELINED]))
