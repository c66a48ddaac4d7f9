"""Graph files of TensorFlow are read without TensorFlow; hostile ones give the one declared error."""

from __future__ import annotations

import time
from typing import Any, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.ir import IRError, isomorphic, read
from ipu_conformance.ir.compare.isomorphism import ISOMORPHIC
from ipu_conformance.ir.readers.tensorflow import messages
from ipu_conformance.ir.readers.tensorflow.graph import TABLES
from ipu_conformance.ir.readers.tensorflow.ops import ROWS
from tests.unit.examples import at_most
from tests.unit.refusals import refused

from . import networks
from . import tf_files as tf
from .networks import survives
from .paddle_files import field
from .tf_files import FLOAT, INT32, Func, Type


@pytest.mark.parametrize("data", [tf.layer(), tf.TEXT.encode()], ids=["binary", "text"])
def test_a_graph_file_becomes_a_graph(data):
    """Placeholders are inputs, variables weights, shapes are inferred, and nodes may stand in any order."""
    graph = read(data)

    assert isomorphic(graph, networks.layer()).verdict == ISOMORPHIC
    assert (graph.inputs, graph.outputs, list(graph.initializers)) == (("x",), ("y",), ["w", "b"])


@pytest.mark.parametrize(
    ("given", "ipu", "stage"),
    [
        ({"device": "/job:localhost/replica:0/task:0/device:IPU:2"}, 2, None),
        ({"device": "/device:CPU:0"}, None, None),
        ({"_XlaSharding": "\x01\x03", "device": "/device:IPU:0"}, 3, None),
        ({"_XlaSharding": "\x02\x01\x03"}, None, None),
        ({"_XlaSharding": "\x08\x01\x1a\x01\x01\x22\x01\x05"}, 5, None),
        ({"_XlaSharding": "\x08\x03\x1a\x01\x02\x22\x02\x00\x01"}, None, None),
        ({"_ipu_pipeline_stage": 4, "device": "/device:IPU:1"}, 1, 4),
    ],
    ids=range(7),
)
def test_placement_is_read(given, ipu, stage):
    """A shard, else the device, is the IPU of an op; several shards are none."""
    graph = read(tf.layer(**given))

    assert isomorphic(graph, networks.layer(ipu, stage)).verdict == ISOMORPHIC


def test_called_functions_are_a_part_of_their_caller():
    """A function called twice stands there twice, with the caller's names, weights and placement."""
    graph = read(tf.called(device="/device:IPU:1"))

    assert [op.type for op in graph.ops] == ["MatMul", "Tanh", "MatMul", "Tanh", "Identity"]
    assert [op.ipu for op in graph.ops] == [1, 1, 1, 1, None]
    assert graph.ops[0].inputs == ("x", "w")
    assert graph.ops[2].inputs == ("call/once/t", "w")
    assert list(graph.initializers) == ["w"]


@pytest.mark.parametrize(
    ("op", "output", "place"),
    [("TopKV2", "indices", ":1"), ("Frobnicate", "parts:2", ":2"), ("TopKV2", "values:0", "")],
)
def test_outputs_in_functions_are_known_by_name(op, output, place):
    """In the body of a function, an output of a node has a name, and a number among those of that name."""
    body = tf.function("f", ["a"], {"out": f"k:{output}"}, [tf.node("k", op, ["a"], T=Type(FLOAT))])

    graph = read(tf.graph([tf.placeholder(), tf.node("c", "PartitionedCall", ["x"], f=Func("f"))], [body]))

    assert graph.ops[0].outputs[-1] == f"c/k{place}"
    assert graph.ops[0].type == f"tensorflow::{op}"


def test_what_grows_without_end_is_refused_at_once(monkeypatch):
    """Functions that call each other twice a level would fill any memory, and ones that call themselves any time."""
    begun = time.process_time()
    with pytest.raises(IRError, match=r"nodes in all; at most 5\d{3} are read"):
        read(tf.called(depth=90))
    loop = tf.function("f", ["a"], {"out": "c:output:0"}, [tf.node("c", "PartitionedCall", ["a"], f=Func("f"))])
    with pytest.raises(IRError, match="'f' calls itself"):
        read(tf.graph([tf.placeholder(), tf.node("c", "PartitionedCall", ["x"], f=Func("f"))], [loop]))
    monkeypatch.setattr(messages, "MAX_MESSAGES", 1_000)
    with pytest.raises(IRError, match="more than 1000 messages"):
        read(b"\n\x00" * 1_001, "tensorflow")
    with pytest.raises(IRError, match="more than 1000 messages"):
        read(b"node {}" * 1_001, "tensorflow")
    with pytest.raises(IRError, match="as text"):
        read(b"node { unknown: [" + b"1," * 50_000, "tensorflow")

    assert time.process_time() - begun < 5


