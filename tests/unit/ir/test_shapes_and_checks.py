from __future__ import annotations

import dataclasses

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from ipu_conformance.ir import Graph, Op, Tensor, checks, diff, shapes
from tests.unit.examples import at_most

from . import networks

F = "FLOAT"


def one_op(type, attributes, *inputs, outputs=1):
    """A graph of one op whose outputs are unknown."""
    names = tuple(f"x{index}" for index in range(len(inputs)))
    made = tuple(f"y{index}" for index in range(outputs))
    tensors = [Tensor(name, F, shape) for name, shape in zip(names, inputs)]
    return Graph("g", [Op(type, "op", names, made, attributes)], names, made, [*tensors, *map(Tensor, made)])


CASES = [
    ("Relu", {}, [(2, 3)]),
    ("Add", {}, [(2, 1, 4), (3, 1)]),
    ("Mul", {}, [(), (5,)]),
    ("Greater", {}, [(2, 1), (1, 3)]),
    ("MatMul", {}, [(5, 2, 3), (3, 4)]),
    ("MatMul", {}, [(3,), (3,)]),
    ("MatMul", {}, [(2, 3), (3,)]),
    ("MatMul", {}, [(3,), (7, 3, 4)]),
    ("Gemm", {"transA": 1, "transB": 1}, [(3, 5), (2, 3)]),
    ("Flatten", {}, [(2, 3, 4)]),
    ("Flatten", {"axis": 0}, [(2, 3, 4)]),
    ("Flatten", {"axis": 3}, [(2, 3, 4)]),
    ("Flatten", {"axis": -1}, [(2, 3, 4)]),
    ("Transpose", {}, [(2, 3, 4)]),
    ("Transpose", {"perm": (1, 2, 0)}, [(2, 3, 4)]),
    ("Concat", {"axis": -1}, [(2, 3), (2, 5)]),
    ("ReduceMean", {"axes": (1, -1)}, [(2, 3, 4)]),
    ("ReduceSum", {"keepdims": 0}, [(2, 3)]),
    ("ReduceMax", {"axes": (0,), "keepdims": 0}, [(2, 3)]),
    ("GlobalAveragePool", {}, [(2, 3, 4, 5)]),
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": (2, 3)}, [(1, 4, 7, 8), (6, 2, 3, 3)]),
    ("Conv", {"auto_pad": "VALID", "dilations": (2,)}, [(1, 2, 9), (6, 2, 3)]),
    ("AveragePool", {"kernel_shape": (3,), "strides": (2,), "ceil_mode": 1}, [(1, 2, 8)]),
    ("Softmax", {}, [(None, 3)]),
    ("MatMul", {}, [(None, 3), (3, None)]),
]


@pytest.mark.parametrize(("type", "attributes", "inputs"), CASES)
def test_inferred_shapes_are_those_of_onnx(type, attributes, inputs):
    """For every rule, what the onnx package infers is inferred here too."""
    attributes = {**attributes, "group": 2} if inputs == [(1, 4, 7, 8), (6, 2, 3, 3)] else attributes
    graph = one_op(type, attributes, *inputs)

    assert shapes.completed(graph).tensors["y0"] == inferred_by_onnx(graph)


@at_most(60)
@given(st.data())
def test_windows_slide_as_in_onnx(data):
    """Convolutions and pools of any kernel, stride, padding and dilation that fit have the shape that ONNX infers."""
    rank = data.draw(st.integers(1, 2))
    kernel, strides, dilations = ([data.draw(st.integers(1, 3)) for _ in range(rank)] for _ in range(3))
    pads = [data.draw(st.integers(0, 2)) for _ in range(2 * rank)]
    spatial = [data.draw(st.integers(d * (k - 1) + 1, 9)) for k, d in zip(kernel, dilations)]
    attributes = {"strides": tuple(strides), "pads": tuple(pads), "kernel_shape": tuple(kernel)}
    if data.draw(st.booleans()):
        graph = one_op("Conv", {**attributes, "dilations": tuple(dilations)}, (2, 3, *spatial), (4, 3, *kernel))
    else:
        graph = one_op("MaxPool", attributes, (2, 3, *spatial))

    assert shapes.completed(graph).tensors["y0"] == inferred_by_onnx(graph)


