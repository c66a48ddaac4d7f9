"""Pipeline stages of Keras models: scopes, and assignments that are asked for, set, reset and printed."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from ipu_conformance import check

from ...training import cut
from .nets import KINDS, PLAIN, Keras, stages_of

CUT = cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2)
LAYERS = ["fc1", "act1", "fc2", "act2", "fc3", "act3", "fc4"]
STAGES = list(CUT.stages)
FORMS = (*KINDS, "assignments")
"""The kinds of models, and a chain that is given assignments of its layers instead of integers."""


def built(keras: Keras, form: str, stages: Sequence[int] = ()) -> Any:
    """The net as a model of the kind."""
    return keras.build("sequential" if form == "assignments" else form, stages)


def assignments(model: Any, stages: Sequence[Any]) -> List[Any]:
    """An assignment of every layer of a chain."""
    kind = importlib.import_module("keras.ipu").SequentialLayerPipelineStageAssignment
    return [kind(layer, stage) for layer, stage in zip(model.layers, stages)]


def assign(model: Any, form: str, stages: List[Any]) -> None:
    """Set a stage for each layer: integers or assignments in a chain, changed assignments in other models."""
    given = stages
    if form == "assignments":
        given = assignments(model, stages)
    elif form != "sequential":
        given = model.get_pipeline_stage_assignment()
        for assignment, stage in zip(given, stages):
            assignment.pipeline_stage = stage
    model.set_pipeline_stage_assignment(given)


UNASSIGNED = [None] * len(LAYERS)
"""The stages of a model that has none."""


def check_calls(assignment: List[Any], expected: List[Tuple[str, int, int]]) -> None:
    """An assignment has these layers, numbers of their calls, and stages."""
    __tracebackhide__ = True
    calls = [(one.layer.name, one.node_index, one.pipeline_stage) for one in assignment]
    check.equal(actual=calls, expected=expected, what="the layer, node_index and pipeline_stage of each call")


def test_a_stage_needs_a_scope(tf: Any, ipu: Any) -> None:
    """PipelineStage outside a strategy's scope is an error."""
    message = "may only be used from within an IPUStrategy context"
    refused = check.raises(RuntimeError, match=message, what="a PipelineStage outside a scope")
    with refused, importlib.import_module("keras.ipu").PipelineStage(0):
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
        word = "Functional" if kind == "functional" else "Model"
        types = {type(one).__name__ for one in assignment}
        check.equal(actual=types, expected={f"{word}LayerPipelineStageAssignment"}, what="the types of assignments")
        said = [f"{name} (node index 0) is assigned to pipeline stage: {stage}" for name, stage in zip(LAYERS, STAGES)]
        check.equal(actual=[*map(str, assignment)], expected=[f"Layer: {each}" for each in said], what="their text")
        read = [layer.name for one in assignment[1:] for layer in one.inbound_layers]
        check.equal(actual=read, expected=LAYERS[:-1], what="the inbound_layers of all layers but the first")


@pytest.mark.parametrize("form", FORMS)
def test_an_assignment_that_is_set_is_returned(keras: Keras, form: str) -> None:
    """Nothing is assigned at first; then get returns what set was given, in a list that is not the model's own."""
    stages = list(STAGES)
    with keras.scope(CUT):
        model = built(keras, form)
        before = stages_of(model)
        assign(model, form, stages)
        model.get_pipeline_stage_assignment().pop()
        stages[0] = 9
        returned = model.get_pipeline_stage_assignment()

    check.equal(actual=before, expected=UNASSIGNED, what="the stages of the layers at first")
    check_calls(returned, [(name, 0, stage) for name, stage in zip(LAYERS, STAGES)])
    nested = [(one.layer in model.layers, one.is_nested_model) for one in returned]
    check.equal(actual=set(nested), expected={(True, False)}, what="whether layers are the model's, and nested models")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("form", FORMS)
def test_an_assignment_that_is_set_is_run(keras: Keras, form: str) -> None:
    """A model whose stages were assigned later trains as specified in a pipeline."""
    with keras.ready(CUT, "sequential" if form == "assignments" else form, stages=()) as model:
        assign(model, form, STAGES)
        model.fit(keras.dataset(CUT), verbose=0)

    keras.check_trained(model, CUT)


@pytest.mark.parametrize("kind", KINDS)
def test_assignments_are_changed_and_set_again(keras: Keras, kind: str) -> None:
    """What was given back and changed counts once it is set again."""
    with keras.scope(CUT):
        model = keras.build(kind, CUT.stages)
        assigned = model.get_pipeline_stage_assignment()
        assigned[3].pipeline_stage = 1 - STAGES[3]
        model.set_pipeline_stage_assignment(assigned)

    expected = [*STAGES[:3], 1 - STAGES[3], *STAGES[4:]]
    check.equal(actual=stages_of(model), expected=expected, what="the stages of the layers")


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

    keras.check_trained(model, config)