def test_a_saved_model_is_read_by_what_it_serves(tmp_path):
    """Of a SavedModel, the nodes are read that the outputs of the served signature need."""
    more = tf.graph([tf.node("saver", "Neg", ["x"], T=Type(FLOAT))])
    served = field(1, "serving_default") + field(2, field(2, field(1, "out") + field(2, field(1, "y:0"))))
    meta = field(1, field(1, "")) + field(2, tf.layer() + more) + field(5, served)
    (tmp_path / "saved_model.pb").write_bytes(field(1, 1) + field(2, meta))

    graph = read(tmp_path / "saved_model.pb")

    assert isomorphic(graph, networks.layer()).verdict == ISOMORPHIC
    assert read((tmp_path / "saved_model.pb").read_bytes()) == graph


def test_an_assignment_makes_the_next_value():
    """A read that is ordered after an assignment reads the assigned value, any other the first one."""
    nodes = [
        tf.placeholder("x", (3,)),
        tf.node("v", "VarHandleOp", dtype=Type(FLOAT), shape=(3,)),
        tf.node("add", "AssignAddVariableOp", ["v", "x"], dtype=Type(FLOAT)),
        tf.node("before", "ReadVariableOp", ["v"], dtype=Type(FLOAT)),
        tf.node("after", "ReadVariableOp", ["v", "^add"], dtype=Type(FLOAT)),
        tf.node("y", "Sub", ["after", "before"], T=Type(FLOAT)),
    ]

    graph = read(tf.graph(nodes))

    assert [(op.type, op.inputs) for op in graph.ops] == [
        ("tensorflow::AssignAddVariableOp", ("v", "x")),
        ("Sub", ("add", "v")),
    ]


def test_channels_that_come_last_are_told_by_transposes():
    """A convolution in NHWC stands between Transposes; its filter is turned too."""
    window: Dict[str, Any] = {"strides": [1, 1, 1, 1], "dilations": [1, 1, 1, 1], "padding": "SAME", "T": Type(FLOAT)}
    weight = tf.node("w", "Const", dtype=Type(FLOAT), value=tf.tensor([0.5] * 24, (2, 2, 2, 3)))
    graphs = [
        read(
            tf.graph([tf.placeholder("x", shape), weight, tf.node("y", "Conv2D", ["x", "w"], data_format=f, **window)])
        )
        for f, shape in (("NHWC", (1, 5, 5, 2)), ("NCHW", (1, 2, 5, 5)))
    ]

    assert [op.type for op in graphs[0].ops] == ["Transpose", "Transpose", "Conv", "Transpose"]
    assert [op.type for op in graphs[1].ops] == ["Transpose", "Conv"]
    assert graphs[0].tensors["y"].shape == (1, 5, 5, 3)
    assert graphs[1].tensors["y"].shape == (1, 3, 5, 5)
    assert graphs[0].initializers["w"] == graphs[1].initializers["w"] != b""


@pytest.mark.parametrize(
    ("node", "type", "attributes"),
    [
        (tf.node("y", "Frobnicate", ["x"], depth=3, mode="fast", sizes=[1, 2]),
         "tensorflow::Frobnicate", {"depth": 3, "mode": "fast", "sizes": (1, 2)}),
        (tf.node("y", "Sum", ["x", "x"], keep_dims=True), "tensorflow::Sum", {"keep_dims": 1}),
        (tf.node("y", "PartitionedCall", ["x"], f=Func("gone")), "tensorflow::PartitionedCall", {"f": "gone"}),
    ],
    ids=["unknown", "axes that are no constant", "function that is not there"],
)  # fmt: skip
def test_what_onnx_cannot_say_keeps_its_name(node, type, attributes):
    """An op of the domain tensorflow holds the attributes that a graph can."""
    graph = read(tf.graph([tf.placeholder(), node]))

    assert [(op.type, dict(op.attributes)) for op in graph.ops] == [(type, attributes)]


