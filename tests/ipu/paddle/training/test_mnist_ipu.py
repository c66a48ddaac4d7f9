"""The digits workload trains on the device as its native twin does, however its IPUs share the work."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np
import pytest

from ipu_conformance import check, frameworks
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, ArrayTolerance
from ipu_conformance.workloads.paddle_mnist import Settings
from ipu_conformance.workloads.paddle_mnist.digits import Samples, datasets, filled, in_order

from ...training import native_reference
from ...training.executed import told_by

SHORT = Settings(epochs=1, train_size=5 * 24, test_size=31, batch_size=24)
"""Five updates; the last batch of tests is not full."""
WAYS: Dict[str, Settings] = {
    "one IPU": SHORT,
    "replicas": replace(SHORT, num_ipus=3, replication_factor=3),
    "shards": replace(SHORT, num_ipus=2, pipelining=False),
    "pipeline": replace(SHORT, num_ipus=2),
    "replicated pipeline": replace(SHORT, num_ipus=4, replication_factor=2),
    "replicated shards": replace(SHORT, num_ipus=6, replication_factor=3, pipelining=False),
}
each_way = pytest.mark.parametrize(
    "way", [pytest.param(word, marks=pytest.mark.ipus(each.num_ipus)) for word, each in WAYS.items()]
)


@functools.lru_cache(maxsize=None)
def modules() -> Any:
    """The modules of Paddle, and those of the workload that import it."""
    names = ("ipu", "model", "trainers", "training")
    workload = {name: importlib.import_module(f"ipu_conformance.workloads.paddle_mnist.{name}") for name in names}
    return SimpleNamespace(paddle=importlib.import_module("paddle"), **workload)


@pytest.fixture(autouse=True)
def own_state(paddle: Any) -> None:
    """The workload finds and leaves Paddle in dynamic mode."""


def train(settings: Settings) -> Any:
    """A run of the workload on the device."""
    return modules().training.train(settings, native=False, every=2)


def reordered(weights: Dict[str, np.ndarray], seed: int, *, back: bool = False) -> Dict[str, np.ndarray]:
    """The weights of a network that computes the same with its channels in another order, or back."""
    random = np.random.default_rng(seed)
    orders = random.permutation(20), random.permutation(50)
    first, second = (np.argsort(order) if back else order for order in orders)
    changed = {name: value[first] for name, value in weights.items() if name.startswith(("conv1.", "norm."))}
    changed["conv2.weight"] = weights["conv2.weight"][second][:, first]
    changed["conv2.bias"] = weights["conv2.bias"][second]
    changed["fc.bias"] = weights["fc.bias"]
    changed["fc.weight"] = weights["fc.weight"].reshape(50, 16, 10)[second].reshape(800, 10)
    return changed


def batches(settings: Settings) -> Iterator[Samples]:
    """The batches of a run in order."""
    training = datasets(settings)[0]
    for epoch in range(1, settings.epochs + 1):
        yield from in_order(training, settings, epoch)


class Twin(NamedTuple):
    """A native training Program, the Program of its initial values, its cost; and one for evaluation."""

    main: Any
    startup: Any
    cost: Any
    evaluation: Any
    prediction: Any


@functools.lru_cache(maxsize=None)
def native_twin(settings: Settings, dtype: str) -> Twin:
    """One Program that holds the network once for every micro-batch of an update.

    They share the weights, those of one replica share the statistics too, and the cost is the mean of theirs.
    """
    paddle, model = modules().paddle, modules().model
    replicas, parts = settings.replication_factor, settings.replication_factor * settings.accumulation
    with model.new_programs(settings.seed) as (main, startup):
        image, label = model.inputs(settings.batch_size, dtype)
        costs = []
        for number, (images, labels) in enumerate(zip(paddle.split(image, parts), paddle.split(label, parts))):
            norm = "norm" if number % replicas == 0 else f"norm{number % replicas}"
            costs.append(paddle.mean(model.classify(images, labels, training=True, norm=norm)[1]))
        cost = paddle.add_n(costs) / parts
        paddle.optimizer.Adam(learning_rate=settings.learning_rate).minimize(cost)
    with model.new_programs(settings.seed) as (evaluation, _):
        prediction = model.classify(*model.inputs(settings.test_size, dtype), training=False)[0]
    return Twin(main, startup, cost, evaluation, prediction)


def native_run(settings: Settings, dtype: str, order: int = -1) -> Tuple[np.ndarray, ...]:
    """The costs, final test probabilities and final weights of plain Paddle in a precision, with an order of channels.

    Weights are in the order of their names; statistics are those of the first replica.
    """
    paddle, model = modules().paddle, modules().model
    # The initial weights of every precision are those of float32.
    held = initial_weights(settings)
    held = reordered(held, order) if order >= 0 else held
    with model.static_mode():
        twin = native_twin(settings, dtype)
        scope, executor = paddle.static.Scope(), paddle.static.Executor(paddle.CPUPlace())
        executor.run(twin.startup, scope=scope)
        modules().trainers.put({name: value.astype(dtype) for name, value in held.items()}, scope)

        def run(program: Any, samples: Samples, fetched: Any) -> np.ndarray:
            feed = {model.IMAGE: samples.images.astype(dtype), model.LABEL: samples.labels}
            return np.array(executor.run(program, feed=feed, fetch_list=[fetched], scope=scope)[0], np.float64)

        costs = [run(twin.main, batch, twin.cost) for batch in batches(settings)]
        probabilities = run(twin.evaluation, datasets(settings)[1], twin.prediction)
        end = {name: np.array(scope.find_var(name).get_tensor(), np.float64) for name, _ in _initial(settings.seed)}
        end = reordered(end, order, back=True) if order >= 0 else end
        return (np.array(costs).reshape(-1), probabilities, *(end[name] for name in sorted(end)))


@functools.lru_cache(maxsize=None)
def _initial(seed: int) -> Tuple[Tuple[str, np.ndarray], ...]:
    settings, trainers = replace(SHORT, seed=seed), modules().trainers
    with modules().model.static_mode():
        host = trainers.Host(settings)
        trainers.NativeTrainer(settings, host)
        return tuple(host.weights().items())


def initial_weights(settings: Settings) -> Dict[str, np.ndarray]:
    """What a run begins with; the statistics of all replicas begin as those of the first."""
    weights = dict(_initial(settings.seed))
    return {name: value for name, value in weights.items() if not name.endswith((".mean", ".variance"))}


@functools.lru_cache(maxsize=None)
def noise(replicas: int, accumulation: int) -> List[Tuple[np.ndarray, ArrayTolerance]]:
    """Costs, final probabilities and weights in float64, each with the tolerance that float32 needs.

    The deviations are those of float32 runs whose channels stand in other orders: the same mathematics with other
    roundings. Where the stages of a replica are does not matter to them.
    """
    settings = replace(SHORT, num_ipus=replicas * (1 if accumulation == 1 else 2), replication_factor=replicas)
    shared = settings.replication_factor, settings.accumulation
    check.equal(actual=shared, expected=(replicas, accumulation), what="how the settings share a batch")
    exact = native_run(settings, "float64")
    plain = native_run(settings, "float32")
    runs = [native_run(settings, "float32", order) for order in range(LEAST_RUNS)]
    return native_reference(exact, plain, runs, "channels")


@each_way
def test_the_device_trains_as_its_native_twin(trained: Any, way: str) -> None:
    """Batch by batch the costs are those of plain Paddle on the same batches, from the same initial weights."""
    expected, tolerance = noise(WAYS[way].replication_factor, WAYS[way].accumulation)[0]
    costs = np.asarray(trained(WAYS[way]).costs)

    check.close(actual=costs, expected=expected, tolerance=tolerance, what="the cost of each batch")


@each_way
def test_the_executed_dump_is_what_the_device_did(trained: Any, way: str) -> None:
    """What the program compiles to, executed on all batches of the run, has its costs, weights and statistics."""
    settings = WAYS[way]
    with modules().model.static_mode():
        host = modules().trainers.Host(settings)
        side = modules().ipu.IpuTrainer(settings, host)
        held, graph = host.weights(), frameworks.ir("paddle", side.compiled)
        every = list(batches(settings))
        frameworks.observe("paddle", side.compiled)
        side.train(every[0])
        frameworks.trace("paddle", side.compiled, settings.replication_factor, "paddle-mnist")
    fed = [np.stack([batch.images for batch in every]), np.stack([batch.labels for batch in every])]
    counts = (len(every), settings.accumulation, settings.replication_factor)
    told = told_by(graph, held, fed, counts, schedule="grouped" if settings.pipelined else "sequential")
    costs = told.losses.reshape(len(every), -1).mean(axis=1)

    (_, allowed), _, *tolerances = noise(settings.replication_factor, settings.accumulation)
    run = trained(settings)
    check.close(actual=np.asarray(run.costs), expected=costs, tolerance=allowed, what="the cost of each batch")
    for name, (_, tolerance) in zip(sorted(held), tolerances):
        value = told.variables[name].reshape(run.weights[name].shape)
        check.close(actual=run.weights[name], expected=value, tolerance=tolerance, what=name)


def test_the_executed_dump_classifies_as_the_device(trained: Any) -> None:
    """What the evaluation compiles to has the device's probabilities, with the weights that the run brought home."""
    weights, tests = trained(SHORT).weights, datasets(SHORT)[1]
    with modules().model.static_mode():
        side = modules().ipu.IpuTrainer(SHORT, modules().trainers.Host(SHORT))
        returned = side.classify(tests, weights)
        graph = frameworks.ir("paddle", side.classifier.compiled)
    parts = [part.images for part, _ in filled(tests, SHORT.batch_size)]
    told = told_by(graph, weights, [np.stack(parts)], (len(parts), 1, 1)).outputs

    _, (_, allowed), *_ = noise(1, 1)
    expected = told.reshape(-1, returned.shape[-1])[: len(returned)]
    check.close(actual=returned, expected=expected, tolerance=allowed, what="the probabilities of the tests")


