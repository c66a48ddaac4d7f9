"""The network on small pictures trains on the device as its native twin does, with every approach to it."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.ir import Graph
from ipu_conformance.oracle.convergence.band import Verdict
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, ArrayTolerance
from ipu_conformance.workloads.keras_cifar10 import APPROACHES, Settings
from ipu_conformance.workloads.keras_cifar10.reference import SHORT as RECORDED
from ipu_conformance.workloads.reference import verdict

from ...training import native_reference
from . import dumped
from .dumped import Elements, Held, Told, Watched, executed, run

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
    estimated = [] if settings.approach == "strategy" else [pytest.mark.requires("tensorflow_estimator")]
    return [pytest.mark.ipus(settings.ipus), *estimated]


each_way = pytest.mark.parametrize("way", [pytest.param(word, marks=marks(each)) for word, each in WAYS.items()])


Runs = Callable[[Settings], Watched]


@pytest.fixture(scope="session")
def runs() -> Runs:
    """Runs on the device, one for all cases that only look at it."""
    return dumped.remembered("keras_cifar10")


def reordered(weights: Sequence[np.ndarray], seed: int, *, back: bool = False) -> List[np.ndarray]:
    """The weights of a network that computes the same with its channels and hidden units in another order, or back."""
    random = np.random.default_rng(seed)
    orders = [random.permutation(kernel.shape[-1]) for kernel in weights[:-2:2]]
    orders = [np.argsort(order) for order in orders] if back else orders
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


data = functools.lru_cache(maxsize=None)(lambda: dumped.taken("keras_cifar10", SHORT, SHORT.epochs * SHORT.steps))
"""What a run begins with and takes."""


@functools.lru_cache(maxsize=None)
def noise() -> List[Tuple[np.ndarray, ArrayTolerance]]:
    """Losses, final probabilities and final weights in float64, each with the tolerance that float32 needs.

    The deviations are those of float32 runs whose channels stand in other orders: the same mathematics with other
    roundings.
    """
    import tensorflow as tf

    from ipu_conformance.workloads.keras_cifar10.training import job_of

    job = job_of(SHORT)
    initial, batches, tests = data()

    def runs(dtype: str, orders: Sequence[Optional[int]]) -> List[Tuple[np.ndarray, ...]]:
        # A policy that was ever set stays in force, whatever the type of floats is then.
        before, policy = tf.keras.backend.floatx(), tf.keras.mixed_precision.global_policy()
        tf.keras.backend.set_floatx(dtype)
        tf.keras.mixed_precision.set_global_policy(dtype)
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
            for order in orders:
                model.set_weights(initial if order is None else reordered(initial, order))
                losses = [float(step(tf.cast(images, dtype), labels)) for images, labels in batches]
                means = np.array(losses).reshape(SHORT.epochs, -1).mean(axis=1)
                end = model.get_weights() if order is None else reordered(model.get_weights(), order, back=True)
                probabilities = np.array(model(tf.cast(tests, dtype)))
                results.append((means, *(np.asarray(value, np.float64) for value in (probabilities, *end))))
            return results
        finally:
            tf.keras.backend.set_floatx(before)
            tf.keras.mixed_precision.set_global_policy(policy)

    (exact,) = runs("float64", [None])
    plain, *others = runs("float32", [None, *range(LEAST_RUNS)])
    tf.keras.backend.clear_session()
    return native_reference(exact, plain, others, "channels")


@each_way
def test_the_device_trains_as_its_native_twin(runs: Runs, way: str) -> None:
    """Losses, weights and probabilities are those of plain TensorFlow on the same batches from the same weights.

    An update is that of one batch, however replicas, micro-batches and stages share it.
    """
    result = runs(WAYS[way]).result

    dumped.check_run(result, [f"weight {number} of the network" for number in range(len(result.weights))], noise())
    right = result.accuracy * SHORT.test_size
    check.equal(actual=right, expected=round(right), what="the number of images that are recognised")


@each_way
def test_the_executed_dumps_are_what_the_device_did(runs: Runs, way: str) -> None:
    """Losses of epochs, trained weights and probabilities are those of the programs that the device was given."""
    settings, ran = WAYS[way], runs(WAYS[way])
    training, testing = dumped.graphs_of(ran)
    initial, batches, tests = data()
    names = dumped.weights_of(testing)
    held = {**dict(zip(names, initial)), dumped.RATE: np.asarray(settings.learning_rate / settings.replicas)}
    told = TELLING.get(settings.approach, of_estimator)(
        settings, training, held, dumped.shared(batches, settings.micro_batch)
    )

    parts = tests.reshape(-1, settings.test_batch, *tests.shape[1:])
    dumped.check_told(ran.result, told, testing, parts, names, noise())


def of_strategy(settings: Settings, graph: Graph, held: Held, elements: Elements) -> Told:
    """The last logs of every epoch, and the variables at the end; a model's logs are in the order of their names."""
    told = list(dumped.epochs(graph, held, elements, settings.epochs))
    return np.array([each.outputs[graph.outputs[1]][-1, 0, 0] for each in told]), told[-1].variables[0]


