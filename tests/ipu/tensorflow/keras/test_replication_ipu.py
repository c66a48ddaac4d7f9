"""Keras models on several replicas: what each is fed, how gradients meet, what metrics are returned."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.nets import Data, distinct_micro_batches
from ipu_conformance.run import RunConfig
from ipu_conformance.targets import Inspector

from .nets import MLP, PLAIN, Fit, Keras, adam, check_mean_loss, each_fit, mean_losses, momentum, outputs_alone, scalars


def replicated(iterations: int, replicas: int, base: RunConfig = PLAIN) -> RunConfig:
    """So many steps on so many replicas."""
    return replace(base, device_iterations=iterations, replicas=replicas)


@each_fit({
    **{f"mlp-{iterations}-{replicas}": Fit(replicated(iterations, replicas))
       for iterations, replicas in ((3, 2), (5, 4), (4, 3), (1, 6))},
    "bn_convnet-2-4": Fit(replicated(2, 4), name="bn_convnet"),
    "residual-3-2": Fit(replicated(3, 2), name="residual"),
    "sequential": Fit(replicated(3, 2), "sequential"),
    "subclassed": Fit(replicated(3, 2), "subclassed"),
    "momentum": Fit(momentum(replicated(3, 2))),
    "adam": Fit(adam(replicated(3, 2))),
})  # fmt: skip
def test_replicas_train_as_specified(keras: Keras, fit: Fit) -> None:
    """Replica r of step i trains on element i * R + r, and gradients are added up: optimizers' states move in step."""
    keras.check_fit(fit.config, fit.kind, fit.name)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("method", ["NONE", "LIST", "SUM", "MEAN", "member"])
def test_metrics_are_reduced_as_asked(keras: Keras, method: str) -> None:
    """Metrics of three replicas are the last one's, lists, sums or means, by their name or as a member."""
    config = replicated(4, 3)
    means, bounds = (each[-1] for each in mean_losses(config))
    want = {"NONE": means[-1], "SUM": means.sum(), "MEAN": means.mean()}.get(method, means)
    chosen = importlib.import_module("keras.ipu").ReplicatedMetricReductionMethod.LIST if method == "member" else method
    with keras.ready(config, metrics=[keras.twice_the_loss]) as model:
        model.set_replication_options(replicated_metric_reduction_method=chosen)
        history = model.fit(keras.dataset(config), verbose=0).history

    # A sum of replicas is off by as much as all together, which bounds the other ways too.
    bound = np.full(np.shape(want), bounds.sum())
    for times, name in enumerate(("loss", "twice_the_loss"), 1):
        check_mean_loss(history[name][0], times * want, times * bound, f"{name} of three replicas by {method}")


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

    check.contains(actual=said(), expected="replicas", what="TensorFlow's log")
    keras.check_trained(model, config)


@pytest.mark.ipus(2)
def test_arrays_drop_the_remainder_of_every_epoch(keras: Keras) -> None:
    """Every epoch over NumPy arrays begins with the first batch again."""
    inputs = np.arange(5 * 6, dtype=np.float32).reshape(5, 6)

    def kernel(model: Any, samples: int) -> np.ndarray:
        keras.load(model)
        model.fit(inputs[:samples], np.arange(samples), batch_size=1, epochs=2, shuffle=False, verbose=0)
        return np.asarray(model.get_weights()[0])

    with keras.ready(replicated(2, 2)) as model:
        five, four = (kernel(model, samples) for samples in (5, 4))

    check.identical(actual=five, expected=four, what="the first kernel after two epochs over five samples")


@pytest.mark.ipus(4)
def test_fewer_batches_than_replicas_are_refused(keras: Keras) -> None:
    """Data that cannot give every replica a batch is an error."""
    refused = check.raises(ValueError, match="4 replicas", what="fit with three batches")
    with keras.ready(replicated(1, 4)) as model, refused:
        model.fit(keras.dataset(replicated(1, 3)), verbose=0)


@pytest.mark.emulator
@pytest.mark.ipus(4)
@pytest.mark.parametrize("change", [lambda config: config, adam], ids=["sgd", "adam"])
def test_replicas_hold_identical_weights(keras: Keras, inspector: Inspector, change: Any) -> None:
    """After a fit every replica holds the same bits in every trained variable and in the optimizer."""
    config = change(replicated(3, 4))
    with keras.ready(config) as model:
        model.fit(keras.dataset(config), verbose=0)
    every = [*model.trainable_variables, *model.optimizer.variables]
    variables = {f"variable {number}, {variable.name},": variable for number, variable in enumerate(every)}
    held = inspector.values_by_replica(model, variables, config.replicas) or ()

    check.equal(actual=len(held), expected=config.replicas, what="the number of replicas that show their variables")
    for replica in range(1, config.replicas):
        for name, value in held[replica].items():
            check.identical(actual=value, expected=variables[name].numpy(), what=f"{name} of replica {replica}")


@pytest.mark.ipus(4)
@pytest.mark.parametrize("ipus", [2, 4])
def test_a_model_follows_another_configuration(keras: Keras, ipus: int) -> None:
    """A model that was trained on one IPU has as many replicas as the next configuration has IPUs."""
    fed = np.arange(1, 13, dtype=np.float32)[:, np.newaxis]
    with keras.scope(PLAIN):
        model = keras.tf.keras.Sequential([keras.scale()])
        model.compile(keras.tf.keras.optimizers.SGD(2.0**-7), outputs_alone)
        model.fit(fed[:3], fed[:3], batch_size=1, shuffle=False, verbose=0)
        keras.configure(ipus)
        model.fit(fed, fed, batch_size=1, shuffle=False, verbose=0)

    found, expected = (int(model.optimizer.iterations), scalars(model)), (3 + 12 // ipus, [1 - 2.0**-7 * (6 + 78)])
    check.equal(actual=found, expected=expected, what="the updates and the weight after a fit on each configuration")


@pytest.mark.emulator
def test_models_are_named_as_keras_names_them(tf: Any, strategy: Any) -> None:
    """A model without a name is called after its class, and one of inputs and outputs ``model``, as outside a scope."""
    class_of_ones_own = type("LittleNet", (tf.keras.Model,), {"call": lambda self, x: x})

    def names() -> Any:
        x = tf.keras.Input((3,))
        models = [tf.keras.Model(x, tf.keras.layers.Dense(size)(x)) for size in (1, 2)]
        models += [tf.keras.Sequential([tf.keras.layers.Dense(1)]), class_of_ones_own(), class_of_ones_own()]
        return [model.name for model in models]

    tf.keras.backend.clear_session()
    with strategy.scope():
        inside = names()
    tf.keras.backend.clear_session()

    expected = ["model", "model_1", "sequential", "little_net", "little_net_1"]
    check.equal(actual=(inside, names()), expected=(expected, expected), what="names inside and outside of the scope")