def inferred_by_onnx(graph: Graph) -> Tensor:
    op = graph.ops[0]
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in op.attributes.items()}
    node = helper.make_node(op.type, op.inputs, op.outputs, **values)
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, graph.tensors[n].shape) for n in graph.inputs]
    proto = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y0")])
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", graph.opset)])
    found = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type.tensor_type
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in found.shape.dim)
    return Tensor("y0", onnx.TensorProto.DataType.Name(found.elem_type), dims)


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (one_op("Add", {}, (2,), (3,)), "Add 'op': shapes (2,) and (3,) do not broadcast"),
        (one_op("MatMul", {}, (2, 3), (4, 5)), "MatMul 'op': shapes (2, 3) and (4, 5) do not fit: 3 is not 4"),
        (one_op("MatMul", {}, (2, 3)), "MatMul 'op': it has 1 input, and two are needed"),
        (one_op("MatMul", {}, (), (3,)), "a scalar cannot be multiplied"),
        (one_op("Gemm", {}, (2, 3), (3,)), "are not two matrices"),
        (one_op("Gemm", {"transA": "yes"}, (2, 3), (3, 2)), "attribute 'transA' is 'yes', and an integer is needed"),
        (one_op("Conv", {}, (1, 2, 5), (6, 3, 3)), "2 is not 3"),
        (one_op("Conv", {}, (1, 2, 2), (6, 2, 3)), "a window of 3 does not fit into 2"),
        (one_op("Conv", {"strides": (0,)}, (1, 2, 5), (6, 2, 3)), "at least 1"),
        (one_op("Conv", {"strides": (1, 1)}, (1, 2, 5), (6, 2, 3)), "and 1 integers are needed"),
        (one_op("Conv", {}, (1, 2), (6, 2)), "are not image and kernel"),
        (one_op("MaxPool", {}, (1, 2, 5)), "'kernel_shape' is missing"),
        (one_op("MaxPool", {"kernel_shape": (2,)}, (5,)), "is not an image"),
        (one_op("Transpose", {"perm": (0, 0)}, (1, 2)), "not an order of 2 dimensions"),
        (one_op("Concat", {"axis": 5}, (1, 2), (1, 2)), "axis 5 is outside"),
        (one_op("Concat", {"axis": 0}, (1, 2), (1, 3)), "do not join on axis 0"),
    ],
)
def test_inputs_that_do_not_fit_are_told(graph, said):
    """One sentence names the op and what does not fit."""
    sentences = checks.shapes(graph)

    assert len(sentences) == 1
    assert said in sentences[0]


def test_an_output_of_the_wrong_shape_or_dtype_is_told():
    """The sentence says what the output should be and what it is."""
    graph = networks.convnet()
    assert checks.shapes(graph) == []

    wrong = {**graph.tensors, "r2": Tensor("r2", F, (5, 3, 2, 1)), "y": Tensor("y", "FLOAT16", (5, 4))}
    assert checks.shapes(dataclasses.replace(graph, tensors=wrong)) == [
        "Relu 'relu2': 'r2' should have shape (5, 3, 2, 2), and has (5, 3, 2, 1)",
        "Flatten 'flatten': 'f' should have shape (5, 6), and has (5, 12)",
        "Gemm 'fc1': 'y' should have dtype FLOAT, and has FLOAT16",
    ]


def test_dropout_copies_and_updates_keep_shapes():
    """The mask of a Dropout is BOOL, and copies and updates are like what they copy or update."""
    assert shapes.completed(one_op("Dropout", {}, (2, 3), outputs=2)).tensors["y1"] == Tensor("y1", "BOOL", (2, 3))
    assert shapes.completed(one_op("IpuCopy", {}, (2,), (3,), outputs=2)).tensors["y1"] == Tensor("y1", F, (3,))
    assert shapes.completed(one_op("SGD0VarUpdate", {}, (4,), (4,))).tensors["y0"] == Tensor("y0", F, (4,))


def moved(graph, name, **placement):
    return dataclasses.replace(
        graph, ops=[dataclasses.replace(op, **placement) if op.name == name else op for op in graph.ops]
    )


@pytest.mark.parametrize("graph", [networks.convnet(), networks.training()], ids=lambda graph: graph.name)
def test_sound_graphs_pass_every_check(graph):
    """Networks placed as the specification says give no sentence."""
    replicas = 2 if graph.name == "training" else 1
    checked = (checks.shapes, checks.placement, checks.stage_order, checks.copies)

    assert [sentence for check in checked for sentence in check(graph)] == []
    assert checks.all_reduce(graph, replicas) == []


def test_a_dump_with_other_names_and_other_fusion_passes_every_rule():
    """The rules ask for no name and no choice of ops: a scale that is part of the update, and two ops for one, pass."""
    graph = networks.training()
    for index in (0, 1):  # the scale of a gradient is folded into its update
        graph = networks.without(graph, f"scale{index}")
    split = []
    for op in graph.ops:  # and a product is written as two ops
        if op.name == "fwd1":
            turned = Op("Transpose", "turned", ("w1",), ("w1_turned",), {"perm": (1, 0)}, op.ipu, op.stage)
            split += [turned, Op("Gemm", "fwd1", ("a1", "w1_turned"), op.outputs, {"transB": 1}, op.ipu, op.stage)]
        else:
            split.append(op)
    tensors = [*graph.tensors.values(), Tensor("w1_turned", F, (2, 7))]
    fused = Graph(graph.name, split, graph.inputs, graph.outputs, tensors, graph.initializers, graph.opset)
    other = networks.renamed(fused)
    checked = (checks.shapes, checks.placement, checks.stage_order, checks.copies)

    assert [sentence for check in checked for sentence in check(other)] == []
    assert checks.all_reduce(other, 2) == []
    assert diff(networks.training(), other, structural=True) != []


