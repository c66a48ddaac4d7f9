"""What TensorFlow's ops become computes what they compute.

Graphs and HLO text of functions are read, written as ONNX, and run by ONNX's own evaluator. All numbers are small
integers, on which both are exact, so that results are compared bit by bit.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Tuple

import numpy as np
import pytest

from ipu_conformance.ir import Graph, checks, dumps, isomorphic, read
from ipu_conformance.ir.compare.isomorphism import DIFFERENT, ISOMORPHIC
from ipu_conformance.ir.compare.normal import normal
from ipu_conformance.ir.readers.tensorflow import graph as tf_graph
from ipu_conformance.ir.readers.tensorflow.graph import load_text

tf: Any = None
"""TensorFlow, once a test runs: collecting imports no framework."""


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> None:
    global tf
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tf = pytest.importorskip("tensorflow")


Case = Tuple[Callable[..., Any], Tuple[Tuple[int, ...], ...]]

CASES: Mapping[str, Case] = {
    "matmul": (lambda x, w: x @ w, ((2, 3), (3, 4))),
    "matmul both turned": (lambda x, w: tf.matmul(x, w, transpose_a=True, transpose_b=True), ((3, 2), (4, 3))),
    "matmul of batches": (lambda x, w: tf.matmul(x, w, transpose_b=True), ((2, 3, 4), (2, 5, 4))),
    "dense": (lambda x, w, b: tf.nn.relu(tf.nn.bias_add(x @ w, b)), ((2, 3), (3, 4), (4,))),
    "conv valid": (lambda x, w: tf.nn.conv2d(x, w, 1, "VALID"), ((2, 6, 5, 3), (3, 2, 3, 4))),
    "conv same strided": (lambda x, w: tf.nn.conv2d(x, w, (2, 1), "SAME"), ((2, 6, 5, 3), (3, 2, 3, 4))),
    "conv dilated": (lambda x, w: tf.nn.conv2d(x, w, 1, "VALID", dilations=2), ((1, 7, 7, 2), (3, 2, 2, 4))),
    "conv padded": (lambda x, w: tf.nn.conv2d(x, w, 1, [[0, 0], [1, 2], [0, 1], [0, 0]]), ((1, 4, 5, 2), (2, 2, 2, 3))),
    "conv in groups": (lambda x, w: tf.nn.conv2d(x, w, 1, "VALID"), ((2, 5, 5, 4), (2, 2, 2, 6))),
    "depthwise": (lambda x, w: tf.nn.depthwise_conv2d(x, w, (1, 1, 1, 1), "VALID"), ((2, 5, 5, 3), (2, 2, 3, 2))),
    "conv and bias": (lambda x, w, b: tf.nn.conv2d(x, w, 1, "SAME") + b, ((1, 4, 4, 2), (3, 3, 2, 3), (3,))),
    "max pool": (lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), ((2, 5, 6, 3),)),
    "max pool same": (lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), ((2, 5, 6, 3),)),
    "average pool": (lambda x: tf.nn.avg_pool2d(x * 4.0, 2, 2, "VALID"), ((2, 4, 6, 3),)),
    "flatten": (lambda x: tf.reshape(x, (2, -1)), ((2, 3, 4),)),
    "transpose": (lambda x: tf.transpose(x, (2, 0, 1)), ((2, 3, 4),)),
    "sums": (lambda x: tf.reduce_sum(x, (0, 2)) + tf.reduce_max(x, (0, 2)), ((2, 3, 4),)),
    "mean kept": (lambda x: x - tf.reduce_mean(x * 4.0, 1, keepdims=True), ((2, 4),)),
    "squares": (lambda x, y: tf.square(x) - tf.math.squared_difference(x, y), ((2, 3), (3,))),
    "comparisons": (lambda x, y: tf.where(x >= y, x, tf.where(x < y, y, -x)), ((2, 3), (2, 3))),
    "not equal": (lambda x, y: tf.cast(tf.logical_or(x != y, x <= y), tf.float32), ((2, 3), (2, 3))),
    "minimum and maximum": (lambda x, y: tf.minimum(tf.maximum(x, y), 2.0), ((2, 3), (2, 3))),
    "concatenation": (lambda x, y: tf.concat((x, y, x), -1), ((2, 3), (2, 1))),
    "stack": (lambda x, y: tf.stack((x, y), 1), ((2, 3), (2, 3))),
    "split": (lambda x: tf.split(x, 3, 1)[2] - tf.split(x, 3, 1)[0], ((2, 6),)),
    "new and lost dimensions": (lambda x: tf.squeeze(tf.expand_dims(x, -1) * 2.0, 1), ((2, 1, 3),)),
    "pad": (lambda x: tf.pad(x, ((0, 0), (1, 2)), constant_values=3.0), ((2, 3),)),
    "gather": (lambda x: tf.gather(x, tf.constant((2, 0, 2)), axis=1), ((2, 3),)),
    "argmax": (lambda x: tf.cast(tf.argmax(x, 1), tf.float32), ((3, 5),)),
    "one hot": (lambda x: tf.one_hot(tf.cast(x > 0.0, tf.int32), 3, 7.0, -1.0), ((2, 3),)),
    "leaky": (lambda x: tf.nn.leaky_relu(x, 0.5) + tf.nn.relu6(x * 4.0), ((2, 3),)),
    "tile": (lambda x, y: tf.tile(x, (1, 2)) + tf.broadcast_to(y, (2, 6)), ((2, 3), (2, 1))),
    "inner function": (lambda x, y: _inner(x, y)[1] - _inner(y, x)[0], ((2, 3), (2, 3))),
}  # fmt: skip


def _inner(x: Any, y: Any) -> Any:
    return tf.function(lambda a, b: (tf.nn.relu(a) * b, tf.split(a, 3, 1)[1]))(x, y)


def given(shapes: Tuple[Tuple[int, ...], ...]) -> Tuple[Any, ...]:
    """Small integers, none like its neighbour."""
    return tuple(
        (np.arange(np.prod(shape)) * (7 + 2 * place) % 11 - 5).reshape(shape).astype(np.float32)
        for place, shape in enumerate(shapes)
    )


def computed(graph: Graph, values: Tuple[Any, ...]) -> Any:
    """What ONNX's evaluator makes of a graph."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load_from_string(dumps(graph, "onnx"))
    for node in model.graph.node:  # a layout in memory changes no value, and the evaluator does not know of it
        for attribute in [held for held in node.attribute if held.name == "__attribute_layout"]:
            node.attribute.remove(attribute)
    return ReferenceEvaluator(model).run(None, dict(zip(graph.inputs, values)))[0]


