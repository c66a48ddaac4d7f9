"""Stages of a Sequential model: integers, or assignments of its layers."""

from __future__ import annotations

import importlib
from typing import Any, List

import pytest

from ipu_conformance import check

from .nets import stages_of


@pytest.fixture
def keras_ipu(tf: Any, ipu: Any) -> Any:
    """The vendor's part of Keras."""
    return importlib.import_module("keras.ipu")


@pytest.fixture
def model(tf: Any, strategy: Any) -> Any:
    """A chain of three layers."""
    with strategy.scope():
        chain = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False) for _ in range(3)])
        chain.build((None, 1))
    return chain


def assignments(keras_ipu: Any, model: Any, stages: List[Any]) -> List[Any]:
    """An assignment of every layer."""
    kind = keras_ipu.SequentialLayerPipelineStageAssignment
    return [kind(layer, stage) for layer, stage in zip(model.layers, stages)]


def check_stages(model: Any, expected: List[Any]) -> None:
    """The assignments that a model returns have these stages, in the order of its layers."""
    __tracebackhide__ = True
    check.equal(actual=stages_of(model), expected=expected, what="the stages of the layers")


def test_stages_are_integers(model: Any) -> None:
    """Integers are given back as assignments of the layers; the lists are not the model's own."""
    stages = [0, 0, 1]
    model.set_pipeline_stage_assignment(stages)
    model.get_pipeline_stage_assignment().pop()
    stages[0] = 9

    check_stages(model, [0, 0, 1])
    layers = [one.layer for one in model.get_pipeline_stage_assignment()]
    check.equal(actual=layers, expected=model.layers, what="the layers of the assignments")


def test_stages_are_assignments(keras_ipu: Any, model: Any) -> None:
    """Assignments are given back with their layers and stages."""
    model.set_pipeline_stage_assignment(assignments(keras_ipu, model, [0, 1, 1]))

    check_stages(model, [0, 1, 1])
    assigned = [(one.layer, one.is_nested_model) for one in model.get_pipeline_stage_assignment()]
    expected = [(layer, False) for layer in model.layers]
    check.equal(actual=assigned, expected=expected, what="the layer and is_nested_model of each assignment")


def test_assignments_are_changed_and_set_again(keras_ipu: Any, model: Any) -> None:
    """What was given back and changed counts once it is set again."""
    model.set_pipeline_stage_assignment(assignments(keras_ipu, model, [0, 1, 1]))
    assigned = model.get_pipeline_stage_assignment()
    assigned[1].pipeline_stage = 0
    model.set_pipeline_stage_assignment(assigned)

    check_stages(model, [0, 0, 1])


@pytest.mark.parametrize("form", ["integers", "assignments"])
def test_both_train_alike(tf: Any, keras_ipu: Any, strategy_on: Any, form: str) -> None:
    """A model is cut in the same places whichever way its stages are given."""
    with strategy_on(2).scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(2)]
        )
        model.build((None, 1))
        stages = [0, 1]
        model.set_pipeline_stage_assignment(stages if form == "integers" else assignments(keras_ipu, model, stages))
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.compile(tf.keras.optimizers.SGD(0.125), loss=lambda labels, outputs: outputs, steps_per_execution=4)
        column = [[0.25]] * 4
        model.fit(tf.data.Dataset.from_tensor_slices((column, column)).batch(1, drop_remainder=True), verbose=0)

    weights = [float(weight[0, 0]) for weight in model.get_weights()]
    check.equal(actual=weights, expected=[1 - 0.125 * 4 * 0.25] * 2, what="the weights of both stages")


@pytest.mark.parametrize("wrong", ["mixed", "order", "missing", "short", "floats"])
def test_wrong_assignments_are_refused(keras_ipu: Any, model: Any, wrong: str) -> None:
    """Integers beside assignments, layers in another order, without a stage or left out, and fractions are refused."""
    whole = assignments(keras_ipu, model, [0, 1, 1])
    refused = {
        "mixed": [*whole[:2], 1],
        "order": [whole[0], whole[2], whole[1]],
        "missing": assignments(keras_ipu, model, [0, None, 1]),
        "short": whole[:2],
        "floats": [0.0, 1.0, 1.0],
    }[wrong]

    with check.raises(ValueError, match="pipeline", what=f"an assignment that is wrong ({wrong})"):
        model.set_pipeline_stage_assignment(refused)
    check_stages(model, [None] * 3)


def test_models_have_the_extension_of_their_kind(tf: Any, keras_ipu: Any, strategy: Any, model: Any) -> None:
    """Models that are built in a scope are instances of the extension of their kind."""
    with strategy.scope():
        inputs = tf.keras.Input((1,))
        functional = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
        subclassed = type("Own", (tf.keras.Model,), {})()

    extensions = keras_ipu.extensions
    check.instance(actual=model, expected=extensions.SequentialExtension, what="a Sequential model")
    check.instance(actual=functional, expected=extensions.FunctionalExtension, what="a Functional model")
    check.instance(actual=subclassed, expected=extensions.ModelExtension, what="a subclassed model")
    chain = isinstance(subclassed, (extensions.SequentialExtension, extensions.FunctionalExtension))
    check.holds(not chain, f"A subclassed model has the extension of another kind: {type(subclassed).__mro__}.")
