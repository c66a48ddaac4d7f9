from __future__ import annotations

import pickle
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.ir import Graph, IRError, Literal, Op, Tensor, in_order
from ipu_conformance.ir.tensor import BITS
from tests.unit.examples import at_most
from tests.unit.refusals import refused

from . import networks
from .strategies import graphs

X, Y = Tensor("x", "FLOAT", (5, 40)), Tensor("y")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Tensor(""), "a tensor has no name"),
        (lambda: Tensor("x", "float32"), "'float32'; use one of"),
        (lambda: Tensor("x", "FLOAT", (5, -1)), "dimension -1"),
        (lambda: Tensor("x", "FLOAT", (2**63,)), "dimension 9223372036854775808"),
        (lambda: Tensor("x", "FLOAT", (10**5000,)), "an integer of 16610 bits"),
        (lambda: Tensor("x", "FLOAT", (True,)), "dimension True"),
        (lambda: Tensor("x", "FLOAT", "55"), "give a sequence of dimensions"),
        (lambda: Tensor("\ud800"), "no UTF-8 form"),
        (lambda: Op(""), "has type ''"),
        (lambda: Op("a\nb"), "has type"),
        (lambda: Op("::Relu"), "has type '::Relu'"),
        (lambda: Op(7), "an op's type is a int"),
        (lambda: Op("Relu", inputs="x"), "give a sequence of tensor names"),
        (lambda: Op("Relu", ipu=-1), "ipu -1"),
        (lambda: Op("Relu", stage=1.5), "stage 1.5"),
        (lambda: Op("Relu", stage=True), "stage True"),
        (lambda: Op("Relu", attributes={"__ipu_number": 1}), "give the placement as ipu="),
        (lambda: Op("Relu", attributes={"a": 2**63}), "an integer has at most 64 bits"),
        (lambda: Op("Relu", attributes={"a": float("nan")}), "NaN"),
        (lambda: Op("Relu", attributes={"a": (1, "b")}), "mixes numbers and text"),
        (lambda: Op("Relu", attributes={"a": None}), "is a NoneType"),
        (lambda: Op("Relu", attributes=[1]), "give a mapping"),
        (lambda: Literal("FLOAT", (2,), b"1234567"), "takes 8 bytes, and 7 are given"),
        (lambda: Graph(""), "no name"),
        (lambda: Graph("g", opset=0), "opset 0"),
        (lambda: Graph("g", inputs=["x"]), "'x' of graph 'g' is not declared"),
        (lambda: Graph("g", tensors=[X]), "tensor 'x' has no source"),
        (lambda: Graph("g", tensors=[X, X]), "declared twice"),
        (lambda: Graph("g", inputs=["x", "x"], tensors=[X]), "lists the input 'x' twice"),
        (lambda: Graph("g", inputs=["x"], tensors=[X], initializers=["x"]), "two sources, a graph input and an init"),
        (lambda: Graph("g", inputs=["x"], tensors=[X], outputs=["z"]), "graph output 'z' is not a tensor"),
        (lambda: Graph("g", [Op("Relu", "r", ("z",), ("y",))], tensors=[Y]), "Relu 'r' reads 'z', which is not"),
        (
            lambda: Graph("g", [Op("Relu", "r", (), ("y",)), Op("Tanh", "t", (), ("y",))], tensors=[Y]),
            "two sources, Relu 'r' and Tanh 't'",
        ),
        (
            lambda: Graph("g", [Op("Relu", "r", ("y",), ("x",)), Op("Tanh", "t", ("x",), ("y",))], tensors=[X, Y]),
            "are on a cycle",
        ),
        (lambda: Graph("g", [Op("Relu", "r", ("y",), ("y",))], tensors=[Y]), "are on a cycle"),
        (
            lambda: Graph("g", [Op("Relu", "r", ("y",), ("x",)), Op("Tanh", "t", (), ("y",))], tensors=[X, Y]),
            "Relu 'r' reads 'y' before Tanh 't' makes it",
        ),
        (lambda: Graph("g", tensors=[X], initializers={"x": b""}), "takes 800 bytes, and 0 are given"),
        (lambda: Graph("g", tensors=[Y], initializers={"y": b""}), "takes no known number of bytes"),
        (lambda: Graph("g", [X]), "holds a Tensor among its ops"),
        (lambda: networks.convnet().bytes_of("nothing"), "has no tensor 'nothing'"),
        (lambda: networks.training().bytes_of("a"), "is not known"),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(build, said):
    """A graph that breaks a rule is never made; the error names what breaks it."""
    with refused(IRError, said):
        build()


