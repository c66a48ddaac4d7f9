"""Pipeline stages of Keras models: scopes, and assignments that are asked for, set, reset and printed."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, List

import pytest

from ...training import cut
from .nets import PLAIN, Keras, assert_trained

CUT = cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2)
LAYERS = ["fc1", "act1", "fc2", "act2", "fc3", "act3", "fc4"]
STAGES = list(CUT.stages)


def assigned(model: Any) -> List[Any]:
    """The stages of a model of any kind."""
    return [getattr(one, "pipeline_stage", one) for one in model.get_pipeline_stage_assignment()]


def assign(model: Any, kind: str, stages: List[int]) -> None:
    """Set a stage for each layer: integers in a chain, changed assignments in other models."""
    if kind == "sequential":
        model.set_pipeline_stage_assignment(stages)
        return
    assignments = model.get_pipeline_stage_assignment()
    for assignment, stage in zip(assignments, stages):
        assignment.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignments)


def test_a_stage_needs_a_scope(tf: Any, ipu: Any) -> None:
    """PipelineStage outside of a strategy's scope is an error."""
    stage = importlib.import_module("keras.ipu").PipelineStage

    with pytest.raises(RuntimeError, match="may only be used from within an IPUStrategy context"), stage(0):
        pass


def test_stages_do_not_nest(keras: Keras) -> None:
    """A stage inside of a stage is an error."""
    refused = pytest.raises(RuntimeError, match="Pipeline stages must not be nested")
    with keras.scope(PLAIN), keras.stage(0), refused, keras.stage(1):
        pass


def test_a_stage_can_be_entered_after_a_refused_one(keras: Keras) -> None:
    """A refused scope leaves nothing behind."""
    with keras.scope(PLAIN):
        with keras.stage(0), pytest.raises(RuntimeError), keras.stage(1):
            pass
        with keras.stage(1):
            pass


@pytest.mark.parametrize("number", [-1, 1.5, "0", None, True])
def test_a_stage_is_counted_from_zero(keras: Keras, number: Any) -> None:
    """The number of a stage is an integer of at least 0."""
    with keras.scope(PLAIN), pytest.raises(ValueError, match="pipeline stage must be an integer"):
        keras.stage(number)


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_scopes_assign_the_layers_called_inside(keras: Keras, kind: str) -> None:
    """The assignment lists every call of a layer in the order of execution with the stage of its scope."""
    with keras.scope(CUT):
        model = keras.build(kind, CUT.stages)
        assignment = model.get_pipeline_stage_assignment()

        assert [one.layer.name for one in assignment] == LAYERS
        assert [one.pipeline_stage for one in assignment] == STAGES
        assert [one.node_index for one in assignment] == [0] * len(LAYERS)


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_an_assignment_knows_what_a_call_reads(keras: Keras, kind: str) -> None:
    """inbound_layers are the layers whose outputs a call reads."""
    with keras.scope(CUT):
        assignment = keras.build(kind, CUT.stages).get_pipeline_stage_assignment()

        assert [layer.name for layer in assignment[3].inbound_layers] == ["fc2"]


def test_a_layer_that_is_called_twice_has_two_stages(keras: Keras, tf: Any) -> None:
    """Each call of a shared layer is assigned on its own."""
    with keras.scope(CUT):
        inputs, shared = tf.keras.Input((4,)), tf.keras.layers.Dense(4, name="shared")
        with keras.stage(0):
            value = shared(inputs)
        with keras.stage(1):
            value = shared(value)
        assignment = tf.keras.Model(inputs, value).get_pipeline_stage_assignment()

        assert [(one.layer.name, one.node_index, one.pipeline_stage) for one in assignment] == [
            ("shared", 0, 0),
            ("shared", 1, 1),
        ]


@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed"])
def test_an_assignment_that_is_set_is_returned(keras: Keras, kind: str) -> None:
    """What set_pipeline_stage_assignment was given is what get returns."""
    with keras.scope(CUT):
        model = keras.build(kind)
        assign(model, kind, STAGES)

        assert assigned(model) == STAGES


@pytest.mark.ipus(2)
@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed"])
def test_an_assignment_that_is_set_is_run(keras: Keras, kind: str) -> None:
    """A model whose stages were assigned later trains as specified in a pipeline."""
    with keras.ready(CUT, kind, stages=()) as model:
        assign(model, kind, STAGES)
        model.fit(keras.dataset(CUT), verbose=0)

    assert_trained(keras.trained(model), CUT)


@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed"])
def test_a_model_without_stages_has_none_assigned(keras: Keras, kind: str) -> None:
    """A chain returns an empty list, other models calls without a stage."""
    with keras.scope(PLAIN):
        stages = assigned(keras.build(kind))

    assert stages == ([] if kind == "sequential" else [None] * len(LAYERS))


