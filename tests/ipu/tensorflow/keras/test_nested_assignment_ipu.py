"""Stages inside models that are called by other models.

Layers are single weights and the loss is the output: every value is exact.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, List, Sequence

import pytest

from ipu_conformance import check

RATE = 0.125
INPUTS = (0.25, 0.5, 0.75, 1.0)
"""The micro-batches that are accumulated."""


class Nested:
    """Builds chains of layers, some of them inside a model that the outer one calls."""

    def __init__(self, tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
        self.tf, self.ipu, self.configure = tf, ipu, configure
        self.kind = importlib.import_module("keras.ipu").FunctionalNestedModelPipelineStageAssignment

    def layer(self, start: float) -> Any:
        """One weight."""
        return self.tf.keras.layers.Dense(
            1, use_bias=False, kernel_initializer=self.tf.keras.initializers.Constant(start)
        )

    def inner(self, kind: str) -> Any:
        """A model of two layers."""
        layers = [self.layer(0.5), self.layer(2.0)]
        if kind == "sequential":
            return self.tf.keras.Sequential([self.tf.keras.Input((1,)), *layers])
        inputs = self.tf.keras.Input((1,))
        return self.tf.keras.Model(inputs, layers[1](layers[0](inputs)))

    def outer(self, kind: str, calls: int = 1) -> Any:
        """A model of a layer, the inner model, which may be called again, and a layer; or such a chain."""
        inner = self.inner(kind.replace("chained ", ""))
        if kind.startswith("chained"):
            return self.tf.keras.Sequential([self.tf.keras.Input((1,)), self.layer(1.0), inner, self.layer(1.0)])
        inputs = self.tf.keras.Input((1,))
        value = self.layer(1.0)(inputs)
        for _ in range(calls):
            value = inner(value)
        return self.tf.keras.Model(inputs, self.layer(1.0)(value))

    def check_trained(self, kind: str, stages: Sequence[Any], mapping: Sequence[int], calls: int = 1) -> None:
        """The weights after one update of a pipeline are exact; models list their layers in different orders."""
        __tracebackhide__ = True
        self.configure(max(mapping) + 1)
        with self.ipu.ipu_strategy.IPUStrategy().scope():
            model = self.outer(kind, calls)
            assign(model, stages)
            model.set_pipelining_options(
                gradient_accumulation_steps_per_replica=len(INPUTS),
                device_mapping=list(mapping),
                pipeline_schedule=self.ipu.pipelining_ops.PipelineSchedule.Sequential,
            )
            model.compile(self.tf.keras.optimizers.SGD(RATE), loss=lambda _, out: out, steps_per_execution=len(INPUTS))
            column = [[value] for value in INPUTS]
            data = self.tf.data.Dataset.from_tensor_slices((column, column)).batch(1, drop_remainder=True)
            model.fit(data, verbose=0)

        # The product of all weights is 1: the gradient of one is its uses times the inputs' sum, divided by itself.
        starts = [(1.0, 1), (0.5, calls), (2.0, calls), (1.0, 1)]
        expected = sorted(start - RATE * uses * sum(INPUTS) / start for start, uses in starts)
        weights = sorted(float(weight[0, 0]) for weight in model.get_weights())
        check.equal(actual=weights, expected=expected, what=f"the sorted weights of a pipeline in stages {stages}")


@pytest.fixture
def nested(tf: Any, ipu: Any, configure: Callable[..., Any]) -> Nested:
    """Builds nested models."""
    return Nested(tf, ipu, configure)


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
    """The stage of every assignment."""
    return [one.pipeline_stage for one in assignments]


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_a_nested_model_has_stages_inside(nested: Nested, strategy: Any, kind: str) -> None:
    """A call of a model has an assignment for each layer inside, which is given back as it was set."""
    with strategy.scope():
        model = nested.outer(kind)
    assign(model, [0, [0, 1], 1])

    assignments = model.get_pipeline_stage_assignment()
    found = [(isinstance(one, nested.kind), one.is_nested_model) for one in assignments]
    expected = [(False, False), (True, True), (False, False)]
    check.equal(actual=found, expected=expected, what="the type and is_nested_model of each assignment")
    inside = stages_of(assignments[1].pipeline_stage_assignments)
    check.equal(actual=inside, expected=[0, 1], what="the stages inside the nested model")
    check.equal(actual=assignments[1].nested_model, expected=model.layers[2], what="the nested_model")


@pytest.mark.parametrize("kind", ["functional", "sequential", "chained functional", "chained sequential"])
@pytest.mark.parametrize("stages", [[0, [0, 1], 1], [0, [1, 1], 1], [0, 1, 1]], ids=str)
def test_a_nested_model_is_cut_inside(nested: Nested, kind: str, stages: List[Any]) -> None:
    """A pipeline that cuts a nested model trains all of its layers."""
    nested.check_trained(kind, stages, (0, 1))


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_a_chain_has_assignments_of_models(tf: Any, nested: Nested, strategy: Any, kind: str) -> None:
    """In a chain a model has an assignment for each layer inside, and a copy of the chain has the same stages."""
    with strategy.scope():
        model = nested.outer(f"chained {kind}")
        assign(model, [0, [0, 1], 1])
        copy = type(model).from_config(model.get_config())

    inner = importlib.import_module("keras.ipu").SequentialNestedModelPipelineStageAssignment
    for chain in (model, copy):
        assignments = chain.get_pipeline_stage_assignment()
        found = [(isinstance(one, inner), one.is_nested_model) for one in assignments]
        expected = [(False, False), (True, True), (False, False)]
        check.equal(actual=found, expected=expected, what="the type and is_nested_model of each assignment")
        check.equal(actual=assignments[1].nested_model, expected=chain.layers[1], what="the nested_model")
        inside = stages_of(assignments[1].pipeline_stage_assignments)
        check.equal(actual=inside, expected=[0, 1], what="the stages inside the nested model")
        around = stages_of([assignments[0], assignments[2]])
        check.equal(actual=around, expected=[0, 1], what="the stages around it")


def test_each_call_has_stages_of_its_own(nested: Nested) -> None:
    """A model that is called twice is cut differently in each call; its weights are shared."""
    nested.check_trained("functional", [0, [0, 0], [0, 1], 1], (0, 0), calls=2)


def test_stages_of_the_nested_model_are_the_beginning(nested: Nested, strategy: Any) -> None:
    """Stages that were set on the nested model itself are those that an assignment begins with."""
    with strategy.scope():
        model = nested.outer("functional")
        inner = model.layers[2]
        assign(inner, [0, 1])

    (assignment,) = [one for one in model.get_pipeline_stage_assignment() if one.is_nested_model]
    first = stages_of(assignment.pipeline_stage_assignments)
    check.equal(actual=first, expected=[0, 1], what="the stages that an assignment of the outer model begins with")
    model.reset_pipeline_stage_assignment()
    after = stages_of(inner.get_pipeline_stage_assignment())
    check.equal(actual=after, expected=[0, 1], what="the nested model's own stages after a reset of the outer model")


@pytest.mark.parametrize("stages", [[0, [1, 0], 1], [0, [0, None], 1], [0, [0, 2], 2]], ids=str)
def test_stages_inside_follow_the_rules(nested: Nested, strategy: Any, stages: List[Any]) -> None:
    """A layer inside has a stage, none reads from a later stage, and no stage is left out."""
    with strategy.scope():
        model = nested.outer("functional")

    with check.raises(ValueError, match=r"[Pp]ipeline stage", what=f"the assignment {stages}"):
        assign(model, stages)