def _own(graph: Graph) -> list:
    return [op.type for op in graph.ops if "::" in op.type]


@pytest.mark.parametrize("name", CASES)
def test_a_function_computes_what_its_graph_does(name: str) -> None:
    """A ConcreteFunction's graph gives the same bits as the function, in ops of ONNX alone."""
    function, shapes = CASES[name]
    values = given(shapes)
    concrete = tf.function(function).get_concrete_function(*(tf.TensorSpec(shape) for shape in shapes))

    graph = tf_graph.read_graph(concrete)

    assert _own(graph) == []
    assert checks.shapes(graph) == []
    found, expected = computed(graph, values), concrete(*map(tf.constant, values)).numpy()
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


UNTOLD = {
    "gather": "xla::gather",
    "argmax": "xla::reduce",
    "one hot": "xla::iota",
    "average pool": "xla::reduce-window",
    "pad": "xla::pad",
}
"""What of XLA's own these cases hold."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("inner function", "depthwise")])
def test_hlo_computes_what_the_function_does(name: str) -> None:
    """The HLO that XLA makes of a function gives the same bits, where ONNX has the ops."""
    function, shapes = CASES[name]
    values = given(shapes)
    compiled = tf.function(function, jit_compile=True)
    text = compiled.experimental_get_compiler_ir(*map(tf.constant, values))(stage="hlo")

    graph = read(text.encode())

    if name in UNTOLD:
        assert UNTOLD[name] in _own(graph)
        return
    assert _own(graph) == []
    found, expected = computed(graph, values), function(*map(tf.constant, values)).numpy()
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


def test_the_normal_forms_of_graph_and_hlo_agree() -> None:
    """A layer of images has one normal form, read from a graph or from HLO, where XLA broadcasts and reshapes."""
    function, shapes = CASES["conv and bias"]
    layer = tf.function(lambda x, w, b: tf.nn.max_pool2d(function(x, w, b), 2, 2, "VALID"), jit_compile=True)
    values = [tf.constant(value) for value in given(shapes)]
    text = layer.experimental_get_compiler_ir(*values)(stage="hlo")
    graph, hlo = tf_graph.read_graph(layer.get_concrete_function(*values)), read(text.encode())

    assert isomorphic(graph, hlo).verdict == DIFFERENT
    outcome = isomorphic(normal(graph), normal(hlo))
    assert outcome.verdict == ISOMORPHIC, outcome.sentence


ELEMENT = b"""
node { name: "iterator" op: "Placeholder" attr { key: "dtype" value { type: DT_RESOURCE } } }
node { name: "next" op: "IteratorGetNext" input: "iterator"
  attr { key: "output_types" value { list { type: DT_FLOAT type: DT_INT32 } } }
  attr { key: "output_shapes" value { list { shape { dim { size: 2 } dim { size: 3 } } shape { dim { size: 5 } } } } } }
node { name: "y" op: "Relu" input: "next" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "z" op: "Neg" input: "next:1" attr { key: "T" value { type: DT_INT32 } } }
"""


def test_the_parts_of_an_element_are_inputs() -> None:
    """What an iterator gives comes from outside, each part with the type and the shape that the node lists."""
    graph = load_text(ELEMENT)

    parts = [graph.tensors[name] for name in graph.inputs]
    assert [(part.name, part.dtype, part.shape) for part in parts] == [
        ("next", "FLOAT", (2, 3)),
        ("next:1", "INT32", (5,)),
    ]
