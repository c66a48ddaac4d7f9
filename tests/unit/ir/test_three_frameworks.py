"""The same network from TensorFlow, Paddle and ONNX has one normal form."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple

import pytest

from ipu_conformance.ir import Graph, isomorphic, read
from ipu_conformance.ir.compare.isomorphism import DIFFERENT, ISOMORPHIC
from ipu_conformance.ir.compare.normal import normal

BATCH, CLASSES = 4, 10
NETWORKS = ("dense", "lenet")


def from_onnx(network: str) -> Graph:
    """The network written by hand, with transposed weights in Gemm and biases in Conv."""
    from onnx import TensorProto, helper

    node = helper.make_node
    if network == "dense":
        shapes: Dict[str, List[int]] = {"x": [BATCH, 7], "w1": [5, 7], "b1": [5], "w2": [CLASSES, 5], "b2": [CLASSES]}
        nodes = [
            node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
            node("Relu", ["h"], ["r"]),
            node("Gemm", ["r", "w2", "b2"], ["y"], transB=1),
        ]
    else:
        shapes = {
            "x": [BATCH, 1, 12, 12], "w1": [3, 1, 3, 3], "b1": [3], "w2": [4, 3, 3, 3], "b2": [4],
            "w3": [CLASSES, 16], "b3": [CLASSES],
        }  # fmt: skip
        nodes = [
            node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
            node("Relu", ["c1"], ["r1"]),
            node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["p1", "w2", "b2"], ["c2"]),
            node("Relu", ["c2"], ["r2"]),
            node("MaxPool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Flatten", ["p2"], ["f"]),
            node("Gemm", ["f", "w3", "b3"], ["s"], transB=1),
            node("Softmax", ["s"], ["y"], axis=-1),
        ]
    weights = [name for name in shapes if name != "x"]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [BATCH, CLASSES])
    model = helper.make_model(
        helper.make_graph(nodes, network, info, [made]), opset_imports=[helper.make_opsetid("", 11)]
    )
    model.metadata_props.add(key="ipu_conformance.weights", value=str(weights).replace("'", '"'))
    return read(model.SerializeToString())


def from_tensorflow(network: str, memory: bool = True) -> Graph:
    """The network in Keras, with channels last; from memory or through a file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tf = pytest.importorskip("tensorflow")
    from ipu_conformance.ir.readers.tensorflow import graph as tf_graph

    layers = tf.keras.layers
    shape: Tuple[int, ...]
    if network == "dense":
        stack, shape = [layers.Dense(5, "relu"), layers.Dense(CLASSES)], (BATCH, 7)
    else:
        stack = [
            layers.Conv2D(3, 3, padding="same", activation="relu"),
            layers.MaxPool2D(),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPool2D(),
            layers.Flatten(),
            layers.Dense(CLASSES, "softmax"),
        ]
        shape = (BATCH, 12, 12, 1)
    model = tf.keras.Sequential(stack)
    model.build(shape)
    concrete = tf.function(lambda x: model(x)).get_concrete_function(tf.TensorSpec(shape))
    if memory:
        return tf_graph.read_graph(concrete)
    return read(concrete.graph.as_graph_def(add_shapes=True).SerializeToString())


def from_paddle(network: str) -> Graph:
    """The network as a static Program."""
    paddle = pytest.importorskip("paddle")
    from ipu_conformance.ir.readers.paddle import program as paddle_program

    static, functional = paddle.static, paddle.nn.functional
    paddle.enable_static()
    try:
        program = static.Program()
        with static.program_guard(program, static.Program()):
            if network == "dense":
                x = static.data("x", (BATCH, 7), "float32")
                y = static.nn.fc(functional.relu(static.nn.fc(x, 5)), CLASSES)
            else:
                x = static.data("x", (BATCH, 1, 12, 12), "float32")
                y = functional.relu(static.nn.conv2d(x, 3, 3, padding=1))
                y = functional.max_pool2d(y, 2, 2)
                y = functional.relu(static.nn.conv2d(y, 4, 3))
                y = functional.max_pool2d(y, 2, 2)
                y = functional.softmax(static.nn.fc(paddle.flatten(y, 1), CLASSES))
        return paddle_program.read_program(program, [y.name])
    finally:
        paddle.disable_static()


@pytest.mark.parametrize("network", NETWORKS)
def test_three_frameworks_have_one_normal_form(network: str) -> None:
    """Keras, Paddle and ONNX say the same network differently, and their normal forms are isomorphic."""
    graphs: Dict[str, Any] = {
        "onnx": from_onnx(network),
        "tensorflow": from_tensorflow(network),
        "paddle": from_paddle(network),
    }
    reference = graphs.pop("onnx")
    for name, graph in graphs.items():
        assert isomorphic(graph, reference).verdict == DIFFERENT, f"{name} is the same before, so that nothing is shown"
        outcome = isomorphic(normal(graph, turn_inputs=True), normal(reference))
        assert outcome.verdict == ISOMORPHIC, f"{name}: {outcome.sentence}"


def test_a_file_holds_what_the_memory_does() -> None:
    """A serialized function names its variables otherwise, and is the same graph."""
    graph = from_tensorflow("lenet", memory=False)

    outcome = isomorphic(normal(graph, turn_inputs=True), normal(from_onnx("lenet")))
    assert len(graph.initializers) == 6
    assert outcome.verdict == ISOMORPHIC, outcome.sentence


def test_other_networks_stay_different() -> None:
    """The normal form does not make different networks the same."""
    outcome = isomorphic(normal(from_tensorflow("dense")), normal(from_onnx("lenet")))

    assert outcome.verdict == DIFFERENT