def test_a_huge_constant_is_not_written_out():
    """A file of a few bytes that fills terabytes is read at once: the number is expanded."""
    filled = field(1, FLOAT) + field(2, tf.shape((2**20, 2**20))) + field(5, 1.5)
    begun = time.process_time()

    graph = read(tf.graph([tf.node("c", "Const", value=filled), tf.node("y", "Neg", ["c"], T=Type(FLOAT))]))

    assert [op.type for op in graph.ops] == ["Constant", "Constant", "Expand", "Neg"]
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\n\x05ab", "its GraphDef is cut short, malformed or not UTF-8"),
        (b"node {", 'as text: 1:6 : Expected "}"'),
        (b'node { name: "a', "String missing ending quote"),
        (b"node { name: [ }", "Expected string"),
        (b"node { name: 3 }", "Expected string but found: '3'"),
        (b'node { attr { value { i: "a" } } }', "parse integer"),
        (b'node { name: "\\xz" }', "escape"),
        (b'node { name: "\xff" }', "not UTF-8"),
        (b'node { name: "\\377" }', "as text"),
        (b"node { attr { value { type: DT_NONE } } }", "DT_NONE"),
        (b"node { attr { value { i: " + b"1" * 500, "more than 400 digits"),
        (b"node " + b"{ a " * 100, "nest more than 40 deep"),
        (b"\x7b" * 1_000, "its GraphDef is cut short"),
        (tf.graph([tf.placeholder(), tf.placeholder()]), "two nodes of one name"),
        (tf.graph([tf.node("", "NoOp")]), "without a name"),
        (tf.graph([tf.node("a", "Neg", ["b"])]), "'b', which no node makes"),
        (tf.graph([tf.node("a", "Neg", ["b"]), tf.node("b", "Neg", ["a"])]), "cycle"),
        (tf.graph([tf.placeholder(), tf.node("a", "Neg", ["x:7000000"])]), "does not refer to an output"),
        (tf.graph([tf.placeholder(), tf.node("a", "Neg", ["x:4999"])]), "beyond the 4096 outputs"),
        (tf.graph([tf.node("c", "Const", value=field(1, INT32) + field(4, b"abc"))]), "takes 4 bytes"),
        (
            tf.graph([tf.node("c", "Const", value=field(1, INT32) + field(5, float("nan")))]),
            "not a number of",
        ),
        (b"\x08\x01\x12\x02\n\x00", "it has no graph"),
        (tf.graph([], [tf.function("f", [], {}, []).replace(b"f", b"\xff")]), "not UTF-8"),
    ],
    ids=range(23),
)
def test_what_is_no_graph_is_refused_in_a_sentence(data, said):
    """The error says what is wrong."""
    with refused(IRError, said):
        read(data, "tensorflow")


assert all(TABLES)  # importing these modules fills ROWS
values = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.floats(width=32),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.sampled_from(["SAME", "VALID", "EXPLICIT", "NHWC", "NCHW"]),
    st.lists(st.integers(-1, 4), max_size=8),
    st.lists(st.integers(-1, 4), max_size=4).map(tuple),
    st.sampled_from([Type(number) for number in (1, 3, 9, 20, 99)]),
)
NAMES = [
    "T", "axis", "padding", "strides", "dilations", "ksize", "data_format", "explicit_paddings", "keep_dims",
    "num_split", "squeeze_dims", "DstT", "epsilon", "is_training", "alpha", "batch_dims", "f", "dtype", "shape",
]  # fmt: skip


@at_most(400)
@given(
    st.sampled_from(sorted([*ROWS, "VarHandleOp", "ReadVariableOp", "AssignVariableOp", "IdentityN"])),
    st.lists(st.sampled_from(["a", "b", "c", "v", "a:1"]), max_size=4),
    st.dictionaries(st.sampled_from(NAMES), values, max_size=6),
    st.lists(st.integers(-1, 5), max_size=5).map(tuple),
    st.lists(st.integers(-2, 6), max_size=8),
)
def test_any_op_with_any_attributes_is_refused_or_read(kind, inputs, attributes, shape, numbers):
    """No row of the table breaks on inputs, attributes and shapes that TensorFlow would never write."""
    nodes = [
        tf.placeholder("a", shape),
        tf.placeholder("b", shape),
        tf.node("c", "Const", dtype=Type(INT32), value=tf.tensor(numbers, (len(numbers),), INT32)),
        tf.node("v", "VarHandleOp", dtype=Type(FLOAT), shape=shape),
        tf.node("y", kind, inputs, **attributes),
        tf.node("z", "Neg", ["y"]),
    ]
    survives(tf.graph(nodes), "tensorflow")


def test_the_extension_tells_what_the_content_does_not(tmp_path):
    """A graph without nodes shows nothing of what it is, and its name does."""
    (tmp_path / "empty.pb").write_bytes(tf.graph([], [tf.function("f", [], {}, [])]))

    assert read(tmp_path / "empty.pb").ops == ()
