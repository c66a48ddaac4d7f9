"""What an IPUEstimator does for its user, who only writes a model function and an input function.

Scoping, compiling, configuring, counting steps, sharding, reporting: each is done without being asked for, as are
replicating (test_replication_ipu.py), looping (test_hooks_ipu.py) and feeding (test_predict_ipu.py,
test_evaluate_ipu.py). The cases of a service begin with its name.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import pytest

from ipu_conformance import check

from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")

SERVICES = {
    "scoping": {"device:IPU:0"},
    "compiling": [True],
    "configuring": ([1], 0, 1),
    "reporting": 1,
}
"""What is seen of a call of an estimator with one IPU.

That is the device of what the model function makes though it opens no scope; for each time that it is called whether a
function is being built; the IPUs of the device by then, and how many configurations there are before and after the
call; and how many reports are left with POPLAR_ENGINE_OPTIONS.
"""


@pytest.fixture
def look(shared: Estimators, reports: Any) -> Callable[[str], Dict[str, Any]]:
    """What is seen when an estimator trains, evaluates or predicts; each is done once."""
    utils = shared.ipu.utils

    def configured() -> int:
        try:
            return len(utils.get_ipu_config())
        except RuntimeError:
            return 0

    def run(mode: str) -> Dict[str, Any]:
        seen: List[Any] = []

        def also(mode: Any, features: Any, products: Any) -> Dict[str, Any]:
            ipus = utils.get_num_of_ipus_in_device("/device:IPU:0")
            seen.append((products.op.device, shared.v1.get_default_graph().building_function, ipus))
            return {}

        before = configured()
        shared.call(shared.make(shared.product(also=also)), mode, shared.feed(4), 4)
        devices, inside, ipus = map(list, zip(*seen))
        placed = {device.rpartition("/")[2] for device in devices}
        values = placed, inside, (ipus, before, configured()), len(reports())
        return dict(zip(SERVICES, values))

    return lambda mode: shared.once(("looked", mode), lambda: run(mode))


@pytest.mark.parametrize("mode", ["train", "evaluate", "predict"])
@pytest.mark.parametrize("service", SERVICES)
def test_a_call_needs_only_its_functions(look: Any, service: str, mode: str) -> None:
    """The model is built once in a program on the device that ipu_options configure, and leaves a report."""
    check.equal(actual=look(mode)[service], expected=SERVICES[service], what=f"what is seen of {service} in {mode}")


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


@pytest.mark.ipus(2)
def test_configuring_follows_each_estimator(estimators: Estimators) -> None:
    """Estimators with different options can take turns."""
    ipus = []
    for replicas in (1, 2, 1):
        estimators.make(replicas=replicas).evaluate(estimators.feed(2 * replicas), steps=2)
        ipus.append(estimators.ipu.utils.get_num_of_ipus_in_device("/device:IPU:0"))

    check.equal(actual=ipus, expected=[1, 2, 1], what="the IPUs of the device after each of three calls")


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

    def loss(features: Any) -> Any:
        products = estimators.weight() * features
        with estimators.ipu.scopes.ipu_shard(1):
            total = estimators.tf.reduce_sum(products)
        shards.append(estimators.ipu.sharding.get_shard_from_colocation(total.op))
        return total

    optimizer = estimators.ipu.optimizers.ShardedOptimizer(estimators.descent())
    model_fn = estimators.trains(loss, optimizer.minimize)
    estimator = estimators.make(model_fn, shards=2).train(estimators.feed(4), steps=4)

    check.equal(actual=set(shards), expected={1}, what="the shard of the loss")
    estimators.check_left(estimator, 4)