@pytest.mark.parametrize(
    ("kind", "length"), [*((kind, None) for kind in KINDS), ("sequential", 60), ("sequential", 120)]
)
def test_a_summary_names_layers_and_stages(keras: Keras, kind: str, length: Optional[int]) -> None:
    """The printed table has a line for every layer, which ends in its stage, and rules as long as asked."""
    lines: List[str] = []
    with keras.scope(CUT):
        model = keras.build(kind, CUT.stages)
        model.print_pipeline_stage_assignment_summary(line_length=length, print_fn=lines.append)

    rows = [(line.split(" ")[0], line.split()[-1]) for line in lines if line.split(" ")[0] in LAYERS]
    check.equal(actual=rows, expected=list(zip(LAYERS, map(str, STAGES))), what="the rows of the table")
    rules = {line for line in lines if set(line) in ({"_"}, {"="})}
    if length:
        check.equal(actual=sorted(rules), expected=["=" * length, "_" * length], what="the kinds of rules")


FOREIGN = "pipeline_stage_assignment"
WRONG: Dict[str, Tuple[Any, str]] = {
    "integers": (lambda model, other: STAGES, FOREIGN),
    "shorter": (lambda model, other: model.get_pipeline_stage_assignment()[1:], FOREIGN),
    "foreign": (lambda model, other: other.get_pipeline_stage_assignment(), FOREIGN),
    "gap": ([0, 0, 0, 2, 2, 2, 2], "consecutive|strictly increasing|previous layer"),
    "late start": ([1, 1, 1, 1, 2, 2, 2], "consecutive|strictly increasing|0th pipeline stage"),
    "backwards": ([0, 1, 1, 0, 1, 1, 1], "has not yet (been )?executed|previous layer"),
    "mixed": (lambda model, other: [*assignments(model, STAGES)[:6], 1], "pipeline"),
    "order": (lambda model, other: [assignments(model, STAGES)[place] for place in (0, 2, 1, 3, 4, 5, 6)], "pipeline"),
    "missing": ([0, None, 0, 0, 1, 1, 1], "pipeline"),
    "short": (lambda model, other: assignments(model, STAGES)[:6], "pipeline"),
}


@pytest.mark.parametrize(("wrong", "form"), [
    *((wrong, kind) for wrong in ("integers", "shorter", "foreign") for kind in ("functional", "subclassed")),
    *((wrong, kind) for wrong in ("gap", "late start", "backwards") for kind in KINDS),
    *((wrong, "assignments") for wrong in ("mixed", "order", "missing", "short")),
])  # fmt: skip
def test_stages_follow_the_data(keras: Keras, form: str, wrong: str) -> None:
    """Stages are consecutive from 0, no layer reads what a later stage makes, and an assignment has the model's layers.

    What is refused changes nothing.
    """
    stages, message = WRONG[wrong]
    with keras.scope(CUT):
        model, other = (built(keras, form, STAGES) for _ in range(2))
        with check.raises(ValueError, match=message, what=f"an assignment ({wrong})"):
            if callable(stages):
                model.set_pipeline_stage_assignment(stages(model, other))
            else:
                assign(model, form, stages)

    check.equal(actual=stages_of(model), expected=STAGES, what="the stages after the refusal")


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
    """Each call of a layer is assigned on its own; one that is made in no stage belongs to that of the layer."""
    dense = tf.keras.layers.Dense
    with keras.scope(CUT):
        first, inputs = dense(4, name="first"), tf.keras.Input((4,))
        with keras.stage(1):
            second, third = dense(4, name="second"), dense(4, name="third")
        with keras.stage(0):
            value = first(inputs)
        value = second(value)
        with keras.stage(2):
            value = first(third(value))
        model = tf.keras.Model(inputs, value)

    expected = [("first", 0, 0), ("second", 0, 1), ("third", 0, 2), ("first", 1, 2)]
    check_calls(model.get_pipeline_stage_assignment(), expected)


def test_a_subclassed_model_is_asked_after_it_is_built(keras: Keras, tf: Any) -> None:
    """The layers of a subclassed model are not known before it was built."""
    unbuilt = type("Unbuilt", (tf.keras.Model,), {"call": lambda self, inputs: inputs})
    with keras.scope(CUT), check.raises(RuntimeError, match="before it is built", what="a model that is not built"):
        unbuilt().get_pipeline_stage_assignment()


def test_models_have_the_extension_of_their_kind(keras: Keras) -> None:
    """Models that are built in a scope are instances of the extension of their kind, and of no other's."""
    extensions = importlib.import_module("keras.ipu").extensions
    own, names = ("SequentialExtension", "FunctionalExtension"), {}
    with keras.scope(PLAIN):
        models = {kind: keras.build(kind) for kind in KINDS}
    for kind, model in models.items():
        check.instance(actual=model, expected=extensions.ModelExtension, what=f"a {kind} model")
        names[kind] = [name for name in own if isinstance(model, getattr(extensions, name))]

    expected = {"sequential": ["SequentialExtension"], "functional": ["FunctionalExtension"], "subclassed": []}
    check.equal(actual=names, expected=expected, what="the extensions of models")