def of_estimator(settings: Settings, graph: Graph, held: Held, elements: Elements) -> Told:
    """The mean of the losses that the loops of an epoch return."""
    outcome = executed(graph, held, elements)
    return outcome.outputs[dumped.left_by(graph)[0]].reshape(settings.epochs, -1).mean(axis=1), outcome.variables[0]


def of_pipeline(settings: Settings, graph: Graph, held: Held, elements: Elements) -> Told:
    """The mean of the losses that the runs of an epoch leave, each the sum over its micro-batches."""
    outcome = executed(graph, held, elements)
    sums = np.stack([outcome.outputs[name] for name in dumped.left_by(graph)], axis=1)
    return sums.reshape(settings.epochs, -1).mean(axis=1) / settings.gradient_accumulation_count, outcome.variables[0]


TELLING: Mapping[str, Callable[[Settings, Graph, Held, Elements], Told]] = {
    "strategy": of_strategy,
    "pipeline": of_pipeline,
}


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=marks(WAYS[way]))
        for way in ("strategy, one IPU", "estimator, one IPU", "pipeline, two IPUs")
    ],
)
def test_dropout_is_random_in_training_and_absent_in_tests(runs: Runs, way: str) -> None:
    """Dropout changes the loss of the first update on; a seed makes it repeatable."""
    once = replace(WAYS[way], epochs=1, train_size=SHORT.batch_size)
    first, again = (run("keras_cifar10", replace(once, dropout=True)).result for _ in range(2))

    check.equal(actual=again.losses, expected=first.losses, what="the losses of the same seed")
    check.differs(actual=runs(once).result.losses, other=first.losses, what="the losses without dropout")
    check.identical(actual=again.probabilities, expected=first.probabilities, what="the probabilities of the test set")


CONVERGING: Dict[str, Settings] = {
    name: replace(RECORDED.settings, approach=name, seed=seed, **approach._asdict())
    for seed, (name, approach) in enumerate(APPROACHES.items(), start=1000)
}
"""Every approach with the baseline's budget, and seeds that the baseline does not have."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(each)) for name, each in CONVERGING.items()])
def test_an_approach_converges_like_the_baseline(runs: Runs, converges: Callable[[Verdict], None], name: str) -> None:
    """The losses of a run lie in the band of the native runs, neither below nor above."""
    converges(verdict(RECORDED, [runs(CONVERGING[name]).result]))


PIPELINED = [replace(CONVERGING["pipeline"], seed=seed) for seed in (CONVERGING["pipeline"].seed, 1010, 1011)]
"""Of three runs together the band is so narrow that gradients which are summed instead of averaged leave it."""


@pytest.mark.ipus(2)
@pytest.mark.requires("tensorflow_estimator")
@pytest.mark.parametrize("together", [CONVERGING.values(), PIPELINED], ids=["approaches", "pipelines"])
def test_runs_together_converge_like_the_baseline(
    runs: Runs, converges: Callable[[Verdict], None], together: Iterable[Settings]
) -> None:
    """The mean over the approaches, which do the same mathematics, or over three seeds lies in a narrower band."""
    converges(verdict(RECORDED, [runs(settings).result for settings in together]))