def probabilities(settings: Settings, weights: Any, *, after: int = 0) -> np.ndarray:
    """What the device makes of the test set with given weights, after some updates of its own."""
    with modules().model.static_mode():
        trainer = modules().training.make_trainer(settings, modules().trainers.Host(settings), native=False)
        for _, batch in zip(range(after), batches(settings)):
            trainer.train(batch)
        return trainer.classify(datasets(settings)[1], weights)


@each_way
def test_the_device_classifies_as_its_native_twin(trained: Any, way: str) -> None:
    """With the weights that the run brought home, the statistics of its first replica among them, the device gives the
    test set the probabilities that the native twin gives it."""
    expected, tolerance = noise(WAYS[way].replication_factor, WAYS[way].accumulation)[1]
    found = probabilities(SHORT, trained(WAYS[way]).weights)

    check.close(actual=found, expected=expected, tolerance=tolerance, what="the probabilities of the test set")


def test_the_device_classifies_with_the_weights_it_is_given(trained: Any) -> None:
    """What the device has learnt since does not change the model of the best pass."""
    weights = trained(SHORT).weights
    found, expected = (probabilities(SHORT, weights, after=updates) for updates in (2, 0))

    check.identical(actual=found, expected=expected, what="the probabilities of the test set")


@each_way
def test_the_accuracy_is_that_of_the_best_pass(trained: Any, way: str) -> None:
    """It is a share of the whole test set, and the device finds what the validation of that pass found."""
    result = trained(WAYS[way])

    shares = np.arange(SHORT.test_size + 1) / SHORT.test_size
    best = result.passes[result.best - 1].accuracy
    batches = [each.batches for each in result.validations]
    check.equal(actual=result.accuracy, expected=best, what="the accuracy")
    check.contains(actual=shares.astype(np.float32), expected=np.float32(best), what="the possible accuracies")
    check.equal(actual=batches, expected=[2, 4, 5], what="the batches before validations")