@pytest.mark.ipus(2)
@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed"])
def test_a_reset_takes_the_pipeline_back(keras: Keras, kind: str) -> None:
    """After a reset the model runs on one IPU, as two replicas of the two that there are."""
    config = replace(PLAIN, device_iterations=2, replicas=2)
    with keras.scope(config):
        model = keras.build(kind, CUT.stages)
        model.reset_pipeline_stage_assignment()
        keras.compile(model, config)

        assert set(assigned(model)) <= {None}
        model.fit(keras.dataset(config), verbose=0)

    assert_trained(keras.trained(model), config)


@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed"])
def test_a_summary_names_layers_and_stages(keras: Keras, kind: str) -> None:
    """The printed table has a line for every layer, which ends in its stage."""
    lines: List[str] = []
    with keras.scope(CUT):
        model = keras.build(kind, CUT.stages)
        model.print_pipeline_stage_assignment_summary(print_fn=lines.append)

    rows = [line for line in lines if line.split(" ")[0] in LAYERS]
    assert [(row.split(" ")[0], int(row.split()[-1])) for row in rows] == list(zip(LAYERS, STAGES))


@pytest.mark.parametrize("length", [60, 120])
def test_a_summary_is_as_wide_as_asked(keras: Keras, length: int) -> None:
    """line_length is the length of the rules of the table."""
    lines: List[str] = []
    with keras.scope(CUT):
        model = keras.build("sequential", CUT.stages)
        model.print_pipeline_stage_assignment_summary(line_length=length, print_fn=lines.append)

    assert lines.count("_" * length) == 2
    assert lines.count("=" * length) == 1


@pytest.mark.parametrize("stages", [(0, 0, 0, 1, 1, 1, 1), "0001111", [0.0] * 7, None], ids=str)
def test_a_chain_takes_a_list_of_integers(keras: Keras, stages: Any) -> None:
    """Anything but a list of integers is refused for a Sequential model."""
    with keras.scope(CUT):
        model = keras.build("sequential")

        with pytest.raises(ValueError, match="must be a list of integers"):
            model.set_pipeline_stage_assignment(stages)


@pytest.mark.parametrize("number", [0, 6, 8])
def test_a_chain_takes_a_stage_for_each_layer(keras: Keras, number: int) -> None:
    """A list that is shorter or longer than the layers is refused."""
    with keras.scope(CUT):
        model = keras.build("sequential")

        with pytest.raises(ValueError, match="does not match the number of layers"):
            model.set_pipeline_stage_assignment([0] * number)


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

        with pytest.raises(ValueError, match="pipeline_stage_assignment"):
            model.set_pipeline_stage_assignment(assignment)


WRONG = {
    "gap": ([0, 0, 0, 2, 2, 2, 2], "consecutive"),
    "late start": ([1, 1, 1, 1, 2, 2, 2], "consecutive"),
    "backwards": ([0, 1, 1, 0, 1, 1, 1], "has not yet been executed"),
}


@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed"])
@pytest.mark.parametrize(("stages", "message"), WRONG.values(), ids=list(WRONG))
def test_stages_follow_the_data(keras: Keras, kind: str, stages: List[int], message: str) -> None:
    """Stages are consecutive from 0, and no layer reads what a later stage makes."""
    with keras.scope(CUT):
        model = keras.build(kind)

        with pytest.raises(ValueError, match=message):
            assign(model, kind, stages)


@pytest.mark.ipus(2)
def test_every_layer_of_a_pipeline_has_a_stage(keras: Keras, tf: Any) -> None:
    """A model with some layers outside of all scopes cannot be run."""
    with keras.scope(CUT):
        inputs = tf.keras.Input((6,))
        with keras.stage(0):
            value = tf.keras.layers.Dense(4)(inputs)
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(5, name="forgotten")(value))
        keras.compile(model, CUT)
        keras.options(model, CUT)

        with pytest.raises(ValueError, match=r"must have an associated pipeline stage.*forgotten"):
            model.fit(keras.dataset(CUT), verbose=0)


def test_a_subclassed_model_is_asked_after_it_is_built(keras: Keras, tf: Any) -> None:
    """The layers of a subclassed model are not known before it was built."""

    class Unbuilt(tf.keras.Model):
        def call(self, inputs: Any) -> Any:
            return inputs

    with keras.scope(CUT):
        model = Unbuilt()

        with pytest.raises(RuntimeError, match="before it is built"):
            model.get_pipeline_stage_assignment()


@pytest.mark.ipus(2)
def test_a_device_mapping_has_an_entry_for_each_stage(keras: Keras) -> None:
    """A mapping of another length is refused when the model is run."""
    with keras.ready(CUT, options=False) as model:
        model.set_pipelining_options(4, device_mapping=[0, 1, 0])

        with pytest.raises(ValueError, match="`device_mapping` has 3 entries for a pipeline of 2 stages"):
            model.fit(keras.dataset(CUT), verbose=0)
