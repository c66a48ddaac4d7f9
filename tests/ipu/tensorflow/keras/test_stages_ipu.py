"""Pipeline stages of Keras models: scopes, and assignments that are asked for, set, reset and printed."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, List, Tuple

import pytest

from ipu_conformance import check

from ...training import cut
from .nets import KINDS, PLAIN, Keras, check_trained, stages_of

CUT = cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2)
LAYERS = ["fc1", "act1", "fc2", "act2", "fc3", "act3", "fc4"]
STAGES = list(CUT.stages)


def assign(model: Any, kind: str, stages: List[int]) -> None:
    """Set a stage for each layer: integers in a chain, changed assignments in other models."""
    if kind == "sequential":
        model.set_pipeline_stage_assignment(stages)
        return
    assignments = model.get_pipeline_stage_assignment()
    for assignment, stage in zip(assignments, stages):
        assignment.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignments)


UNASSIGNED = [None] * len(LAYERS)
"""The stages of a model that has none."""


def check_calls(assignment: List[Any], expected: List[Tuple[str, int, int]]) -> None:
    """An assignment has these layers, numbers of their calls, and stages."""
    __tracebackhide__ = True
    calls = [(one.layer.name, one.node_index, one.pipeline_stage) for one in assignment]
    check.equal(actual=calls, expected=expected, what="the layer, node_index and pipeline_stage of each call")


def test_a_stage_needs_a_scope(tf: Any, ipu: Any) -> None:
    """PipelineStage outside a strategy's scope is an error."""
    stage = importlib.import_module("keras.ipu").PipelineStage
    message = "may only be used from within an IPUStrategy context"

    with check.raises(RuntimeError, match=message, what="a PipelineStage outside a scope"), stage(0):
        pass


def test_stages_do_not_nest(keras: Keras) -> None:
    """A stage inside a stage is an error, which leaves nothing behind."""
    refused = check.raises(RuntimeError, match="Pipeline stages must not be nested", what="a stage inside a stage")
    with keras.scope(PLAIN):
        with keras.stage(0), refused, keras.stage(1):
            pass
        with keras.stage(1):
            pass


@pytest.mark.parametrize(
    "number", [-1, *(pytest.param(wrong, marks=pytest.mark.emulator) for wrong in (1.5, "0", None, True))]
)
def test_a_stage_is_counted_from_zero(keras: Keras, number: Any) -> None:
    """The number of a stage is an integer of at least 0."""
    refused = check.raises(ValueError, match="pipeline stage", what=f"PipelineStage({number!r})")
    with keras.scope(PLAIN), refused, keras.stage(number):
        pass


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_scopes_assign_the_layers_called_inside(keras: Keras, kind: str) -> None:
    """The assignment lists every call of a layer, in order, with the stage of its scope and the layer that it reads."""
    with keras.scope(CUT):
        assignment = keras.build(kind, CUT.stages).get_pipeline_stage_assignment()

        check_calls(assignment, [(name, 0, stage) for name, stage in zip(LAYERS, STAGES)])
        read = [layer.name for one in assignment[1:] for layer in one.inbound_layers]
        check.equal(actual=read, expected=LAYERS[:-1], what="the inbound_layers of all layers but the first")


def test_a_layer_that_is_called_twice_has_two_stages(keras: Keras, tf: Any) -> None:
    """Each call of a shared layer is assigned on its own."""
    with keras.scope(CUT):
        inputs, shared = tf.keras.Input((4,)), tf.keras.layers.Dense(4, name="shared")
        with keras.stage(0):
            value = shared(inputs)
        with keras.stage(1):
            value = shared(value)
        assignment = tf.keras.Model(inputs, value).get_pipeline_stage_assignment()

        check_calls(assignment, [("shared", 0, 0), ("shared", 1, 1)])


@pytest.mark.parametrize("kind", KINDS)
def test_an_assignment_that_is_set_is_returned(keras: Keras, kind: str) -> None:
    """What set_pipeline_stage_assignment was given is what get returns."""
    with keras.scope(CUT):
        model = keras.build(kind)
        assign(model, kind, STAGES)

        check.equal(actual=stages_of(model), expected=STAGES, what="the stages of the layers")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("kind", KINDS)
