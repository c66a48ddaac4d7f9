"""Keras models on several replicas: what each is fed, how gradients meet, what metrics are returned."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, List

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.nets import Data, distinct_micro_batches
from ipu_conformance.oracle.tolerance.runs import ArrayTolerance
from ipu_conformance.run import RunConfig
from ipu_conformance.targets import Inspector

from .nets import MLP, PLAIN, Keras, adam, assert_trained, check_predictions, kinds_of, mean_losses, momentum

COUNTS = {"D3-R2": (3, 2), "D2-R4": (2, 4), "D1-R3": (1, 3), "D5-R2": (5, 2)}


def replicated(iterations: int, replicas: int, base: RunConfig = PLAIN) -> RunConfig:
    """So many steps on so many replicas."""
    return replace(base, device_iterations=iterations, replicas=replicas)


@pytest.mark.ipus(8)
@pytest.mark.parametrize("name", ["mlp", "bn_convnet", "residual"])
@pytest.mark.parametrize(("iterations", "replicas"), COUNTS.values(), ids=list(COUNTS))
@pytest.mark.level("qualify")
def test_replicas_train_as_specified(keras: Keras, name: str, iterations: int, replicas: int) -> None:
    """Replica r of step i trains on element i * R + r, and gradients are added up over replicas."""
    keras.check_fit(replicated(iterations, replicas), name=name)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("kind", kinds_of("mlp"))
def test_every_kind_of_model_is_replicated(keras: Keras, kind: str) -> None:
    """Sequential, Functional and subclassed models all train as specified on two replicas."""
    keras.check_fit(replicated(3, 2), kind)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("change", [momentum, adam], ids=["momentum", "adam"])
def test_optimizers_keep_their_state_on_every_replica(keras: Keras, change: Any) -> None:
    """Momentum and Adam train as specified on replicas: their state moves in step."""
    keras.check_fit(change(replicated(3, 2)))


@pytest.mark.ipus(2)
@pytest.mark.parametrize("method", ["NONE", "LIST", "SUM", "MEAN"])
def test_metrics_are_reduced_as_asked(keras: Keras, method: str) -> None:
    """A metric of two replicas is the last one's, a list, a sum or a mean."""
    config = replicated(3, 2)
    by_replica, allowed = mean_losses("mlp", config)
    want = {"NONE": by_replica[-1], "LIST": by_replica, "SUM": by_replica.sum(), "MEAN": by_replica.mean()}[method]
    # A sum of two replicas is off by as much as both together, which bounds the other ways too.
    bound = ArrayTolerance(allowed.allowed.sum(), allowed.allowed.sum(), "both replicas' tolerances together")
    with keras.ready(config) as model:
        model.set_replication_options(method)
        history = model.fit(keras.dataset(config), verbose=0).history

    check.close(actual=np.asarray(history["loss"][0], np.float64), expected=want, tolerance=bound, what="the loss")


@pytest.mark.ipus(2)
def test_a_metric_reduction_is_a_member_too(keras: Keras) -> None:
    """The reduction may be given as a member of keras.ipu.ReplicatedMetricReductionMethod."""
    enumeration = importlib.import_module("keras.ipu").ReplicatedMetricReductionMethod
    config = replicated(1, 2)
    with keras.ready(config, "sequential") as model:
        model.set_replication_options(replicated_metric_reduction_method=enumeration.LIST)
        history = model.fit(keras.dataset(config), verbose=0).history

    assert np.shape(history["loss"][0]) == (2,)


def test_an_unknown_metric_reduction_is_refused(keras: Keras) -> None:
    """A word that is no reduction is an error when it is set."""
    with keras.scope(PLAIN):
        model = keras.build("sequential")

        with pytest.raises(ValueError, match="Cannot parse MEDIAN"):
            model.set_replication_options("MEDIAN")


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("batches", "replicas"), [(7, 2), (7, 4), (5, 3)])
def test_batches_that_fill_no_step_are_dropped(keras: Keras, said: Any, batches: int, replicas: int) -> None:
    """Steps per replica are the batches over the replicas; the rest of an epoch is dropped with a warning."""
    steps = batches // replicas
    config = replicated(steps, replicas)
    whole = distinct_micro_batches(MLP, config)
    rest = distinct_micro_batches(MLP, replicated(1, batches % replicas), seed=7)
    data = Data(np.concatenate([whole.inputs, rest.inputs], 1), np.concatenate([whole.labels, rest.labels], 1))
    with keras.ready(config) as model:
        model.fit(keras.dataset(config, data), verbose=0)

    assert "not divisible" in said()
    assert_trained(keras.trained(model), config)


@pytest.mark.ipus(2)
def test_arrays_drop_the_remainder_of_every_epoch(keras: Keras) -> None:
    """Every epoch over NumPy arrays begins with the first batch again."""
    config = replicated(2, 2)
    seen: List[np.ndarray] = []
    inputs = np.arange(5 * 6, dtype=np.float32).reshape(5, 6)
    with keras.ready(config) as model:
        for epochs in (1, 2):
            keras.load(model, MLP.initial_weights(2021))
            model.fit(inputs, np.arange(5), batch_size=1, epochs=epochs, shuffle=False, verbose=0)
            seen.append(model.get_weights()[0])
        model.fit(inputs[:4], np.arange(4), batch_size=1, epochs=1, shuffle=False, verbose=0)
        keras.load(model, MLP.initial_weights(2021))
        model.fit(inputs[:4], np.arange(4), batch_size=1, epochs=2, shuffle=False, verbose=0)

    check.identical(actual=seen[1], expected=model.get_weights()[0], what="the first kernel after two epochs")


@pytest.mark.ipus(4)
def test_fewer_batches_than_replicas_are_refused(keras: Keras) -> None:
    """Data that cannot give every replica a batch is an error."""
    config = replicated(1, 4)
    with keras.ready(config) as model, pytest.raises(ValueError, match="fewer than the 4 replicas"):
        model.fit(keras.dataset(replicated(1, 3)), verbose=0)


@pytest.mark.ipus(4)
def test_a_strategy_counts_one_replica(keras: Keras) -> None:
    """num_replicas_in_sync stays 1 whatever the number of replicas."""
    with keras.scope(replicated(1, 4)) as strategy:
        assert strategy.num_replicas_in_sync == 1


@pytest.mark.emulator
@pytest.mark.ipus(4)
@pytest.mark.parametrize("change", [lambda config: config, momentum, adam], ids=["sgd", "momentum", "adam"])
def test_replicas_hold_identical_weights(keras: Keras, inspector: Inspector, change: Any) -> None:
    """After a fit every replica holds the same bits in every trained variable and in the optimizer."""
    config = change(replicated(3, 4))
    model = keras.fit(config).model
    every = [*model.trainable_variables, *model.optimizer.variables]
    variables = {f"variable {number}, {variable.name},": variable for number, variable in enumerate(every)}
    held = inspector.values_by_replica(model, variables, config.replicas) or ()

    assert len(held) == config.replicas
    for replica in range(1, config.replicas):
        for name, value in held[replica].items():
            check.identical(actual=value, expected=variables[name].numpy(), what=f"{name} of replica {replica}")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("replicas", [1, 2])
def test_evaluation_and_prediction_follow_the_feed(keras: Keras, replicas: int) -> None:
    """Predictions come back in the order of the data, whatever the number of replicas."""
    data = distinct_micro_batches(MLP, replicated(3, 2))

    check_predictions(keras, replicated(6 // replicas, replicas), data=data, steps_per_execution=3)
