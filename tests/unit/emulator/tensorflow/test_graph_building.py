"""Graphs that are built with less bookkeeping are those of stock TensorFlow."""

from __future__ import annotations

import functools
import importlib
import re
import typing
from pathlib import Path
from typing import Any, Callable, List

import pytest

from ipu_conformance.emulator.tensorflow.compile.graph_building import FUNCTIONS, MEMBERS


def owner_of(module: str, path: str) -> Any:
    """What has the function as an attribute."""
    return functools.reduce(getattr, path.split(".")[:-1], importlib.import_module(module))


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Puts TensorFlow's own functions back, until the test ends."""

    def put_back() -> None:
        for module, path, _ in FUNCTIONS:
            owner, name = owner_of(module, path), path.split(".")[-1]
            monkeypatch.setattr(owner, name, getattr(owner, name).__wrapped__)

    return put_back


def of_variables(tf: Any) -> Any:
    """The graph of a function that reads and writes variables in a certain order, on a device and in a tape."""
    first, second = tf.Variable([1.0, 2.0, 3.0], name="first"), tf.Variable(4.0, name="second")

    def step(factor: Any) -> Any:
        with tf.device("/cpu:0"), tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(first * factor)) + second
        gradients = tape.gradient(loss, [first, second])
        first.assign_sub(gradients[0])
        with tf.compat.v1.get_default_graph().as_default():
            second.assign(loss)
        first.assign_add(second * tf.ones([3]))
        return loss, first.read_value()

    return tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec([], tf.float32)).graph


def of_control_flow(tf: Any) -> Any:
    """The graph of a loop, a condition and elements of a data set."""
    total = tf.Variable(0, dtype=tf.int64, name="total")
    elements = iter(tf.data.Dataset.range(7))

    def body(turn: Any) -> Any:
        total.assign_add(next(elements))
        return turn + 1

    def run(times: Any) -> Any:
        tf.while_loop(lambda turn: turn < times, body, [tf.constant(0)])
        return tf.cond(times > 3, lambda: total.assign_add(5), lambda: tf.identity(total))

    return tf.function(run, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int32)).graph


def of_a_session(tf: Any) -> Any:
    """A graph of TensorFlow 1, entered more than once, with a function inside."""
    with tf.Graph().as_default() as graph:
        value = tf.compat.v1.placeholder(tf.float32, [3], "value")
        with graph.as_default(), graph.name_scope("inside"):
            squared = tf.function(lambda x: x * x, autograph=False)(value)
        with graph.control_dependencies([squared]):
            tf.compat.v1.get_variable("weight", initializer=[1.0, 2.0, 3.0], use_resource=True).assign_add(squared)
    return graph


def plain(text: str) -> str:
    """Names of functions without their number in the process."""
    return re.sub(r"(__inference|while_cond|while_body|cond_true|cond_false)([\w<>]*?)_\d+", r"\1\2", text)


@pytest.mark.parametrize("build", [of_variables, of_control_flow, of_a_session])
def test_graphs_are_those_of_stock(tf: Any, stock: Callable[[], None], build: Callable[[Any], Any]) -> None:
    """Every node has the same name, inputs, order of execution, attributes and device."""

    def described() -> List[Any]:
        definition = build(tf).as_graph_def()
        definition.library.function.sort(key=lambda function: plain(function.signature.name))
        return plain(str(definition)).splitlines()

    ours = described()
    stock()

    assert len(ours) > 30
    assert ours == described()


def test_a_wrong_type_is_named_as_stock_names_it(tf: Any, stock: Callable[[], None]) -> None:
    """The error lists the types that are allowed."""

    def message() -> str:
        with tf.Graph().as_default(), pytest.raises(TypeError, match="not in list of allowed values") as error:
            tf.raw_ops.BitwiseAnd(x=tf.constant([1.0]), y=tf.constant([2.0]))
        return str(error.value)

    ours = message()
    stock()

    assert "int8" in ours
    assert ours == message()


def test_callbacks_run_where_the_graph_is_left(tf: Any) -> None:
    """What is to run when a graph is left runs when the innermost entry of it ends."""
    from tensorflow.python.framework import func_graph, ops

    left: List[str] = []
    graph = func_graph.FuncGraph("outer")
    with graph.as_default():
        ops.add_exit_callback_to_default_func_graph(lambda: left.append("outer"))
        with graph.as_default() as again:
            ops.add_exit_callback_to_default_func_graph(lambda: left.append("inner"))
            assert again is graph
        assert left == ["inner"]

    assert left == ["inner", "outer"]


def test_eager_mode_inside_of_a_graph_enters_it(tf: Any) -> None:
    """A graph that is the innermost one is entered from eager mode."""
    from tensorflow.python.eager import context

    with tf.Graph().as_default() as graph, context.eager_mode():
        assert tf.executing_eagerly()
        with graph.as_default():
            assert not tf.executing_eagerly()
            assert tf.compat.v1.get_default_graph() is graph