def test_an_assignment_that_is_set_is_run(keras: Keras, kind: str) -> None:
    """A model whose stages were assigned later trains as specified in a pipeline."""
    with keras.ready(CUT, kind, stages=()) as model:
        assign(model, kind, STAGES)
        model.fit(keras.dataset(CUT), verbose=0)

    check_trained(keras.trained(model), CUT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_without_stages_has_none_assigned(keras: Keras, kind: str) -> None:
    """A model returns its layers without a stage."""
    with keras.scope(PLAIN):
        stages = stages_of(keras.build(kind))

    check.equal(actual=stages, expected=UNASSIGNED, what="the stages of the layers")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_reset_takes_the_pipeline_back(keras: Keras, kind: str) -> None:
    """After a reset the model runs on one IPU, as two replicas of the two that there are."""
    config = replace(PLAIN, device_iterations=2, replicas=2)
    with keras.scope(config):
        model = keras.build(kind, CUT.stages)
        model.reset_pipeline_stage_assignment()
        keras.compile(model, config)

        check.equal(actual=stages_of(model), expected=UNASSIGNED, what="the stages after the reset")
        model.fit(keras.dataset(config), verbose=0)

    check_trained(keras.trained(model), config)


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_names_layers_and_stages(keras: Keras, kind: str) -> None:
    """The printed table has a line for every layer, which ends in its stage."""
    lines: List[str] = []
    with keras.scope(CUT):
        model = keras.build(kind, CUT.stages)
        model.print_pipeline_stage_assignment_summary(print_fn=lines.append)

    rows = [(line.split(" ")[0], line.split()[-1]) for line in lines if line.split(" ")[0] in LAYERS]
    check.equal(actual=rows, expected=list(zip(LAYERS, map(str, STAGES))), what="the rows of the table")


@pytest.mark.parametrize("length", [60, 120])
def test_a_summary_is_as_wide_as_asked(keras: Keras, length: int) -> None:
    """line_length is the length of every rule of the table."""
    lines: List[str] = []
    with keras.scope(CUT):
        model = keras.build("sequential", CUT.stages)
        model.print_pipeline_stage_assignment_summary(line_length=length, print_fn=lines.append)

    rules = {line for line in lines if set(line) in ({"_"}, {"="})}
    check.equal(actual=sorted(rules), expected=["=" * length, "_" * length], what="the kinds of rules of the table")


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
@pytest.mark.parametrize("change", ["integers", "shorter", "foreign"])
def test_a_graph_takes_its_own_assignment(keras: Keras, kind: str, change: str) -> None:
    """A list of integers, one that is too short, or one of another model is refused."""
    with keras.scope(CUT):
        model, other = (keras.build(kind, CUT.stages) for _ in range(2))
        assignment = {
            "integers": STAGES,
            "shorter": model.get_pipeline_stage_assignment()[1:],
            "foreign": other.get_pipeline_stage_assignment(),
        }[change]

        with check.raises(ValueError, match="pipeline_stage_assignment", what=f"an assignment ({change})"):
            model.set_pipeline_stage_assignment(assignment)


WRONG = {
    "gap": ([0, 0, 0, 2, 2, 2, 2], "consecutive|strictly increasing|previous layer"),
    "late start": ([1, 1, 1, 1, 2, 2, 2], "consecutive|strictly increasing|0th pipeline stage"),
    "backwards": ([0, 1, 1, 0, 1, 1, 1], "has not yet (been )?executed|previous layer"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stages", "message"), WRONG.values(), ids=list(WRONG))
def test_stages_follow_the_data(keras: Keras, kind: str, stages: List[int], message: str) -> None:
    """Stages are consecutive from 0, and no layer reads what a later stage makes."""
    with keras.scope(CUT):
        model = keras.build(kind)
        with check.raises(ValueError, match=message, what=f"the stages {stages}"):
            assign(model, kind, stages)


@pytest.mark.ipus(2)
def test_every_layer_of_a_pipeline_has_a_stage(keras: Keras, tf: Any) -> None:
    """A model with a layer outside all stages cannot be made."""
    with keras.scope(CUT):
        inputs = tf.keras.Input((6,))
        with keras.stage(0):
            value = tf.keras.layers.Dense(4)(inputs)
        outputs = tf.keras.layers.Dense(5, name="forgotten")(value)

        message = r"must have an associated pipeline stage.*forgotten"
        with check.raises(ValueError, match=message, what="a model with a layer without a stage"):
            tf.keras.Model(inputs, outputs)


def test_a_layer_may_be_made_in_a_stage(keras: Keras, tf: Any) -> None:
    """Calls of a layer that was made in a stage belong to it, unless they are made in a stage of their own."""
    dense = tf.keras.layers.Dense
    with keras.scope(CUT):
        with keras.stage(0):
            first = dense(4, name="first")
        with keras.stage(1):
            second, third = dense(4, name="second"), dense(4, name="third")
        inputs = tf.keras.Input((4,))
        value = second(first(inputs))
        with keras.stage(2):
            value = first(third(value))
        model = tf.keras.Model(inputs, value)

    expected = [("first", 0, 0), ("second", 0, 1), ("third", 0, 2), ("first", 1, 2)]
    check_calls(model.get_pipeline_stage_assignment(), expected)


def test_a_subclassed_model_is_asked_after_it_is_built(keras: Keras, tf: Any) -> None:
    """The layers of a subclassed model are not known before it was built."""

    class Unbuilt(tf.keras.Model):
        def call(self, inputs: Any) -> Any:
            return inputs

    with keras.scope(CUT), check.raises(RuntimeError, match="before it is built", what="a model that is not built"):
        Unbuilt().get_pipeline_stage_assignment()
