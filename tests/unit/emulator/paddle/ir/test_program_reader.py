"""Programs in memory and saved ones are read as the same graphs, which other readers give as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import paddle
import pytest
from onnx import TensorProto, helper

from ipu_conformance import ir
from ipu_conformance.emulator import hook
from ipu_conformance.ir.readers.paddle import program as paddle_program
from ipu_conformance.workloads.paddle_mnist import model

BATCH = 4


def written_in_onnx() -> onnx.ModelProto:
    """The workload's LeNet for inference, written by hand with ONNX's own helpers."""
    conv = {"kernel_shape": [5, 5], "strides": [1, 1], "dilations": [1, 1], "group": 1, "pads": [0, 0, 0, 0]}
    pool = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0], "ceil_mode": 0}
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w1"], ["c1"], **conv),
        node("Unsqueeze", ["b1"], ["u1"], axes=[1, 2]),
        node("Add", ["c1", "u1"], ["a1"]),
        node("Relu", ["a1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], **pool),
        node("BatchNormalization", ["p1", "scale", "shift", "mean", "var"], ["n1"], epsilon=1e-5),
        node("Conv", ["n1", "w2"], ["c2"], **conv),
        node("Unsqueeze", ["b2"], ["u2"], axes=[1, 2]),
        node("Add", ["c2", "u2"], ["a2"]),
        node("Relu", ["a2"], ["r2"]),
        node("MaxPool", ["r2"], ["p2"], **pool),
        node("Constant", [], ["size"], value=helper.make_tensor("size", TensorProto.INT64, [2], [BATCH, 800])),
        node("Reshape", ["p2", "size"], ["flat"]),
        node("MatMul", ["flat", "w3"], ["m"]),
        node("Add", ["m", "b3"], ["scores"]),
        node("Softmax", ["scores"], ["y"], axis=1),
    ]
    shapes = {
        "image": [BATCH, 1, 28, 28], "w1": [20, 1, 5, 5], "b1": [20], "scale": [20], "shift": [20], "mean": [20],
        "var": [20], "w2": [50, 20, 5, 5], "b2": [50], "w3": [800, 10], "b3": [10], "y": [BATCH, 10],
    }  # fmt: skip
    info = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    weights = [name for name in shapes if name not in ("image", "y")]
    graph = helper.make_graph(nodes, "lenet", [info[name] for name in ("image", *weights)], [info["y"]])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])
    made.metadata_props.add(key="ipu_conformance.weights", value=str(weights).replace("'", '"'))
    return onnx.shape_inference.infer_shapes(made)


@pytest.fixture
def network() -> Any:
    """LeNet for inference, with weights in a scope of its own."""
    with model.static_mode(), paddle.static.scope_guard(paddle.static.Scope()):
        yield model.build(BATCH)


def test_lenet_is_the_one_that_onnx_has(network: Any) -> None:
    """The Program of LeNet and the same network written in ONNX are the same graph up to names."""
    program = network.main.clone(for_test=True)._prune_with_input([network.image.name], [network.prediction.name])

    found = paddle_program.read_program(program, [network.prediction.name])

    expected = ir.read(written_in_onnx().SerializeToString(), "onnx")
    outcome = ir.isomorphic(found, expected)
    assert outcome.verdict == "isomorphic", f"{outcome.sentence}\n" + "\n".join(map(str, ir.diff(expected, found)))


def test_a_saved_program_is_the_one_in_memory(network: Any, tmp_path: Path) -> None:
    """Saving adds a scale by one to what is fetched, and changes nothing else."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(network.startup)
    where = str(tmp_path / "lenet")
    paddle.static.save_inference_model(where, [network.image], [network.prediction], executor, program=network.main)
    program = network.main.clone(for_test=True)._prune_with_input([network.image.name], [network.prediction.name])

    saved = ir.read(f"{where}.pdmodel")

    held = paddle_program.read_program(program, [network.prediction.name])
    assert [op.type for op in saved.ops if op.type != "Constant"] == [
        *(op.type for op in held.ops if op.type != "Constant"),
        "Mul",
    ]
    assert saved.inputs == held.inputs
    assert set(saved.initializers) == set(held.initializers)


def test_shards_are_the_placement() -> None:
    """The index and the stage that a guard writes are IPU and stage of all ops that an op becomes."""
    hook.install("paddle")
    with model.static_mode():
        network = model.build(BATCH, shard=lambda part: paddle.static.ipu_shard_guard(part + 3, part))

    graph = paddle_program.read_program(network.main)

    assert {(op.ipu, op.stage) for op in graph.ops} == {(3, 0), (4, 1)}
    assert [op.stage for op in graph.ops] == sorted(op.stage or 0 for op in graph.ops)


def test_training_programs_are_read_without_their_backward_pass() -> None:
    """Of a program that is trained the forward pass is read, and its loss is an output."""
    with model.static_mode():
        network = model.build(BATCH, learning_rate=0.1)

    graph = paddle_program.read_program(network.main)

    assert not [op.type for op in graph.ops if "grad" in op.type.lower() or "adam" in op.type.lower()]
    assert network.cost.name in graph.outputs
