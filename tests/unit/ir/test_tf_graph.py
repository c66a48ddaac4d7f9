"""Graph files of TensorFlow are read without TensorFlow; hostile ones give the one declared error."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_conformance import cli
from ipu_conformance.ir import Graph, IRError, Op, Tensor, isomorphic, read
from ipu_conformance.ir.compare.isomorphism import ISOMORPHIC
from ipu_conformance.ir.readers.tensorflow import graph as tf_graph
from ipu_conformance.ir.readers.tensorflow import schema

from . import tf_files as tf
from .paddle_messages import field
from .tf_files import FLOAT, INT32, Func, Type


def expected_layer(ipu=None, stage=None) -> Graph:
    """The layer of ``tf_files.layer`` as it should be read."""
    placed = {"ipu": ipu, "stage": stage}
    ops = [
        Op("MatMul", "", ("in", "weight"), ("product",), **placed),
        Op("Add", "", ("product", "bias"), ("sum",), **placed),
        Op("Tanh", "", ("sum",), ("out",), **placed),
    ]
    shapes = {"in": (None, 3), "weight": (3, 4), "bias": (4,), "product": (None, 4), "sum": (None, 4), "out": (None, 4)}
    tensors = [Tensor(name, "FLOAT", shape) for name, shape in shapes.items()]
    return Graph("expected", ops, ["in"], ["out"], tensors, ["weight", "bias"])


@pytest.mark.parametrize("data", [tf.layer(), tf.TEXT.encode()], ids=["binary", "text"])
def test_a_graph_file_becomes_a_graph(data):
    """Placeholders are inputs, variables weights, shapes are inferred, and nodes may stand in any order."""
    graph = read(data)

    assert isomorphic(graph, expected_layer()).verdict == ISOMORPHIC
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

    assert isomorphic(graph, expected_layer(ipu, stage)).verdict == ISOMORPHIC


def called(*, device: str = "", depth: int = 1) -> bytes:
    """A layer in a function, which functions around it call, with a variable handed down."""
    inner = tf.function(
        "f0",
        ["a", "v"],
        {"out": "t:y:0"},
        [
            tf.node("r", "ReadVariableOp", ["v"], dtype=Type(FLOAT)),
            tf.node("m", "MatMul", ["a", "r:value:0"], T=Type(FLOAT)),
            tf.node("t", "Tanh", ["m:product:0"], T=Type(FLOAT)),
        ],
    )
    around = [
        tf.function(
            f"f{level}",
            ["a", "v"],
            {"out": "again:output:0"},
            [
                tf.node("once", "PartitionedCall", ["a", "v"], f=Func(f"f{level - 1}")),
                tf.node("again", "PartitionedCall", ["once:output:0", "v"], f=Func(f"f{level - 1}")),
            ],
        )
        for level in range(1, depth + 1)
    ]
    nodes = [
        tf.placeholder("x", (2, 3)),
        tf.node("w", "VarHandleOp", dtype=Type(FLOAT), shape=(3, 3)),
        tf.node("call", "StatefulPartitionedCall", ["x", "w"], device, f=Func(f"f{depth}")),
        tf.node("y", "Identity", ["call"], T=Type(FLOAT)),
    ]
    return tf.graph(nodes, [inner, *around])


def test_called_functions_are_a_part_of_their_caller():
    """A function called twice stands there twice, with the caller's names, weights and placement."""
    graph = read(called(device="/device:IPU:1"))

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
    with pytest.raises(IRError, match="nodes in all; at most 250000 are read"):
        read(called(depth=90))
    loop = tf.function("f", ["a"], {"out": "c:output:0"}, [tf.node("c", "PartitionedCall", ["a"], f=Func("f"))])
    with pytest.raises(IRError, match="'f' calls itself"):
        read(tf.graph([tf.placeholder(), tf.node("c", "PartitionedCall", ["x"], f=Func("f"))], [loop]))
    monkeypatch.setattr(schema, "MAX_MESSAGES", 1_000)
    with pytest.raises(IRError, match="more than 1000 messages"):
        read(b"\n\x00" * 1_001, "tensorflow")

    assert time.process_time() - begun < 5