def test_variables_without_a_value_are_reported(tf: Any) -> None:
    """The report names those of the variables that have not been initialized, in order."""
    from tensorflow.python.ops import variables

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        held = [v1.get_variable(name, [2], use_resource=True) for name in ("first", "second", "third", "fourth")]
        every = variables.report_uninitialized_variables()
        some = variables.report_uninitialized_variables(held[:3])
        session.run([held[0].initializer, held[2].initializer])
        reports = [session.run(report).tolist() for report in (every, some)]
        session.run(v1.global_variables_initializer())
        empty = session.run(every).tolist()

    assert reports == [[b"second", b"fourth"], [b"second"]]
    assert empty == []


def test_a_graph_that_is_written_as_text_is_read_as_the_same(tf: Any, tmp_path: Path) -> None:
    """Floats that have no short decimal, names and bytes come back."""
    text_format = importlib.import_module("google.protobuf.text_format")

    with tf.Graph().as_default() as graph:
        tf.constant([0.1, 1 / 3, 1e-38, float("nan")], name="näme".encode().hex())
        tf.constant([b"\x00\xff", "ä".encode()])
        tf.nn.leaky_relu(tf.compat.v1.placeholder(tf.float32, [3]), alpha=0.3)
    definition = graph.as_graph_def(add_shapes=True)
    written = Path(tf.io.write_graph(definition, str(tmp_path), "graph.pbtxt"))

    assert len(definition.node) > 3
    read = text_format.Parse(written.read_text(), type(definition)())
    assert read.SerializeToString(deterministic=True) == definition.SerializeToString(deterministic=True)


class Both:
    """Has the methods of every protocol."""

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> Any: ...
    def __tf_tracing_type__(self, context: Any) -> Any: ...
    def __tf_flatten__(self) -> Any: ...
    @classmethod
    def __tf_unflatten__(cls, metadata: Any, components: Any) -> Any: ...


class Half:
    """Has one method of a protocol with two, and lacks another on purpose."""

    def __tf_flatten__(self) -> Any: ...

    __tf_tensor__ = None


@pytest.mark.parametrize(("module", "name"), sorted(MEMBERS))
def test_values_are_checked_against_a_protocol_as_stock_checks_them(tf: Any, module: str, name: str) -> None:
    """A value belongs to a protocol if it has all methods; a class based on the protocol is one of its own."""
    protocol = getattr(importlib.import_module(module), name)
    stated = {each for each in vars(protocol) if each.startswith("__tf_")}
    derived = type("Derived", (protocol,), {each: lambda self, *arguments: None for each in stated})
    base: Any = typing.Protocol
    members = {each: vars(protocol)[each] for each in stated}
    plainly: Any = typing.runtime_checkable(type(base)(name, (base,), members))
    values = [Both(), Half(), Both, tf.constant(3.0), tf.Variable(3.0), tf.TensorSpec([3]), derived(), 3, [3], None]

    assert stated == set(MEMBERS[module, name])
    assert [isinstance(value, protocol) for value in values] == [isinstance(value, plainly) for value in values]
    assert isinstance(derived(), derived)
    assert not isinstance(Both(), derived)


def test_lambdas_of_one_file_are_converted_each_to_its_own(tf: Any) -> None:
    """A condition in each becomes one of the graph; what was made of one lambda is not seen by another."""
    first, second = (lambda x: 3 if x > 0 else 5), (lambda y: 7 if y > 1 else 11)
    third = lambda z: 13 if z > 2 else 17  # noqa: E731 (it is a lambda that is converted)
    converted = [tf.function(each) for each in (first, second, third, first)]

    results = [[int(each(tf.constant(value))) for value in (0, 3)] for each in converted]

    assert results == [[5, 3], [11, 7], [17, 13], [5, 3]]


def test_a_lambda_is_found_again_in_its_file(tf: Any, stock: Callable[[], None]) -> None:
    """Its syntax is that which stock finds, the second time too, and so is that of a lambda inside of it."""
    from tensorflow.python.autograph.pyct import parser

    outer = lambda x: (  # noqa: E731 (it is a lambda that is looked for)
        lambda y, z: y
        if z else
        x
    )  # fmt: skip
    beside = lambda w: w + 3  # noqa: E731

    def found() -> List[Any]:
        parsed = [parser.parse_entity(each, ()) for each in (outer, outer(5), beside, outer, outer(7))]
        return [(parser.unparse(node), source, node.lineno, node.end_lineno) for node, source in parsed]

    ours = found()
    stock()

    assert ours == found()
    assert ours[:2] == ours[3:]
    assert len(set(map(str, ours))) == 3
