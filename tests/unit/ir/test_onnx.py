from __future__ import annotations

from typing import Any, Dict

import numpy as np
import onnx
import pytest
from hypothesis import given
from onnx import TensorProto, checker, helper, numpy_helper

from ipu_conformance.ir import Graph, IRError, Literal, Op, Tensor, dumps, read
from tests.unit.examples import at_most
from tests.unit.refusals import refused

from . import networks
from .strategies import FOREIGN_TYPES, float32s, graphs


def vector(name: str, length: int) -> Tensor:
    return Tensor(name, "FLOAT", (length,))


def model_of(graph: Graph) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(dumps(graph, "onnx"))


@at_most(60)
@given(graphs(types=FOREIGN_TYPES, floats=float32s, bounded=True))
def test_onnx_holds_every_graph_with_known_boundaries(graph):
    """What is written as ONNX passes the full check and is read back equal."""
    data = dumps(graph, "onnx")

    checker.check_model(data, full_check=True)
    assert read(data) == graph
    assert dumps(read(data), "onnx") == data


def test_a_network_of_onnx_ops_passes_the_full_check():
    """Ops of ONNX and of PopART stand together in a valid model that is read back equal."""
    graph = networks.convnet()
    data = dumps(graph, "onnx")

    checker.check_model(data, full_check=True)
    assert read(data) == graph


def test_a_training_graph_with_unknown_inner_tensors_is_read_back():
    """Outputs that the shape rules tell are filled in; inner tensors may stay unknown."""
    graph = networks.training()
    found = read(dumps(graph, "onnx"))

    assert found.ops == graph.ops
    assert found.tensors["w0_new"] == Tensor("w0_new", "FLOAT", (3, 7))
    assert found.tensors["da"] == Tensor("da")


def test_placement_and_domains_are_written_as_popart_does():
    """Placement is in node attributes, and op types that ONNX lacks are in PopART's domain."""
    model = model_of(networks.convnet())
    node = {node.name: node for node in model.graph.node}

    assert {a.name: a.i for a in node["relu2"].attribute} == {"__ipu_number": 1, "__pipeline_stage": 1}
    assert (node["relu2"].domain, node["copy1"].domain) == ("", "ai.graphcore")
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 11, "ai.graphcore": 1}


def test_the_opset_decides_which_domain_a_type_is_in():
    """Gelu is an ONNX op from opset 20 on and PopART's own before."""
    op = Op("Gelu", "gelu", ("x",), ("y",))
    tensors = [Tensor("x", "FLOAT", (2,)), Tensor("y", "FLOAT", (2,))]
    domains = {}
    for opset in (11, 20):
        graph = Graph("g", [op], ["x"], ["y"], tensors, opset=opset)
        domains[opset] = model_of(graph).graph.node[0].domain
        assert read(dumps(graph, "onnx")) == graph

    assert domains == {11: "ai.graphcore", 20: ""}


def test_attributes_that_onnx_does_not_know_are_kept():
    """An attribute of PopART on an ONNX op passes the checker and keeps its name, whatever that is."""
    attributes: Dict[str, Any] = {"recompute": "NO", "__attribute_x": 1, "__mine": (1.5,), "axis": 1}
    op = Op("Softmax", "s", ("x",), ("y",), attributes)
    graph = Graph("g", [op], ["x"], ["y"], [Tensor(name, "FLOAT", (2, 3)) for name in "xy"])

    assert read(dumps(graph, "onnx")) == graph
    assert {a.name for a in model_of(graph).graph.node[0].attribute} >= {"axis", "__attribute_recompute"}


def test_weights_without_values_are_inputs_that_the_metadata_names():
    """A model without its values is valid, and its weights are still known as such."""
    graph = networks.convnet()
    model = model_of(graph)

    assert [info.name for info in model.graph.input] == ["x", "w1", "w2", "w3"]
    assert [weight.name for weight in model.graph.initializer] == ["b3"]
    assert read(dumps(graph, "onnx")).inputs == ("x",)


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (Graph("g", [Op("Relu", "r", (), ("y",))], [], [], [Tensor("y")]), "onnx.checker finds"),
        (
            Graph("g", [Op("Relu", "r", ("x",), ("y",))], ["x"], ["y"], [vector("x", 1), vector("y", 2)]),
            "onnx.checker finds",
        ),
        (Graph("g", [], ["x"], [], [Tensor("x", "FLOAT")]), "dtype and rank of every graph input"),
        (Graph("g", [], ["x"], [], [Tensor("x", shape=(2,))]), "dtype and rank of every graph input"),
        (Graph("g", [Op("Spin", "s", (), (), {"a": 1e300})]), "ONNX holds floats of 32 bits"),
    ],
)
def test_a_graph_that_is_not_valid_onnx_is_not_written(graph, said):
    """The writer refuses what the checker would refuse."""
    with refused(IRError, said):
        dumps(graph, "onnx")


VALUES = np.array([[0, 1, 2], [3, 100, 1]])


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [
        *("FLOAT", "DOUBLE", "FLOAT16", "BOOL", "INT64", "INT32", "INT16", "INT8"),
        *("UINT64", "UINT32", "UINT16", "UINT8", "COMPLEX64", "COMPLEX128"),
    ],
)
def test_values_are_read_from_every_field_that_onnx_stores_them_in(dtype, raw):
    """The bytes are those of the NumPy array that the onnx package stored."""
    number = TensorProto.DataType.Value(dtype)
    array = VALUES.astype(helper.tensor_dtype_to_np_dtype(number))
    proto = (
        numpy_helper.from_array(array, "w") if raw else helper.make_tensor("w", number, array.shape, array.flatten())
    )
    assert proto.HasField("raw_data") == raw

    graph = read(model_with([proto]).SerializeToString())

    # The array went in through the onnx package; that package cannot read all complex tensors back itself.
    assert graph.initializers["w"] == array.tobytes()
    assert graph.tensors["w"] == Tensor("w", dtype, (2, 3))


