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
        (lambda a, b: {"sum": a + b, "half": a / 2}, {"sum": 5.0, "half": 1.0}),
    ],
    ids=["tensor", "list", "tuple", "three", "dictionary"],
)
def test_tensors_come_back_in_order(tf: Any, ipu: Any, session: Any, returned: Any, expected: Any) -> None:
    """A single tensor comes back in a sequence of one, several in their order, and a dictionary with its keys."""
    result = compiled(ipu, returned, [tf.constant(2.0), tf.constant(3.0)])

    actual = session.run(result if isinstance(expected, dict) else list(result))
    check.equal(actual=actual, expected=expected, what="what the computation returns")


def test_xla_compiles_for_the_device_of_its_scope(tf: Any, ipu: Any, session: Any) -> None:
    """In the scope of an IPU ``xla.compile`` is ``ipu_compiler.compile``: a loop may take from an infeed."""
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices([1.0, 2.0, 4.0, 8.0]))
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        (total,) = tf.xla.experimental.compile(lambda: ipu.loops.repeat(3, lambda t, x: t + x, [0.5], queue))
    session.run(queue.initializer)

    check.equal(actual=session.run(total), expected=7.5, what="the sum of three elements")


@pytest.mark.parametrize("kind", ["nothing", "operation"])
def test_effects_come_back_as_an_operation(tf: Any, ipu: Any, session: Any, kind: str) -> None:
    """A computation that returns no tensor becomes an operation, which runs all of it."""
    counter = tf.compat.v1.get_variable("counter", initializer=0.0, use_resource=True)

    def computation() -> Any:
        added = counter.assign_add(2.0)
        return None if kind == "nothing" else added.op

    result = compiled(ipu, computation)
    session.run(tf.compat.v1.global_variables_initializer())
    for _ in range(3):
        session.run(result)

    check.instance(actual=result, expected=tf.Operation, what="the compiled computation")
    check.equal(actual=session.run(counter), expected=6.0, what="the counter after 3 runs")


def test_operations_run_with_the_tensors(tf: Any, ipu: Any, session: Any) -> None:
    """Operations that are returned after tensors run whenever a tensor is evaluated."""
    counter = tf.compat.v1.get_variable("counter", initializer=0.0, use_resource=True)
    (result,) = compiled(ipu, lambda: [tf.constant(7.0), counter.assign_add(2.0).op])
    session.run(tf.compat.v1.global_variables_initializer())

    check.equal(actual=session.run(result), expected=7.0, what="the tensor")
    check.equal(actual=session.run(counter), expected=2.0, what="the counter after the tensor was evaluated")


def test_inputs_are_fed_and_captured(tf: Any, ipu: Any, session: Any) -> None:
    """Inputs may be placeholders and structures, and a computation may use tensors that are not among them."""
    x, captured = tf.compat.v1.placeholder(tf.float32, [3]), tf.compat.v1.placeholder(tf.float32, [])
    (result,) = compiled(ipu, lambda pair, scale: (pair[0] - pair[1]) * scale + captured, [[x, 2.0], 4.0])

    actual, expected = session.run(result, {x: [1, 3, 7], captured: 0.5}), np.asarray([-3.5, 4.5, 20.5], np.float32)
    check.identical(actual=actual, expected=expected, what="(x - 2) * 4 + 0.5")


def test_variables_of_a_computation_belong_to_the_graph(tf: Any, ipu: Any, session: Any) -> None:
    """Variables that a computation makes are found and initialised by the graph around it, and keep their values."""

    def computation() -> Any:
        weight = tf.compat.v1.get_variable("weight", [2], initializer=tf.compat.v1.ones_initializer())
        return weight.assign_add([1.0, 2.0])

    (result,) = compiled(ipu, computation)
    names = [variable.name for variable in tf.compat.v1.trainable_variables()]
    session.run(tf.compat.v1.global_variables_initializer())

    check.equal(actual=names, expected=["weight:0"], what="the trainable variables of the graph")
    runs = [session.run(result).tolist() for _ in range(3)]
    check.equal(actual=runs, expected=[[2, 3], [3, 5], [4, 7]], what="the weight, by run")


def test_a_scope_inside_places_the_computation(tf: Any, ipu: Any, session: Any) -> None:
    """A computation may open the scope of an IPU itself."""

    def computation() -> Any:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            return tf.constant(1.0) + 1

    (result,) = ipu.ipu_compiler.compile(computation)

    check.equal(actual=session.run(result), expected=2.0, what="1 + 1")


@pytest.mark.parametrize("how", ["function", "eager"])
def test_it_compiles_in_functions_and_in_eager_mode(tf: Any, ipu: Any, strategy: Any, how: str) -> None:
    """In a strategy's function the computation is part of the function, and in eager mode it runs at once."""
    program = lambda x: compiled(ipu, lambda value: [value + 1, value * 2], [x])  # noqa: E731
    x = tf.constant(3.0)

    results = strategy.run(tf.function(program), args=(x,)) if how == "function" else program(x)
    check.equal(actual=[float(value) for value in results], expected=[4, 6], what="x + 1 and 2x")
