"""The rules of Keras models that need no model: steps, options, stages, accumulation."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, List

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_conformance.emulator.tensorflow.keras import feeding, options, partition
from ipu_conformance.emulator.tensorflow.keras.partition import Call
from ipu_conformance.emulator.tensorflow.run import accumulation, training
from tests.unit.examples import at_most

pytestmark = pytest.mark.usefixtures("tf_of_file")

tf: Any = None


# Steps


@given(st.integers(1, 60), st.integers(1, 8))
@settings(deadline=None)
def test_steps_fill_all_replicas(batches: int, replicas: int) -> None:
    """Every step takes one batch for each replica, and less than one step is left over."""
    if batches < replicas:
        with pytest.raises(ValueError, match="fewer than"):
            feeding.steps_per_replica(batches, replicas)
    else:
        steps = feeding.steps_per_replica(batches, replicas)
        assert 0 <= batches - steps * replicas < replicas


@given(st.integers(1, 40), st.integers(1, 40))
@settings(deadline=None)
def test_an_execution_divides_the_steps_or_is_cut(asked: int, steps: int) -> None:
    """What is used divides the steps and is never more than asked for."""
    if asked <= steps and steps % asked:
        with pytest.raises(ValueError, match="must be a divisor"):
            feeding.steps_per_execution(asked, steps)
    else:
        used = feeding.steps_per_execution(asked, steps)
        assert used == min(asked, steps)
        assert steps % used == 0


# Options


@given(st.sampled_from(accumulation.Method), st.sampled_from([str.lower, str.upper, str.title]))
def test_reductions_are_read_in_any_case(method: accumulation.Method, written: Any) -> None:
    """The name of a reduction may be written in any case, or come as the name of a member."""
    assert options.reduction_method(written(method.name)) is method
    assert options.reduction_method(SimpleNamespace(name=method.name)) is method


@pytest.mark.parametrize(
    ("given_", "want"), [(None, "grouped"), ("Interleaved", "interleaved"), ("SEQUENTIAL", "sequential")]
)
def test_schedules_are_read_in_any_case(given_: Any, want: str) -> None:
    """A schedule is a name or a member; without one it is grouped."""
    assert options.schedule(given_) == want


def test_an_unknown_schedule_is_refused() -> None:
    """The schedules are three."""
    with pytest.raises(ValueError, match="Grouped, Interleaved or Sequential"):
        options.schedule("zigzag")


# Stages


@dataclass
class Layer:
    """A layer that has a name only."""

    name: str


def chain(stages: List[Any]) -> List[Call]:
    """Calls of which each reads the one before."""
    return [
        Call(Layer(f"layer {number}"), 0, (str(number),), (str(number + 1),), stage)
        for number, stage in enumerate(stages)
    ]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_a_chain_is_valid_when_its_stages_ascend_without_gaps(stages: List[int]) -> None:
    """Stages of a chain never descend, begin at 0 and leave none out."""
    ascending = all(one <= other for one, other in zip(stages, stages[1:]))
    if ascending and sorted(set(stages)) == list(range(len(set(stages)))):
        assert partition.check(chain(stages)) == len(set(stages))
    else:
        with pytest.raises(ValueError, match=r"consecutive|has not yet been executed"):
            partition.check(chain(stages))


def test_calls_without_a_stage_are_named() -> None:
    """The error names every call that has no stage."""
    with pytest.raises(ValueError, match=r"layer 1, layer 2 have not been assigned"):
        partition.check(chain([0, None, None]))


# Accumulation


@given(st.lists(st.integers(-8, 8), min_size=1, max_size=6), st.sampled_from(accumulation.Method))
@at_most(30)
def test_gradients_accumulate_as_defined(values: List[int], method: accumulation.Method) -> None:
    """A sum, its division by the count, and the running mean, whose order of rounding is its own."""
    accumulator, variable = accumulation.Accumulator(method), tf.zeros([], tf.float64)
    for value in values:
        accumulator.add("w", accumulation.Gradient(None, tf.constant(float(value), tf.float64), variable))
    held = accumulator.held["w"].numpy()
    want = np.mean(values) if method is accumulation.Method.RUNNING_MEAN else float(sum(values))

    # Each of the steps of a running mean rounds two products and a sum of values of at most 8.
    assert abs(held - want) <= 3 * 8 * len(values) * np.finfo(np.float64).eps
    if method is not accumulation.Method.RUNNING_MEAN:
        assert held == want


def test_a_gradient_that_is_missing_is_passed_on() -> None:
    """A variable without a gradient is remembered, and nothing is held for it."""
    accumulator = accumulation.Accumulator(accumulation.Method.SUM)
    accumulator.add("w", accumulation.Gradient(None, None, "variable"))

    assert accumulator.held == {}
    assert list(accumulator.of) == ["w"]


def test_captured_gradients_are_not_applied() -> None:
    """Inside of ``captured`` an optimizer leaves its gradients, in order, and changes nothing."""
    variable, optimizer = tf.Variable(1.0), tf.keras.optimizers.SGD(1.0)
    with accumulation.capturing([optimizer]), accumulation.captured() as gradients:
        optimizer.apply_gradients([(tf.constant(2.0), variable)])

    assert [(float(one.value), one.variable is variable) for one in gradients] == [(2.0, True)]
    assert float(variable) == 1.0
    optimizer.apply_gradients([(tf.constant(2.0), variable)])
    assert float(variable) == -1.0


# Loops


@pytest.mark.parametrize("times", [1, 4])
def test_a_loop_returns_its_last_or_all_its_results(times: int) -> None:
    """One body gives the last result, or all of them one after the other."""
    counter = tf.Variable(0.0)

    @tf.function(autograph=False)
    def run() -> Any:
        def body() -> Any:
            return {"n": counter.assign_add(1.0).read_value()}

        def rows() -> Any:
            return {"n": tf.reshape(counter.assign_add(1.0).read_value(), [1])}

        last = training.repeated_last(tf.constant(times), body, {"n": tf.TensorSpec([], tf.float32)})
        with tf.control_dependencies([last["n"]]):
            every = training.repeated_all(tf.constant(times), rows, {"n": tf.TensorSpec([None], tf.float32)})
        return last, every

    last, every = run()
    assert float(last["n"]) == times
    assert every["n"].numpy().tolist() == list(range(times + 1, 2 * times + 1))


def test_a_specification_is_found_without_running() -> None:
    """Shapes and dtypes of results are found in a graph that is thrown away; nothing is executed."""
    counter = tf.Variable(0.0)

    def step(x: Any) -> Any:
        counter.assign_add(1.0)
        return {"sum": tf.reduce_sum(x), "rows": x * 2}

    spec = training.spec_of(step, tf.TensorSpec([3, 2], tf.float32))

    assert spec == {"sum": tf.TensorSpec([], tf.float32), "rows": tf.TensorSpec([3, 2], tf.float32)}
    assert float(counter) == 0.0


# The module


@pytest.mark.parametrize("name", ["layers", "losses"])
def test_modules_of_keras_are_found_when_they_are_asked_for(name: str) -> None:
    """``keras.ipu.layers`` needs no import of its own."""
    keras = importlib.import_module("keras")

    assert getattr(keras.ipu, name) is importlib.import_module(f"ipu_conformance.emulator.tensorflow.api.keras.{name}")


def test_unknown_names_of_keras_are_missing() -> None:
    """Anything else is an AttributeError, as of any module."""
    keras = importlib.import_module("keras")

    assert not hasattr(keras.ipu, "pipelines")
