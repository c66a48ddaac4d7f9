"""The seven things that an IPUEstimator does for its user, who only writes a model function and an input function.

Scoping, compiling with a loop, feeding, configuring, counting steps, replicating and sharding, reporting: each is done
without a word of the user's about it. Cases of one service have its name at the beginning of theirs.
"""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from ..exact import START, check_weight, counts, samples
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")

MODES = ("train", "evaluate", "predict")


def call(estimators: Estimators, mode: str, model_fn: Any, steps: int = 4, **settings: Any) -> Any:
    """What a new estimator returns when it trains, evaluates or predicts for so many steps."""
    estimator = estimators.make(model_fn, **settings)
    return estimators.call(estimator, mode, estimators.feed(steps * settings.get("replicas", 1)), steps)


def looking(estimators: Estimators, look: Any, replicas: int = 1) -> Any:
    """A model function that lets ``look(features, products)`` look around while it is built."""

    def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
        look(features, products)
        return {}

    return estimators.product(replicas=replicas, also=also)


@pytest.mark.parametrize("mode", MODES)
def test_scoping_places_the_model_on_the_device(estimators: Estimators, mode: str) -> None:
    """What a model function makes belongs to the IPU, though it opens no scope."""
    devices: List[str] = []
    call(estimators, mode, looking(estimators, lambda features, products: devices.append(products.op.device)))

    assert devices
    assert all(device.endswith("device:IPU:0") for device in devices)


def test_scoping_leaves_the_input_on_the_host(estimators: Estimators) -> None:
    """What an input function makes does not belong to the IPU."""
    devices: List[str] = []

    def input_fn() -> Any:
        devices.append(estimators.tf.constant(1.0).op.device)
        return estimators.feed(2)()

    estimators.make().train(input_fn, steps=2)

    assert len(devices) == 1
    assert "IPU" not in devices[0]


def test_scoping_makes_resources_of_variables(estimators: Estimators) -> None:
    """Variables of a model function can live on the device, though it does not ask for it."""
    types: List[str] = []

    def loss(features: Any) -> Any:
        weight = estimators.v1.get_variable("w0", [], initializer=estimators.v1.ones_initializer())
        types.append(weight.op.type)
        return estimators.tf.reduce_sum(weight * features)

    estimators.make(estimators.trains(loss)).train(estimators.feed(2), steps=2)

    assert set(types) == {"VarHandleOp"}


@pytest.mark.parametrize("mode", ["train", "predict"])
def test_compiling_puts_the_model_into_a_program(estimators: Estimators, mode: str) -> None:
    """The model is built once for a call, inside of a function, and not in the graph of the session."""
    inside: List[bool] = []

    def look(features: Any, products: Any) -> None:
        inside.append(estimators.v1.get_default_graph().building_function)

    call(estimators, mode, looking(estimators, look))

    assert inside == [True]


@pytest.mark.parametrize("loop", [1, 4])
def test_compiling_repeats_the_model_on_the_device(estimators: Estimators, loop: int) -> None:
    """The host runs the program once for every iterations_per_loop steps."""
    seeing = estimators.seeing()
    estimators.make(loop=loop).train(estimators.feed(4), steps=4, hooks=[seeing])

    assert len(seeing.steps) == 4 // loop


@pytest.mark.parametrize("loop", [1, 4])
def test_feeding_brings_every_element_once(estimators: Estimators, loop: int) -> None:
    """Elements come to the device in the order of the data set, none twice and none left out."""
    predictions = call(estimators, "predict", None, steps=8, loop=loop)

    assert [float(each["input"]) for each in predictions] == samples(8).tolist()


def test_feeding_restarts_with_every_call(estimators: Estimators) -> None:
    """Each call reads its own data set from the beginning."""
    estimator = estimators.make()
    losses = [estimator.evaluate(estimators.feed(2), steps=2)["loss"] for _ in range(2)]

    assert losses == [START[0] * samples(2).mean()] * 2