def test_ops_without_a_place_are_told():
    """Every op is on an IPU and in a stage, and a stage is on one IPU."""
    graph = moved(moved(networks.convnet(), "relu1", ipu=None), "relu2", stage=None)

    assert checks.placement(graph) == ["Relu 'relu1' is on no IPU", "Relu 'relu2' is in no stage"]
    assert checks.placement(graph, stages=False) == ["Relu 'relu1' is on no IPU"]
    assert checks.placement(moved(networks.convnet(), "fc1", ipu=0)) == [
        "stage 1: Gemm 'fc1' is on IPU 0, and Conv 'conv2' of the stage on IPU 1"
    ]


def test_data_that_flows_back_is_told():
    """Forward data flows to later stages, backward data to earlier ones."""
    assert checks.stage_order(moved(networks.convnet(), "flatten", stage=0)) == [
        "'r2' flows from Relu 'relu2' in stage 1 to Flatten 'flatten' in stage 0; "
        "it may flow to the same or a later stage"
    ]
    backward = moved(networks.training(), "send_back", stage=0)
    assert checks.stage_order(backward) == []
    assert "in the backward pass" in checks.stage_order(moved(backward, "bwd0_w", stage=1))[0]


def test_backward_stages_may_have_numbers_of_their_own():
    """Where backward stages count on from the forward ones, data flows to later numbers throughout."""
    graph = networks.training()
    numbers = {"bwd1_in": 2, "bwd1_w": 2, "send_back": 2, "bwd0_w": 3}
    for op in graph.ops:
        stage = numbers.get(op.name, 3 if op.name.endswith("0") and op.name != "fwd0" else 2)
        graph = graph if op.name in ("fwd0", "fwd1", "send") else moved(graph, op.name, stage=stage)

    assert checks.stage_order(graph) == []
    assert len(checks.stage_order(moved(graph, "bwd0_w", stage=1))) == 1


def test_a_missing_or_needless_copy_is_told():
    """An IpuCopy stands at every border between IPUs, and nowhere else."""
    assert checks.copies(networks.without(networks.convnet(), "copy1")) == [
        "'p1' passes from MaxPool 'pool1' on IPU 0 to Conv 'conv2' on IPU 1 without an IpuCopy"
    ]
    flat = networks.convnet()
    for op in flat.ops:
        flat = moved(flat, op.name, ipu=3)
    assert checks.copies(flat) == ["IpuCopy 'copy1' copies between no IPUs: all around it is on IPU 3"]
    assert checks.copies(moved(networks.convnet(), "copy1", ipu=1)) == []
    assert checks.copies(moved(networks.convnet(), "copy1", ipu=None)) == []


def test_a_copy_that_names_other_ends_is_told():
    """What an IpuCopy says of its ends fits the ops around it."""
    ends = {"right": ("{0}", 1), "source": ("{2}", 1), "destination": ("{0}", 3)}
    told = {
        name: checks.copies(
            moved(networks.convnet(), "copy1", attributes={"__sourceIpus": source, "__destIpu": destination})
        )
        for name, (source, destination) in ends.items()
    }

    assert told == {
        "right": [],
        "source": ["'p1' is on IPU 0 behind MaxPool 'pool1', and IpuCopy 'copy1' reads it on IPU 2"],
        "destination": ["'p1_copy' is on IPU 3 behind IpuCopy 'copy1', and Conv 'conv2' reads it on IPU 1"],
    }


def test_a_gradient_that_is_not_all_reduced_is_told():
    """With replicas every gradient passes an all-reduce; with one replica none does."""
    assert checks.all_reduce(networks.training(reduced=False), 2) == [
        f"SGD0VarUpdate 'update{i}' takes the gradient of MatMulRhsGrad 'bwd{i}_w', "
        "which no op all-reduces over 2 replicas"
        for i in (0, 1)
    ]
    assert checks.all_reduce(networks.training(reduced=False), 1) == []
    assert len(checks.all_reduce(networks.training(), 1)) == 2
    assert len(checks.all_reduce(networks.without(networks.training(), "reduce1"), 4)) == 1


def test_phases_follow_the_gradient():
    """What reads a gradient is backward, and updates are told by their type."""
    phases = dict(zip((op.name for op in networks.training().ops), checks.phases(networks.training())))

    assert {name for name, phase in phases.items() if phase == checks.FORWARD} == {"fwd0", "send", "fwd1"}
    assert {name for name, phase in phases.items() if phase == checks.UPDATE} == {"update0", "update1"}
