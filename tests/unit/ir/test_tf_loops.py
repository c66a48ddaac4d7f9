"""A loop of TensorFlow becomes its turns where the graph says how many there are, and stays an op elsewhere."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Tuple

import numpy as np
import pytest

from ipu_conformance.interpreter import ExecutionError, execute
from ipu_conformance.ir import Graph, IRError
from ipu_conformance.ir.readers.tensorflow.graph import load, read_graph

from . import tf_files as files

tf: Any = None
"""TensorFlow, once a test runs: collecting imports no framework."""


@pytest.fixture
def _tensorflow() -> None:
    global tf
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tf = pytest.importorskip("tensorflow")


needs_tensorflow = pytest.mark.usefixtures("_tensorflow")
LIMIT = 20.0
"""Seconds of a processor that reading may take, on a slow one, too."""
X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)


def read(function: Callable[..., Any], *shapes: Tuple[int, ...]) -> Tuple[Graph, Any]:
    """The graph of a function of arrays, and the function."""
    made = tf.function(function).get_concrete_function(*(tf.TensorSpec(shape, tf.float32) for shape in shapes))
    return read_graph(made), made


def repeated(times: Any, body: Callable[[Any, Any], Any], start: Any) -> Any:
    """A loop with a counter."""
    return tf.while_loop(lambda n, _: n < times, lambda n, value: (n + 1, body(n, value)), (tf.constant(0), start))[1]


@needs_tensorflow
def test_a_loop_is_its_turns() -> None:
    """Five turns of a product are five products, and compute what TensorFlow computes."""
    graph, function = read(lambda x: repeated(5, lambda n, value: value * x, x), X.shape)

    assert [op.type for op in graph.ops].count("Mul") == 5
    (told,) = execute(graph, {graph.inputs[0]: X}).outputs.values()
    np.testing.assert_array_equal(told[0, 0, 0].astype(np.float32), function(tf.constant(X)).numpy())


@needs_tensorflow
def test_the_number_of_a_turn_is_known_in_it() -> None:
    """A loop in a loop whose length is the number of the outer turn has 0, 1, 2 and 3 turns."""

    def outer(n: Any, value: Any) -> Any:
        return repeated(n, lambda _, inner: inner + x_, value)

    x_ = tf.constant(X)
    graph, function = read(lambda x: repeated(4, outer, x), X.shape)

    added = [op for op in graph.ops if op.type == "Add" and graph.tensors[op.outputs[0]].shape == X.shape]
    assert len(added) == 0 + 1 + 2 + 3
    (told,) = execute(graph, {graph.inputs[0]: X}).outputs.values()
    np.testing.assert_array_equal(told[0, 0, 0].astype(np.float32), function(tf.constant(X)).numpy())


@needs_tensorflow
@pytest.mark.parametrize("turns", ["unknown", "too many"])
def test_a_loop_without_a_known_end_stays_an_op(turns: str) -> None:
    """Who executes it is told so in a sentence with its name."""

    def function(x: Any) -> Any:
        times = tf.cast(tf.reduce_max(x), tf.int32) if turns == "unknown" else 10**7
        return repeated(times, lambda n, value: value * x, x)

    graph, _ = read(function, X.shape)

    assert "tensorflow::StatelessWhile" in [op.type for op in graph.ops]
    with pytest.raises(ExecutionError, match="StatelessWhile 'while' is not known"):
        execute(graph, {graph.inputs[0]: X})


@needs_tensorflow
def test_what_turns_leave_in_lists_is_read_in_the_backward_pass() -> None:
    """The gradient of a loop pops what its turns have pushed: powers of x by x."""

    def function(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = repeated(3, lambda n, value: value * x, x)
        return tape.gradient(result, x)

    graph, gradient = read(function, X.shape)

    (told,) = execute(graph, {graph.inputs[0]: X}).outputs.values()
    np.testing.assert_array_equal(told[0, 0, 0].astype(np.float32), gradient(tf.constant(X)).numpy())


@needs_tensorflow
def test_a_variable_passes_from_turn_to_turn() -> None:
    """What a turn assigns the next one reads, and the last is what the variable holds."""
    variable = tf.Variable(tf.constant(2.0), name="held")

    def body(n: Any, value: Any) -> Any:
        variable.assign(variable * 3.0)
        return value + variable

    graph, function = read(lambda x: repeated(4, body, x), X.shape)
    outcome = execute(graph, {graph.inputs[0]: X, "held": np.asarray(2.0)})

    assert outcome.variables[0]["held"] == 2.0 * 3.0**4
    told = outcome.outputs[graph.outputs[0]][0, 0, 0]
    np.testing.assert_array_equal(told.astype(np.float32), function(tf.constant(X)).numpy())


def test_what_is_enqueued_is_an_output() -> None:
    """What goes to a queue of the host is an output of the graph, and the handle of the queue is not read."""
    nodes = [
        files.placeholder("x", (2, 3)),
        files.node("queue", "Placeholder", dtype=files.Type(files.RESOURCE)),
        files.node("twice", "AddV2", ["x", "x"], T=files.Type(files.FLOAT)),
        files.node("first", "QueueEnqueueV2", ["queue", "twice"]),
        files.node("second", "QueueEnqueueV2", ["queue", "x", "^first"]),
    ]
    graph = load(files.graph(nodes))

    assert (graph.inputs, graph.outputs) == (("x",), ("twice", "x"))


def test_a_loop_that_repeats_itself_is_refused() -> None:
    """A body that holds its own loop has no end, and reading it has."""
    loop = files.node("again", "While", ("n",), body=files.Func("body"), cond=files.Func("cond"))
    body = files.function("body", ["n"], {"out": "again:output:0"}, [loop])
    data = files.graph([files.node("start", "Const", value=files.tensor([0], (), files.INT32)), loop], [body])

    with pytest.raises(IRError, match="calls itself"):
        load(data)


@pytest.mark.parametrize("loops", [1, 300])
def test_loops_without_end_are_read_in_time(loops: int) -> None:
    """Counting the turns of all loops takes a bounded number of steps, however many there are."""
    scalar = files.tensor([1], (), files.INT32)
    less = files.node("less", "Less", ("n", "n"), T=files.Type(files.INT32))
    goes_on = files.node("on", "LessEqual", ("n", "n"), T=files.Type(files.INT32))
    one = files.node("one", "Const", value=scalar, dtype=files.Type(files.INT32))
    grown = files.node("grown", "AddV2", ("n", "one:output:0"), T=files.Type(files.INT32))
    functions = [
        files.function("cond", ["n"], {"out": "on:z:0"}, [less, goes_on]),
        files.function("body", ["n"], {"out": "grown:z:0"}, [one, grown]),
    ]
    start = files.node("start", "Const", value=scalar, dtype=files.Type(files.INT32))
    nodes = [
        files.node(f"loop{number}", "While", ("start",), body=files.Func("body"), cond=files.Func("cond"))
        for number in range(loops)
    ]
    before = time.process_time()
    graph = load(files.graph([start, *nodes], functions))

    assert [op.type for op in graph.ops if "While" in op.type] == ["tensorflow::While"] * loops
    assert time.process_time() - before < LIMIT