def test_feeding_brings_losses_and_metrics_back(estimators: Estimators) -> None:
    """What the device computes leaves it by an outfeed: the host sees it without asking."""

    def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
        return {"eval_metrics": (lambda values: {"mean": estimators.v1.metrics.mean(values)}, [2 * products])}

    estimator = estimators.make(estimators.product(also=also))
    metrics = estimator.evaluate(estimators.feed(4), steps=4)

    mean = START[0] * samples(4).mean()
    assert metrics == {"loss": mean, "mean": 2 * mean, "global_step": 0}


@pytest.mark.parametrize("mode", ["train", "evaluate"])
def test_configuring_puts_the_options_in_force(estimators: Estimators, mode: str) -> None:
    """The system is configured with ipu_options before the model is built."""
    utils, ipus = estimators.ipu.utils, []
    options = estimators.options(1)
    options.compilation_poplar_options = {"debug.instrument": "true"}
    with pytest.raises(RuntimeError, match="No IPU devices configured"):
        utils.get_ipu_config()
    count = lambda features, products: ipus.append(utils.get_num_of_ipus_in_device("/device:IPU:0"))  # noqa: E731
    call(estimators, mode, looking(estimators, count), run={"ipu_options": options})

    assert ipus == [1]
    assert len(utils.get_ipu_config()) == 1


@pytest.mark.ipus(2)
def test_configuring_follows_each_estimator(estimators: Estimators) -> None:
    """Estimators with different options can take turns."""
    ipus = []
    for replicas in (1, 2, 1):
        call(estimators, "evaluate", None, replicas=replicas)
        ipus.append(estimators.ipu.utils.get_num_of_ipus_in_device("/device:IPU:0"))

    assert ipus == [1, 2, 1]


@pytest.mark.parametrize("loop", [1, 4])
def test_counting_steps_is_the_estimator_s(estimators: Estimators, loop: int) -> None:
    """The global step grows by iterations_per_loop with every loop, though the model function does not touch it."""
    seeing = estimators.seeing()
    estimator = estimators.make(loop=loop)
    estimator.train(estimators.feed(8), steps=8, hooks=[seeing])

    assert seeing.steps == list(range(loop, 9, loop))
    assert int(estimator.get_variable_value("global_step")) == 8


@pytest.mark.parametrize("mode", ["evaluate", "predict"])
def test_counting_steps_is_for_training(estimators: Estimators, mode: str) -> None:
    """Evaluation and prediction are no steps of a training."""
    estimator = estimators.make()
    estimator.train(estimators.feed(2), steps=2)
    estimators.call(estimator, mode, estimators.feed(4), 4)

    assert int(estimator.get_variable_value("global_step")) == 2


@pytest.mark.ipus(2)
def test_replicating_needs_a_number_only(estimators: Estimators) -> None:
    """With num_replicas and an optimizer across replicas the same model function trains on all of them."""
    estimator = call(estimators, "train", estimators.product(replicas=2), replicas=2)

    check_weight(estimator.get_variable_value("w0"), counts(4, replicas=2))


@pytest.mark.ipus(2)
def test_sharding_needs_a_number_only(estimators: Estimators) -> None:
    """With num_shards a model uses several IPUs: its operations are where ipu_shard puts them."""
    shards: List[Any] = []

    def model_fn(features: Any, mode: Any) -> Any:
        products = estimators.weight() * features
        with estimators.ipu.scopes.ipu_shard(1):
            loss = estimators.tf.reduce_sum(products)
        shards.append(estimators.ipu.sharding.get_shard_from_colocation(loss.op))
        optimizer = estimators.ipu.optimizers.ShardedOptimizer(estimators.optimizer())
        return estimators.spec(mode, loss=loss, train_op=optimizer.minimize(loss))

    estimator = call(estimators, "train", model_fn, shards=2)

    assert set(shards) == {1}
    check_weight(estimator.get_variable_value("w0"), counts(4))


@pytest.mark.parametrize("mode", MODES)
def test_reporting_needs_the_environment_only(estimators: Estimators, mode: str, reports: Any) -> None:
    """With POPLAR_ENGINE_OPTIONS each call leaves a report of what was compiled and executed."""
    call(estimators, mode, None)

    assert len(reports()) == 1
