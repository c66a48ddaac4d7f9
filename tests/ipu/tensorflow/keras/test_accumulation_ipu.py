"""Gradient accumulation of Keras models: when weights are updated and how micro-batches are reduced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig, learning_rate

from .nets import KINDS, MLP, PLAIN, Fit, Keras, adam, check_losses, each_fit, momentum, outputs_alone, scalars, still

METHODS = ("sum", "mean", "running_mean")


def accumulating(iterations: int, count: int, replicas: int = 1, method: str = "sum") -> RunConfig:
    """So many updates, each after so many micro-batches on every replica."""
    return PLAIN.with_counts(iterations, count, replicas, accumulation_reduction=method)


SMALL = learning_rate(base=2.0**-8)


@each_fit({
    **{f"{count}-{method}": Fit(accumulating(3, count, method=method)) for count in (2, 5) for method in METHODS},
    **{f"G{count}-R{replicas}-{method}": Fit(accumulating(2, count, replicas, method))
       for count, replicas in ((3, 2), (2, 4)) for method in METHODS},
    **{f"40-{method}": Fit(replace(accumulating(1, 40, method=method), learning_rate=SMALL)) for method in METHODS},
    **{kind: Fit(accumulating(2, 3), kind) for kind in KINDS},
    **{name: Fit(accumulating(2, 3), name=name) for name in ("bn_convnet", "residual")},
    "momentum": Fit(momentum(accumulating(2, 3))),
    "adam": Fit(adam(accumulating(2, 3))),
})  # fmt: skip
def test_accumulation_trains_as_specified(keras: Keras, fit: Fit) -> None:
    """Weights move once after so many micro-batches, by their sum, their mean or their running mean.

    Each replica accumulates its own micro-batches; the results are then added up over replicas. Statistics are those
    of every micro-batch; the optimizer's state and its count move with updates.
    """
    keras.check_fit(fit.config, fit.kind, fit.name)


@pytest.mark.parametrize("flag", [False, True], ids=["v1", "v2"])
def test_both_versions_of_the_optimizer_accumulate_alike(keras: Keras, flag: bool) -> None:
    """use_v2_gradient_accumulation_optimizer changes nothing in the result."""
    config = accumulating(2, 3)
    chosen = {"use_v2_gradient_accumulation_optimizer": flag}
    trained = keras.fit(config, options=lambda model: model.set_gradient_accumulation_options(3, **chosen))

    check.runs_identical(actual=trained, expected=keras.fit(config), fields=["weights"])


@pytest.mark.parametrize("form", ["lower", "upper", "member"])
def test_the_reduction_method_is_a_name_or_a_member(keras: Keras, ipu: Any, form: str) -> None:
    """The method is accepted as a name in any case and as a member of the vendor's enumeration."""
    enumeration = ipu.gradient_accumulation.GradientAccumulationReductionMethod
    method = {"lower": "mean", "upper": "MEAN", "member": enumeration.MEAN}[form]
    chosen = {"gradient_accumulation_reduction_method": method}

    config = accumulating(1, 3, method="mean")
    keras.check_fit(config, options=lambda model: model.set_gradient_accumulation_options(3, **chosen))


def test_evaluation_does_not_accumulate(keras: Keras) -> None:
    """An accumulation count concerns training alone: evaluation takes any number of steps."""
    with keras.ready(accumulating(1, 4), steps_per_execution=3) as model:
        loss = model.evaluate(keras.dataset(PLAIN), verbose=0)
        predictions = model.predict(keras.dataset(PLAIN), verbose=0)

    check_losses(loss, still(PLAIN), "the loss of three steps")
    check.shape(actual=predictions, expected=(6, MLP.classes), what="the predictions of three steps")


def test_accumulation_can_be_changed_between_fits(keras: Keras) -> None:
    """New options take effect in the next fit of the same model."""
    first, second = accumulating(2, 3), accumulating(3, 2)
    with keras.ready(first) as model:
        model.fit(keras.dataset(first), verbose=0)
        keras.load(model)
        keras.options(model, second)
        model.fit(keras.dataset(second), verbose=0)

    check.runs_identical(actual=keras.trained(model), expected=keras.fit(second), fields=["weights"])


@pytest.mark.ipus(2)
@pytest.mark.parametrize("form", ["dtype", "function", "by-variable"])
@pytest.mark.parametrize("stages", [(), (0, 1)], ids=["whole", "pipelined"])
def test_gradients_accumulate_in_the_dtype_that_was_asked_for(keras: Keras, tf: Any, stages: Any, form: str) -> None:
    """In float16 what is less than half a unit in the last place of the sum is lost, in float32 it is not."""
    config = PLAIN.with_counts(1, 4, stages=stages)

    def steps(asked: Any) -> Any:
        layers, key = [keras.scale(name=name) for name in ("wide", "narrow")], "gradient_accumulation_dtype"
        options = {key if stages else "dtype": asked}
        model = keras.chained(
            config, layers, [2048.0, 1.0, 1.0, 1.0], options=options, optimizer=lambda: tf.keras.optimizers.SGD(1.0)
        )
        return [1.0 - weight for weight in scalars(model)]

    exact = keras.once(("accumulated in float32", stages), lambda: steps(None))
    chosen = {
        "dtype": tf.float16,
        "function": lambda variable: tf.float16,
        "by-variable": lambda variable: tf.float16 if variable.name.startswith("narrow") else tf.float32,
    }
    rounded = steps(chosen[form])

    check.equal(actual=exact, expected=[2051.0, 2051.0], what="the gradients of both layers, accumulated in float32")
    if form == "by-variable":
        check.equal(actual=rounded.pop(0), expected=2051.0, what="the gradient that is accumulated in float32")
    near = all(value != 2051.0 and abs(value - 2051.0) <= 3 for value in rounded)
    check.holds(near, f"Gradients that sum to 2051, which float16 does not have, are {rounded} in float16.")


@pytest.mark.parametrize("count", [1, 3])
def test_a_row_that_is_looked_up_again_adds_up(tf: Any, strategy: Any, count: int) -> None:
    """Gradients of all look-ups of a row are added, those of one micro-batch and of several."""
    ids = np.array([[0, 2, 2, 2], [2, 0, 1, 1], [3, 3, 0, 2]], np.int32)
    api = tf.keras
    with strategy.scope():
        layers = [
            api.layers.Embedding(5, 1, embeddings_initializer="ones"),
            api.layers.Lambda(lambda values: tf.reduce_sum(values, axis=1)),
        ]
        model = api.Sequential([api.Input((4,), 1, dtype="int32"), *layers])
        # A loss whose gradient is one: rows move by the number of their look-ups.
        model.compile(api.optimizers.SGD(0.125), outputs_alone, steps_per_execution=3)
        model.set_gradient_accumulation_options(count)
        model.fit(ids, np.zeros((3, 1), np.float32), batch_size=1, shuffle=False, verbose=0)

    rows = np.float32(1 - 0.125 * np.bincount(ids.reshape(-1), minlength=5))
    check.identical(actual=model.get_weights()[0][:, 0], expected=rows, what="the rows of the table")