@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes"),
    [
        ("FLOAT", (5, 40), 800),
        ("FLOAT16", (3,), 6),
        ("INT64", (), 8),
        ("BOOL", (7,), 7),
        ("INT4", (3,), 2),
        ("COMPLEX128", (2, 0), 0),
        ("FLOAT", (5, None), None),
        ("FLOAT", None, None),
        ("STRING", (2,), None),
        ("UNDEFINED", (2,), None),
    ],
)
def test_a_tensor_knows_its_size(dtype, shape, nbytes):
    """The size is elements times bits, rounded up to bytes, and None where it cannot be known."""
    assert nbytes == Tensor("x", dtype, shape).nbytes


def test_dtypes_are_those_of_onnx_with_their_sizes():
    """Every dtype that ONNX defines is in the table, and NumPy agrees on the size of those it has."""
    import onnx

    assert set(BITS) == set(onnx.TensorProto.DataType.keys())
    for name in ("BOOL", "INT8", "UINT16", "INT32", "INT64", "FLOAT16", "FLOAT", "DOUBLE", "COMPLEX64"):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(name))
        assert dtype.itemsize * 8 == BITS[name]


def test_makers_readers_and_weights_are_found_by_name():
    """A graph answers who makes a tensor, who reads it, and what its weights weigh."""
    graph = networks.convnet()

    assert graph.producers["c2"].name == "conv2"
    assert [op.name for op in graph.consumers("p1_copy")] == ["conv2"]
    assert graph.consumers("y") == ()
    assert {tensor.name: tensor.nbytes for tensor in graph.weights} == {"w1": 72, "w2": 216, "w3": 192, "b3": 16}
    assert graph.bytes_of("x") == 5 * 8 * 8 * 4


def test_numpy_integers_and_truth_values_become_python_integers():
    """What front ends hand over is stored as plain numbers."""
    op = Op("Relu", attributes={"a": [np.int64(3), 4], "b": True, "c": [1, 0.5]}, ipu=np.int32(2))

    assert dict(op.attributes) == {"a": (3, 4), "b": 1, "c": (1.0, 0.5)}
    assert {type(value) for value in (*op.attributes["a"], op.attributes["b"], op.ipu)} == {int}
    assert Tensor("x", "FLOAT", [np.int64(5)]).shape == (5,)


def test_graphs_are_immutable_hashable_and_can_be_pickled():
    """A graph cannot be changed in place, and a copy through pickle is equal."""
    graph = networks.convnet()

    with pytest.raises(AttributeError):
        graph.name = "other"
    with pytest.raises(AttributeError):
        graph.tensors.other = 1
    with pytest.raises(TypeError):
        graph.ops[0].attributes["pads"] = 0
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert hash(pickle.loads(pickle.dumps(graph))) == hash(graph)


@at_most(30)
@given(graphs(), st.randoms(use_true_random=False))
def test_in_order_restores_an_order_that_can_be_executed(graph, random):
    """Shuffled ops come back in an order that a graph accepts, with none lost; ordered ones stay as they are."""
    shuffled = list(graph.ops)
    random.shuffle(shuffled)
    ordered = in_order(shuffled)

    Graph(graph.name, ordered, graph.inputs, graph.outputs, graph.tensors, graph.initializers)
    assert sorted(map(id, ordered)) == sorted(map(id, graph.ops))
    assert in_order(graph.ops) == graph.ops


def test_in_order_takes_time_linear_in_the_edges():
    """One op that reads tens of thousands of others, given first, is placed last at once."""
    count = 40_000
    leaves = [Op("Identity", "", (), (f"t{index}",)) for index in range(count)]
    wide = Op("Sum", "sum", [f"t{index}" for index in range(count)], ("y",))
    begun = time.process_time()

    assert in_order([wide, *leaves])[-1] is wide
    assert time.process_time() - begun < 4
