"""Compiling a part of a graph: what comes back, and what runs with it."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check


@pytest.fixture
def session(tf: Any, configure: Callable[..., Any]) -> Any:
    """A session of a graph on a device of one IPU."""
    configure(1)
    with tf.Graph().as_default(), tf.compat.v1.Session() as opened:
        yield opened


def compiled(ipu: Any, computation: Callable[..., Any], inputs: Any = None) -> Any:
    """The result of compiling for the first device."""
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        return ipu.ipu_compiler.compile(computation, inputs)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (lambda a, b: a + b, [5.0]),
        (lambda a, b: [a + b], [5.0]),
        (lambda a, b: (a + b, a * b), [5.0, 6.0]),
        (lambda a, b: [a, b, a - b], [2.0, 3.0, -1.0]),
    ],
    ids=["tensor", "list", "tuple", "three"],
)
def test_tensors_come_back_in_order(
    tf: Any, ipu: Any, session: Any, returned: Callable[..., Any], expected: Any
) -> None:
    """A single tensor comes back in a sequence of one, several in their order."""
    result = compiled(ipu, returned, [tf.constant(2.0), tf.constant(3.0)])

    assert [float(value) for value in session.run(list(result))] == expected


def test_structures_come_back(tf: Any, ipu: Any, session: Any) -> None:
    """A dictionary keeps its keys."""
    result = compiled(ipu, lambda a: {"double": 2 * a, "half": a / 2}, [tf.constant(3.0)])

    assert session.run(result) == {"double": 6.0, "half": 1.5}


@pytest.mark.parametrize("kind", ["nothing", "operation"])
def test_effects_come_back_as_an_operation(tf: Any, ipu: Any, session: Any, kind: str) -> None:
    """A computation that returns no tensor is an operation that runs all of it."""
    counter = tf.compat.v1.get_variable("counter", initializer=0.0, use_resource=True)

    def computation() -> Any:
        added = counter.assign_add(2.0)
        return None if kind == "nothing" else added.op

    result = compiled(ipu, computation)
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(result)
    session.run(result)

    assert isinstance(result, tf.Operation)
    assert session.run(counter) == 4.0


def test_operations_run_with_the_tensors(tf: Any, ipu: Any, session: Any) -> None:
    """Operations that are returned after tensors run whenever a tensor is evaluated."""
    counter = tf.compat.v1.get_variable("counter", initializer=0.0, use_resource=True)
    (result,) = compiled(ipu, lambda: [tf.constant(7.0), counter.assign_add(2.0).op])
    session.run(tf.compat.v1.global_variables_initializer())

    assert session.run(result) == 7.0
    assert session.run(counter) == 2.0


def test_placeholders_are_fed(tf: Any, ipu: Any, session: Any) -> None:
    """Inputs may be placeholders that a session feeds."""
    x = tf.compat.v1.placeholder(tf.float32, [3])
    (result,) = compiled(ipu, lambda value: value * value, [x])

    check.identical(
        actual=session.run(result, {x: [1, 2, 3]}), expected=np.asarray([1, 4, 9], np.float32), what="the squares"
    )


def test_tensors_around_are_captured(tf: Any, ipu: Any, session: Any) -> None:
    """A computation may use tensors that are not among its inputs."""
    x = tf.compat.v1.placeholder(tf.float32, [])
    (result,) = compiled(ipu, lambda: x + 1)

    assert session.run(result, {x: 4.0}) == 5.0


def test_nested_inputs_are_passed(tf: Any, ipu: Any, session: Any) -> None:
    """An input may be a structure."""
    (result,) = compiled(ipu, lambda pair, scale: (pair[0] - pair[1]) * scale, [[5.0, 2.0], 4.0])

    assert session.run(result) == 12.0


def test_variables_of_a_computation_belong_to_the_graph(tf: Any, ipu: Any, session: Any) -> None:
    """Variables that a computation makes are found, initialised and saved by the graph around it."""

    def computation() -> Any:
        weight = tf.compat.v1.get_variable("weight", [2], initializer=tf.compat.v1.ones_initializer())
        return weight.assign_add([1.0, 2.0])

    (result,) = compiled(ipu, computation)
    names = [variable.name for variable in tf.compat.v1.trainable_variables()]
    session.run(tf.compat.v1.global_variables_initializer())

    assert names == ["weight:0"]
    assert session.run(result).tolist() == [2.0, 3.0]
    assert session.run(result).tolist() == [3.0, 5.0]


def test_what_is_not_for_an_ipu_is_refused(tf: Any, ipu: Any, session: Any) -> None:
    """A computation that no scope places on an IPU is not compiled."""
    with pytest.raises(RuntimeError, match="not compiled for an IPU device"):
        ipu.ipu_compiler.compile(lambda: tf.constant(1.0) + 1)


def test_a_scope_inside_places_the_computation(tf: Any, ipu: Any, session: Any) -> None:
    """The scope of an IPU may be opened by the computation itself."""

    def computation() -> Any:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            return tf.constant(1.0) + 1

    (result,) = ipu.ipu_compiler.compile(computation)

    assert session.run(result) == 2.0


@pytest.mark.parametrize(("computation", "inputs"), [(3, None), (lambda x: x, 5)], ids=["computation", "inputs"])
def test_wrong_arguments_are_refused(ipu: Any, session: Any, computation: Any, inputs: Any) -> None:
    """A computation is a function and its inputs a list."""
    with pytest.raises(TypeError):
        compiled(ipu, computation, inputs)


def test_it_compiles_inside_a_function(tf: Any, ipu: Any, strategy: Any) -> None:
    """In a function of a strategy the computation is part of the function."""

    @tf.function
    def program(x: Any) -> Any:
        return ipu.ipu_compiler.compile(lambda value: [value + 1, value * 2], [x])

    assert [float(value) for value in strategy.run(program, args=(tf.constant(3.0),))] == [4.0, 6.0]


def test_it_compiles_in_eager_mode(tf: Any, ipu: Any, strategy: Any) -> None:
    """In eager mode it computes at once."""
    assert [float(value) for value in compiled(ipu, lambda value: value + 1, [tf.constant(3.0)])] == [4.0]