def test_bfloat16_and_4_bit_values_are_read_bit_by_bit():
    """Values that NumPy has no type for keep their bits."""
    half = helper.make_tensor("h", TensorProto.BFLOAT16, (2,), [1.0, -2.0])
    packed = helper.make_tensor("p", TensorProto.INT4, (3,), [1, -2, 3])
    graph = read(model_with([half, packed]).SerializeToString())

    assert graph.initializers["h"] == bytes([0x80, 0x3F, 0x00, 0xC0])
    assert graph.initializers["p"] == bytes([0xE1, 0x03])


def model_with(initializers=(), nodes=(), inputs=(), **fields):
    graph = helper.make_graph(list(nodes), "g", list(inputs), [], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8, **fields)


def float_info(name, shape=(2,)):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def test_an_initializer_that_is_also_an_input_is_an_initializer():
    """Older files list weights among the inputs; they are weights."""
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    graph = read(model_with([weight], inputs=[float_info("x"), float_info("w")]).SerializeToString())

    assert graph.inputs == ("x",)
    assert list(graph.initializers) == ["w"]


def test_external_data_is_never_read(tmp_path):
    """Values in another file are left out, wherever the path in the model points."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"12345678")
    folder = tmp_path / "models"
    folder.mkdir()
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="../secret")
    weight.raw_data = b"leftover"
    (folder / "m.onnx").write_bytes(model_with([weight]).SerializeToString())

    assert read(folder / "m.onnx").initializers["w"] is None

    literal = helper.make_attribute("value", weight)
    node = onnx.NodeProto(op_type="Constant", output=["y"], attribute=[literal])
    (folder / "m.onnx").write_bytes(model_with(nodes=[node]).SerializeToString())
    with pytest.raises(IRError, match="without values in this file"):
        read(folder / "m.onnx")


def test_constants_and_symbolic_dimensions_are_read():
    """A Constant keeps its tensor as a literal, and a named dimension is an unknown one."""
    node = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.asarray([1, 2], np.float32)))
    graph = read(model_with(nodes=[node], inputs=[float_info("x", ("batch", 3, None))]).SerializeToString())

    assert graph.ops[0].attributes["value"] == Literal("FLOAT", (2,), np.asarray([1, 2], np.float32).tobytes())
    assert graph.tensors["x"].shape == (None, 3, None)
    assert read(dumps(graph, "onnx")) == graph


def refused_models():
    body = helper.make_graph([], "body", [], [])
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    reference = onnx.AttributeProto(name="a", type=onnx.AttributeProto.INT, ref_attr_name="b")
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**62, 2**62], raw_data=b"1234")
    twice = onnx.NodeProto(op_type="Relu", attribute=[helper.make_attribute("a", 1), helper.make_attribute("a", 2)])
    metadata = model_with(inputs=[float_info("x")])
    metadata.metadata_props.add(key="ipu_conformance.weights", value='["y"]')
    two_opsets = model_with()
    two_opsets.opset_import.add(domain="ai.onnx", version=12)
    functions = model_with()
    functions.functions.add(name="f")
    contradicting = [numpy_helper.from_array(np.ones(2, np.float32), "w")]
    return {
        "a plain graph": onnx.ModelProto(ir_version=8),
        "imports 2 ONNX opsets": two_opsets,
        "local functions": functions,
        "is not a number, a string": model_with(nodes=[helper.make_node("If", [], [], then_branch=body)]),
        "is not a plain tensor": model_with(inputs=[sequence]),
        "refers to an attribute": model_with(nodes=[onnx.NodeProto(op_type="Relu", attribute=[reference])]),
        "takes 85070591730234615865843651857942052864 bytes": model_with([huge]),
        "attribute 'a' twice": model_with(nodes=[twice]),
        "names a tensor twice": metadata,
        "type number 999": model_with([TensorProto(name="w", data_type=999)]),
        "has type ''": model_with(nodes=[onnx.NodeProto()]),
        "domain has a field": model_with(nodes=[onnx.NodeProto(op_type="a::b")]),
        "not an integer": model_with(nodes=[helper.make_node("Relu", [], [], __ipu_number=1.5)]),
        "stage -1": model_with(nodes=[helper.make_node("Relu", [], [], __pipeline_stage=-1)]),
        "described twice in different ways": model_with(contradicting, inputs=[float_info("w", (3,))]),
        "stands twice": model_with(contradicting * 2),
        "dimension -5": model_with(inputs=[float_info("x", (-5,))]),
        "NaN": model_with(nodes=[helper.make_node("Relu", [], [], a=float("nan"))]),
        "not UTF-8": model_with(nodes=[helper.make_node("Relu", [], [], a=b"\xff")]),
        "reads 'z', which is not": model_with(nodes=[helper.make_node("Relu", ["z"], [])]),
    }


@pytest.mark.parametrize(("said", "model"), refused_models().items(), ids=lambda value: str(value)[:30])
def test_what_a_graph_cannot_hold_is_refused(said, model):
    """The sentence names what is in the way."""
    with refused(IRError, said):
        read(model.SerializeToString())
