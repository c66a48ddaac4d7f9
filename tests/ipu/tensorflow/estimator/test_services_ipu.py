"""What an IPUEstimator does for its user, who only writes a model function and an input function.

Scoping, compiling with a loop, feeding, configuring, counting steps, sharding, reporting: each is done without being
asked for, as is replicating (test_replication_ipu.py). The cases of a service begin with its name.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple

import pytest

from ipu_conformance import check

from ..exact import START, samples
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")

each_mode = pytest.mark.parametrize("mode", ["train", "evaluate", "predict"])
each_loop = pytest.mark.parametrize("loop", [1, 4])


class Looked(NamedTuple):
    """What a model function sees when it is called, and what there is around a call of its estimator."""

    devices: List[str]
    """The devices of operations."""
    inside: List[bool]
    """Whether a function is being built."""
    ipus: List[int]
    """The IPUs of the device."""
    configured: List[int]
    """The number of configurations before and after the call."""
    reports: List[Any]


@pytest.fixture
def look(shared: Estimators, reports: Any) -> Callable[[str], Looked]:
    """What is seen when an estimator trains, evaluates or predicts; each is done once."""
    utils = shared.ipu.utils

    def configured() -> int:
        try:
            return len(utils.get_ipu_config())
        except RuntimeError:
            return 0

    def run(mode: str) -> Looked:
        devices: List[str] = []
        inside: List[bool] = []
        ipus: List[int] = []

        def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
            devices.append(products.op.device)
            inside.append(shared.v1.get_default_graph().building_function)
            ipus.append(utils.get_num_of_ipus_in_device("/device:IPU:0"))
            return {}

        before = configured()
        shared.call(shared.make(shared.product(also=also)), mode, shared.feed(4), 4)
        return Looked(devices, inside, ipus, [before, configured()], reports())

    return lambda mode: shared.once(("looked", mode), lambda: run(mode))


@each_mode
def test_scoping_places_the_model_on_the_device(look: Any, mode: str) -> None:
    """What a model function makes belongs to the IPU, though it opens no scope."""
    devices = look(mode).devices

    placed = devices and all(device.endswith("device:IPU:0") for device in devices)
    check.holds(placed, f"In {mode} the model is placed on {devices}.")


def test_scoping_leaves_the_input_on_the_host(estimators: Estimators) -> None:
    """What an input function makes does not belong to the IPU."""
    devices: List[str] = []

    def input_fn() -> Any:
        devices.append(estimators.tf.constant(1.0).op.device)
        return estimators.feed(2)()

    estimators.make().train(input_fn, steps=2)

    check.holds(len(devices) == 1 and "IPU" not in devices[0], f"The input function is placed on {devices}.")


def test_scoping_makes_resources_of_variables(estimators: Estimators) -> None:
    """The variable of a model function, which is made once, can live on the device, though it does not ask for it."""
    types: List[str] = []

    def loss(features: Any) -> Any:
        weight = estimators.v1.get_variable("w0", [], initializer=estimators.v1.ones_initializer())
        types.append(weight.op.type)
        return estimators.tf.reduce_sum(weight * features)

    estimators.make(estimators.trains(loss)).train(estimators.feed(2), steps=2)

    check.equal(actual=types, expected=["VarHandleOp"], what="the types of the operations of variables")


@each_mode
def test_compiling_puts_the_model_into_a_program(look: Any, mode: str) -> None:
    """The model is built once for a call, inside a function, and not in the graph of the session."""
    check.equal(actual=look(mode).inside, expected=[True], what=f"whether each build of the model in {mode} is inside")


@each_loop
def test_compiling_repeats_the_model_on_the_device(shared: Estimators, loop: int) -> None:
    """The host runs the program once for every iterations_per_loop steps."""
    runs = len(shared.trained(8, loop).steps)
    check.equal(actual=runs, expected=8 // loop, what=f"the number of runs for 8 steps in loops of {loop}")


@each_loop
def test_feeding_brings_every_element_once(shared: Estimators, loop: int) -> None:
    """Elements come to the device in the order of the data set, none twice and none left out."""
    elements = [float(each["input"]) for each in shared.predicted(8, loop)]
    check.equal(actual=elements, expected=samples(8).tolist(), what="the elements on the device")


def test_feeding_restarts_with_every_call(estimators: Estimators) -> None:
    """Each call reads its own data set from the beginning."""
    estimator = estimators.make()
    losses = [estimator.evaluate(estimators.feed(2), steps=2)["loss"] for _ in range(2)]

    check.equal(actual=losses, expected=[START[0] * samples(2).mean()] * 2, what="the losses of two evaluations")


def test_feeding_brings_losses_and_metrics_back(estimators: Estimators) -> None:
    """What the device computes leaves it by an outfeed: the host sees it without asking."""

    def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
        return {"eval_metrics": (lambda values: {"mean": estimators.v1.metrics.mean(values)}, [2 * products])}

    metrics = estimators.make(estimators.product(also=also)).evaluate(estimators.feed(4), steps=4)

    mean = START[0] * samples(4).mean()
    check.equal(actual=metrics, expected={"loss": mean, "mean": 2 * mean, "global_step": 4}, what="the evaluation")


@each_mode
def test_configuring_puts_the_options_in_force(look: Any, mode: str) -> None:
    """The system is configured with ipu_options before the model is built."""
    looked = look(mode)

    found = looked.ipus, looked.configured
    check.equal(actual=found, expected=([1], [0, 1]), what="the device's IPUs, and configurations before and after")


@pytest.mark.ipus(2)
def test_configuring_follows_each_estimator(estimators: Estimators) -> None:
    """Estimators with different options can take turns."""
    ipus = []
    for replicas in (1, 2, 1):
        estimators.make(replicas=replicas).evaluate(estimators.feed(2 * replicas), steps=2)
        ipus.append(estimators.ipu.utils.get_num_of_ipus_in_device("/device:IPU:0"))

    check.equal(actual=ipus, expected=[1, 2, 1], what="the IPUs of the device after each of three calls")


@each_loop
def test_counting_steps_is_the_estimator_s(shared: Estimators, loop: int) -> None:
    """The global step grows by iterations_per_loop with every loop, though the model function does not touch it."""
    left = shared.trained(8, loop)

    steps = [*left.steps, left.step]
    check.equal(actual=steps, expected=[*range(loop, 9, loop), 8], what="the global step after each loop, and saved")


@pytest.mark.parametrize("mode", ["evaluate", "predict"])
def test_counting_steps_is_for_training(shared: Estimators, mode: str) -> None:
    """Evaluation and prediction are no steps of a training."""
    estimator = shared.make(folder=shared.trained(4, 2).folder)
    shared.call(estimator, mode, shared.feed(4), 4)

    shared.check_left(estimator, 4)


@pytest.mark.ipus(2)
def test_sharding_needs_a_number_only(estimators: Estimators) -> None:
    """With num_shards a model uses several IPUs: its operations are where ipu_shard puts them."""
    shards: List[Any] = []

    def model_fn(features: Any, mode: Any) -> Any:
        products = estimators.weight() * features
        with estimators.ipu.scopes.ipu_shard(1):
            loss = estimators.tf.reduce_sum(products)
        shards.append(estimators.ipu.sharding.get_shard_from_colocation(loss.op))
        optimizer = estimators.ipu.optimizers.ShardedOptimizer(estimators.descent())
        return estimators.spec(mode, loss=loss, train_op=optimizer.minimize(loss))

    estimator = estimators.make(model_fn, shards=2).train(estimators.feed(4), steps=4)

    check.equal(actual=set(shards), expected={1}, what="the shard of the loss")
    estimators.check_left(estimator, 4)


@each_mode
def test_reporting_needs_the_environment_only(look: Any, mode: str) -> None:
    """With POPLAR_ENGINE_OPTIONS each call leaves a report of what was compiled and executed."""
    check.equal(actual=len(look(mode).reports), expected=1, what=f"the number of reports of {mode}")
