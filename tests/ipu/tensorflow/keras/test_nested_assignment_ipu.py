"""Stages inside models that are called by other models.

Layers are single weights and the loss is the output: every value is exact.
"""

from __future__ import annotations

import importlib
from typing import Any, List, Sequence

import numpy as np
import pytest

from ipu_conformance import check

from .nets import PLAIN, Keras, outputs_alone, scalars

INPUTS = (0.25, 0.5, 0.75, 1.0)
"""The micro-batches that are accumulated."""
KINDS = ("functional", "sequential", "chained functional", "chained sequential")


def nested(keras: Keras, kind: str, calls: int = 1) -> Any:
    """A model, or a chain, of a layer, an inner model of two layers, which may be called again, and a layer."""
    api, layers = keras.tf.keras, [keras.scale(0.5), keras.scale(2.0)]
    inputs = api.Input((1,))
    if "sequential" in kind:
        inner = api.Sequential([api.Input((1,)), *layers])
    else:
        inner = api.Model(inputs, layers[1](layers[0](inputs)))
    if "chained" in kind:
        return api.Sequential([api.Input((1,)), keras.scale(), inner, keras.scale()])
    inputs = api.Input((1,))
    value = keras.scale()(inputs)
    for _ in range(calls):
        value = inner(value)
    return api.Model(inputs, keras.scale()(value))


def assign(model: Any, stages: Sequence[Any]) -> None:
    """Set one stage for each call, and a list of stages for each call of a model."""
    assignments = model.get_pipeline_stage_assignment()
    for one, stage in zip(assignments, stages):
        if isinstance(stage, list):
            for inside, number in zip(one.pipeline_stage_assignments, stage):
                inside.pipeline_stage = number
        else:
            one.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignments)


def stages_of(assignments: Sequence[Any]) -> List[Any]:
    """The stage of every assignment, a list for a model."""
    return [
        stages_of(one.pipeline_stage_assignments) if one.is_nested_model else one.pipeline_stage for one in assignments
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_nested_model_has_stages_inside(keras: Keras, kind: str) -> None:
    """A call of a model has an assignment for each layer inside, which is given back as set, by a copy of a chain too.

    A copy of a Functional model is not asked.
    """
    chained = kind.startswith("chained")
    with keras.scope(PLAIN):
        model = nested(keras, kind)
        assign(model, [0, [0, 1], 1])
        models = [model, type(model).from_config(model.get_config())] if chained else [model]

    name = "SequentialNestedModel" if chained else "FunctionalNestedModel"
    inner = getattr(importlib.import_module("keras.ipu"), f"{name}PipelineStageAssignment")
    for each in models:
        assignments = each.get_pipeline_stage_assignment()
        found = [(isinstance(one, inner), one.is_nested_model) for one in assignments]
        expected = [(False, False), (True, True), (False, False)]
        check.equal(actual=found, expected=expected, what="the type and is_nested_model of each assignment")
        check.equal(actual=stages_of(assignments), expected=[0, [0, 1], 1], what="the stages around and inside")
        called = each.layers[1 if chained else 2]
        check.equal(actual=assignments[1].nested_model, expected=called, what="the nested_model")


CUTS = ([0, [0, 1], 1], [0, [1, 1], 1], [0, 1, 1])


@pytest.mark.parametrize(("kind", "stages", "devices"), [
    *(pytest.param(kind, stages, (0, 1), id=f"{stages}-{kind}") for stages in CUTS for kind in KINDS),
    pytest.param("functional", [0, [0, 0], [0, 1], 1], (0, 0), id="called-twice"),
])  # fmt: skip
def test_a_nested_model_is_cut_inside(keras: Keras, kind: str, stages: List[Any], devices: Sequence[int]) -> None:
    """A pipeline that cuts a nested model, differently in each call of it, trains all of its layers."""
    calls = len(stages) - 2
    config = PLAIN.with_counts(1, len(INPUTS), stages=(0, 1), devices=devices, schedule="sequential")
    column = np.array(INPUTS, np.float32)[:, np.newaxis]
    with keras.scope(config):
        model = nested(keras, kind, calls)
        assign(model, stages)
        keras.options(model, config)
        keras.compile(model, config, loss=outputs_alone)
        model.fit(column, column, batch_size=1, shuffle=False, verbose=0)

    # The product of all weights is 1: the gradient of one is its uses times the inputs' sum, divided by itself.
    starts = [(1.0, 1), (0.5, calls), (2.0, calls), (1.0, 1)]
    expected = sorted(start - 0.125 * uses * sum(INPUTS) / start for start, uses in starts)
    # Models list their layers in different orders.
    check.equal(actual=sorted(scalars(model)), expected=expected, what="the sorted weights of the pipeline")


def test_a_nested_model_may_be_assigned_again(keras: Keras) -> None:
    """Stages inside of a call that then gets one stage, or the other way round, are those that were set last."""
    with keras.scope(PLAIN):
        model = nested(keras, "functional")
        for stages in ([0, [0, 1], 1], [0, 1, 2], [0, [1, 2], 3]):
            assign(model, stages)

            inside = [[each] * 2 if place == 1 and isinstance(each, int) else each for place, each in enumerate(stages)]
            found = stages_of(model.get_pipeline_stage_assignment())
            check.equal(actual=found, expected=inside, what=f"the stages after {stages} were assigned")


def test_stages_of_the_nested_model_are_the_beginning(keras: Keras) -> None:
    """Stages that were set on the nested model itself are those that an assignment begins with."""
    with keras.scope(PLAIN):
        model = nested(keras, "functional")
        inner = model.layers[2]
        assign(inner, [0, 1])

    first = stages_of(model.get_pipeline_stage_assignment())[1]
    check.equal(actual=first, expected=[0, 1], what="the stages that an assignment of the outer model begins with")
    model.reset_pipeline_stage_assignment()
    after = stages_of(inner.get_pipeline_stage_assignment())
    check.equal(actual=after, expected=[0, 1], what="the nested model's own stages after a reset of the outer model")


@pytest.mark.parametrize("stages", [[0, [1, 0], 1], [0, [0, None], 1], [0, [0, 2], 2]], ids=str)
def test_stages_inside_follow_the_rules(keras: Keras, stages: List[Any]) -> None:
    """A layer inside has a stage, none reads from a later stage, and no stage is left out."""
    with keras.scope(PLAIN):
        model = nested(keras, "functional")

    with check.raises(ValueError, match=r"[Pp]ipeline stage", what=f"the assignment {stages}"):
        assign(model, stages)
