"""Stages inside models that are called by other models.

Layers are single weights and the loss is the output: every value is exact, and a nested model must train as a flat one.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, List, Sequence

import pytest

COUNT = 4
"""Micro-batches that are accumulated."""


class Nested:
    """Builds chains of layers, some of them inside of a model that the outer one calls."""

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
        """A model of a layer, the inner model, which may be called again, and a layer."""
        inner = self.inner(kind)
        inputs = self.tf.keras.Input((1,))
        value = self.layer(1.0)(inputs)
        for _ in range(calls):
            value = inner(value)
        return self.tf.keras.Model(inputs, self.layer(1.0)(value))

    def flat(self, calls: int = 1) -> Any:
        """The same layers in one model."""
        layers = [self.layer(0.5), self.layer(2.0)] * calls
        value = inputs = self.tf.keras.Input((1,))
        for layer in [self.layer(1.0), *layers, self.layer(1.0)]:
            value = layer(value)
        return self.tf.keras.Model(inputs, value)

    def trained(self, build: Callable[[], Any], assign: Callable[[Any], None], mapping: Sequence[int]) -> List[float]:
        """The weights after one update of a pipeline, sorted: models list their layers in different orders."""
        self.configure(max(mapping) + 1)
        with self.ipu.ipu_strategy.IPUStrategy().scope():
            model = build()
            assign(model)
            model.set_pipelining_options(
                gradient_accumulation_steps_per_replica=COUNT,
                device_mapping=list(mapping),
                pipeline_schedule=self.ipu.pipelining_ops.PipelineSchedule.Sequential,
            )
            model.compile(self.tf.keras.optimizers.SGD(0.125), loss=lambda _, out: out, steps_per_execution=COUNT)
            column = [[0.25 * (row + 1)] for row in range(COUNT)]
            data = self.tf.data.Dataset.from_tensor_slices((column, column)).batch(1, drop_remainder=True)
            model.fit(data, verbose=0)
        return sorted(float(weight[0, 0]) for weight in model.get_weights())


@pytest.fixture
def nested(tf: Any, ipu: Any, configure: Callable[..., Any]) -> Nested:
    """Builds nested models."""
    return Nested(tf, ipu, configure)


def assigned(stages: Sequence[Any]) -> Callable[[Any], None]:
    """Sets one stage for each call, and a list of stages for each call of a model."""

    def assign(model: Any) -> None:
        assignments = model.get_pipeline_stage_assignment()
        for one, stage in zip(assignments, stages):
            if isinstance(stage, list):
                for inside, number in zip(one.pipeline_stage_assignments, stage):
                    inside.pipeline_stage = number
            else:
                one.pipeline_stage = stage
        model.set_pipeline_stage_assignment(assignments)

    return assign


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_a_nested_model_has_stages_inside(nested: Nested, strategy: Any, kind: str) -> None:
    """A call of a model has an assignment for each layer inside, which is given back as it was set."""
    with strategy.scope():
        model = nested.outer(kind)
    assigned([0, [0, 1], 1])(model)

    assignments = model.get_pipeline_stage_assignment()
    assert [isinstance(one, nested.kind) for one in assignments] == [False, True, False]
    assert [one.is_nested_model for one in assignments] == [False, True, False]
    assert [one.pipeline_stage for one in assignments[1].pipeline_stage_assignments] == [0, 1]
    assert assignments[1].nested_model is model.layers[2]


@pytest.mark.parametrize("kind", ["functional", "sequential"])
@pytest.mark.parametrize(
    ("stages", "flat"),
    [([0, [0, 1], 1], [0, 0, 1, 1]), ([0, [1, 1], 1], [0, 1, 1, 1]), ([0, 1, 1], [0, 1, 1, 1])],
    ids=str,
)
def test_a_nested_model_is_cut_inside(nested: Nested, kind: str, stages: List[Any], flat: List[int]) -> None:
    """A pipeline that cuts a nested model trains as one of the same layers in one model."""
    weights = nested.trained(lambda: nested.outer(kind), assigned(stages), (0, 1))

    assert weights == nested.trained(nested.flat, assigned(flat), (0, 1))


def test_each_call_has_stages_of_its_own(nested: Nested) -> None:
    """A model that is called twice is cut differently in each call; its weights are shared."""
    stages = [0, [0, 0], [0, 1], 1]

    weights = nested.trained(lambda: nested.outer("functional", 2), assigned(stages), (0, 0))

    assert weights == nested.trained(lambda: nested.flat(2), assigned([0, 0, 0, 0, 1, 1]), (0, 0))


def test_stages_of_the_nested_model_are_the_beginning(nested: Nested, strategy: Any) -> None:
    """Stages that were set on the nested model itself are those that an assignment begins with."""
    with strategy.scope():
        model = nested.outer("functional")
        inner = model.layers[2]
        assigned([0, 1])(inner)

    (nested_assignment,) = [one for one in model.get_pipeline_stage_assignment() if one.is_nested_model]
    assert [one.pipeline_stage for one in nested_assignment.pipeline_stage_assignments] == [0, 1]
    model.reset_pipeline_stage_assignment()
    assert [one.pipeline_stage for one in inner.get_pipeline_stage_assignment()] == [0, 1]


@pytest.mark.parametrize("stages", [[0, [1, 0], 1], [0, [0, None], 1], [0, [0, 2], 2]], ids=str)
def test_stages_inside_follow_the_rules(nested: Nested, strategy: Any, stages: List[Any]) -> None:
    """A layer inside has a stage, none reads from a later stage, and no stage is left out."""
    with strategy.scope():
        model = nested.outer("functional")

    with pytest.raises(ValueError, match=r"[Pp]ipeline stage"):
        assigned(stages)(model)