def test_validations_see_the_weights_of_the_device(trained: Any) -> None:
    """Each validation costs what the native twin's network costs after as many updates, and no two cost the same."""
    own = [each.cost for each in modules().training.train(SHORT, native=True, every=2).validations]
    found = [each.cost for each in trained(SHORT).validations]
    tolerance = noise(1, 1)[0][1]

    check.equal(actual=len(set(found)), expected=len(found), what="the number of different costs")
    # Costs of tests and of training have noise of one origin: the most that any batch is allowed is taken.
    allowed = replace(tolerance, allowed=np.full(len(found), tolerance.allowed.max()))
    what = "the cost of each validation"
    check.close(actual=np.array(found), expected=np.array(own), tolerance=allowed, what=what)


@pytest.mark.parametrize("way", [pytest.param("replicated pipeline", marks=pytest.mark.ipus(4))])
def test_a_seed_makes_a_run_repeatable(way: str) -> None:
    """The same seed gives the same bits; another one does not."""
    settings = replace(WAYS[way], train_size=48)
    first, again, other = train(settings), train(settings), train(replace(settings, seed=1))

    check.equal(actual=again.costs, expected=first.costs, what="the costs of the same seed")
    check.differs(actual=other.costs, other=first.costs, what="the costs of another seed")
    for name, value in first.weights.items():
        check.identical(actual=again.weights[name], expected=value, what=name)