def test_a_saved_model_is_read_by_what_it_serves(tmp_path):
    """Of a SavedModel, the nodes are read that the outputs of the served signature need."""
    more = tf.graph([tf.node("saver", "Neg", ["x"], T=Type(FLOAT))])
    served = field(1, "serving_default") + field(2, field(2, field(1, "out") + field(2, field(1, "y:0"))))
    meta = field(1, field(1, "")) + field(2, tf.layer() + more) + field(5, served)
    (tmp_path / "saved_model.pb").write_bytes(field(1, 1) + field(2, meta))

    graph = read(tmp_path / "saved_model.pb")

    assert isomorphic(graph, expected_layer()).verdict == ISOMORPHIC
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
    window = {"strides": [1, 1, 1, 1], "dilations": [1, 1, 1, 1], "padding": "SAME", "T": Type(FLOAT)}
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
        (b"\n\x05ab", "ends too early"),
        (b"node {", "stands where a field"),
        (b'node { name: "a', "is no part of it"),
        (b"node { name: [ }", "has no value"),
        (b"node { name: 3 }", "name is '3'"),
        (b'node { attr { value { i: "a" } } }', "i is a string"),
        (b'node { name: "\\q" }', "the escape 'q'"),
        (b"node " + b"{ a " * 100, "deep in each other"),
        (tf.graph([tf.placeholder(), tf.placeholder()]), "two nodes of one name"),
        (tf.graph([tf.node("", "NoOp")]), "without a name"),
        (tf.graph([tf.node("a", "Neg", ["b"])]), "'b', which no node makes"),
        (tf.graph([tf.node("a", "Neg", ["b"]), tf.node("b", "Neg", ["a"])]), "cycle"),
        (tf.graph([tf.placeholder(), tf.node("a", "Neg", ["x:7000000"])]), "does not refer to an output"),
        (tf.graph([tf.placeholder(), tf.node("a", "Neg", ["x:4999"])]), "beyond the 4096 outputs"),
        (tf.graph([tf.node("c", "Const", value=field(1, INT32) + field(4, b"abc"))]), "takes 4 bytes"),
        (tf.graph([tf.node("c", "Const", value=field(1, INT32) + field(5, float("nan")))]), "no number of that dtype"),
        (b"\x08\x01\x12\x02\n\x00", "it has no graph"),
        (tf.graph([], [tf.function("f", [], {}, []).replace(b"f", b"\xff")]), "not UTF-8"),
    ],
    ids=range(18),
)
def test_what_is_no_graph_is_refused_in_a_sentence(data, said):
    """The error says what is wrong."""
    with pytest.raises(IRError) as caught:
        read(data, "tensorflow")

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def survives(data: bytes, format="tensorflow") -> None:
    try:
        outcome = read(data, format)
    except IRError as error:
        outcome = error
    assert isinstance(outcome, Graph) or "\n" not in str(outcome)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=120), st.sampled_from([b"", b"\n", b"node {", b"\x08\x01\x12"]))
def test_random_bytes_are_refused_or_read(data, start):
    """No bytes make the reader raise anything but its own error."""
    survives(start + data)
    survives(start + data, None)


REAL = {"layer": tf.layer("/device:IPU:1"), "called": called(depth=2), "text": tf.TEXT.encode()}


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_changed_files_are_refused_or_read(data):
    """A file with bytes changed, cut out or put in never breaks the reader."""
    content = bytearray(REAL[data.draw(st.sampled_from(sorted(REAL)), label="file")])
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        place = data.draw(st.integers(0, len(content) - 1), label="place")
        length = data.draw(st.integers(0, 8), label="length")
        content[place : place + length] = data.draw(st.binary(max_size=6), label="bytes")
    survives(bytes(content))


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


@settings(deadline=None, max_examples=400)
@given(
    st.sampled_from(sorted([*tf_graph.ROWS, "VarHandleOp", "ReadVariableOp", "AssignVariableOp", "IdentityN"])),
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
    survives(tf.graph(nodes))


def test_the_command_line_shows_and_converts_graphs(tmp_path, capsys):
    """``ir show``, ``convert``, ``draw`` and ``diff`` take a graph file like any other."""
    for name, data in (("net.pb", tf.layer()), ("net.pbtxt", tf.TEXT.encode())):
        (tmp_path / name).write_bytes(data)

    assert cli.main(["ir", "show", str(tmp_path / "net.pb")]) == 0
    assert cli.main(["ir", "convert", str(tmp_path / "net.pbtxt"), str(tmp_path / "net.onnx")]) == 0
    assert cli.main(["ir", "draw", str(tmp_path / "net.pb"), "-o", str(tmp_path / "net.dot")]) == 0
    assert cli.main(["ir", "diff", str(tmp_path / "net.pb"), str(tmp_path / "net.pbtxt")]) == 0

    assert "types   Add 1, MatMul 1, Tanh 1" in capsys.readouterr().out
    assert isomorphic(read(tmp_path / "net.onnx"), expected_layer()).verdict == ISOMORPHIC


def test_the_extension_tells_what_the_content_does_not(tmp_path):
    """A graph without nodes shows nothing of what it is, and its name does."""
    (tmp_path / "empty.pb").write_bytes(tf.graph([], [tf.function("f", [], {}, [])]))

    assert read(tmp_path / "empty.pb").ops == ()


def test_no_framework_is_imported():
    """Reading a graph file imports neither TensorFlow nor protobuf."""
    code = (
        "import sys; from ipu_conformance.ir import read; read(bytes.fromhex(sys.argv[1]));"
        "assert not {'tensorflow', 'google.protobuf', 'onnx', 'torch', 'paddle'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, tf.layer().hex()], check=True)
