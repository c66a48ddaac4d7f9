"""Saved programs of Paddle are read without Paddle; hostile ones give the one declared error."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_conformance import cli
from ipu_conformance.ir import Graph, IRError, Op, Tensor, isomorphic, read, write
from ipu_conformance.ir.compare.isomorphism import ISOMORPHIC
from ipu_conformance.ir.readers.paddle import program as paddle_program

from . import paddle_messages as messages


def expected_layer(ipu=None, stage=None) -> Graph:
    """The layer of ``messages.layer`` as it should be read."""
    placed = {"ipu": ipu, "stage": stage}
    ops = [
        Op("MatMul", "", ("in", "weight"), ("product",), **placed),
        Op("Add", "", ("product", "bias"), ("sum",), **placed),
        Op("Tanh", "", ("sum",), ("out",), **placed),
    ]
    shapes = {"in": (None, 3), "weight": (3, 4), "bias": (4,), "product": (None, 4), "sum": (None, 4), "out": (None, 4)}
    tensors = [Tensor(name, "FLOAT", shape) for name, shape in shapes.items()]
    return Graph("expected", ops, ["in"], ["out"], tensors, ["weight", "bias"])


def test_a_saved_program_becomes_a_graph():
    """Feeds are inputs, fetches outputs, what persists are weights, and unknown lengths stay unknown."""
    graph = read(messages.layer(), "paddle")

    assert isomorphic(graph, expected_layer()).verdict == ISOMORPHIC
    assert (graph.inputs, graph.outputs, list(graph.initializers)) == (("x",), ("y",), ["w", "b"])


def test_placement_is_read():
    """Index and stage of an op are its IPU and its stage."""
    graph = read(messages.layer(ipu_index=2, ipu_stage=1))

    assert isomorphic(graph, expected_layer(ipu=2, stage=1)).verdict == ISOMORPHIC


def test_the_content_tells_the_format(tmp_path):
    """A file without an extension that helps is known by its first bytes."""
    (tmp_path / "model").write_bytes(messages.layer())

    assert read(tmp_path / "model") == read(messages.layer(), "paddle")


def test_gradients_and_updates_are_left_out():
    """Only ops with the role of the forward pass, or of the loss, are read."""
    roles = {"forward": 0, "loss": 256, "backward": 1, "optimize": 2, "schedule": 16, "seed": 257}
    ops = [messages.op("tanh", {"X": ["v"]}, {"Out": [name]}, {"op_role": role}) for name, role in roles.items()]
    data = messages.program([messages.variable(name, (2, 3)) for name in ("v", *roles)], ops)

    assert [op.outputs for op in read(data).ops] == [("forward",), ("loss",)]


def test_an_op_without_a_translation_keeps_its_name():
    """It becomes an op of the domain paddle, with the attributes that a graph can hold."""
    graph = read(messages.chain(("frobnicate", {"depth": 3, "mode": "fast", "empty": [], "sizes": [1, 2]})))

    assert [op.type for op in graph.ops] == ["paddle::frobnicate"]
    assert dict(graph.ops[0].attributes) == {"depth": 3, "mode": "fast", "sizes": (1, 2)}


def test_a_variable_that_is_written_again_gets_a_name_of_its_own():
    """Later readers read the later value."""
    names = {"v": (2, 3), "a": (2, 3), "b": (2, 3)}
    ops = [
        messages.op("tanh", {"X": ["v"]}, {"Out": ["a"]}),
        messages.op("exp", {"X": ["a"]}, {"Out": ["a"]}),
        messages.op("relu", {"X": ["a"]}, {"Out": ["b"]}),
    ]

    graph = read(messages.program([messages.variable(*item) for item in names.items()], ops))

    assert [(op.inputs, op.outputs) for op in graph.ops] == [(("v",), ("a",)), (("a",), ("a_1",)), (("a_1",), ("b",))]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\n", "number without an end"),
        (b"\n\x05ab", "ends too early"),
        (b"\n\x00", "no op|nothing|program"),
        (messages.program([], [], blocks=2), "2 blocks"),
        (messages.program([messages.variable("v", (1,))] * 2, []), "twice"),
        (messages.program([], [messages.op("tanh", {}, {})]), "no input 'X'"),
        (messages.program([], [messages.op("", {}, {})]), "no type"),
        (messages.program([b""], []), "no name"),
        (messages.program([], [b"\xff" * 12]), "without an end"),
        (messages.program([], [messages.field(3, b"\xff\xfe")]), "UTF-8"),
        (messages.program([], [messages.op("tanh", {"X": ["v"]}, {"Out": ["w"]})]), "'v', which the program does not"),
        (messages.chain(("softmax", {"axis": 9})), "axis 9"),
        (messages.chain(("softmax", {"axis": "last"})), "as Paddle makes them"),
        (messages.chain(("transpose", {"axis": [0, 0]})), "order"),
        (messages.chain(("cast", {"out_dtype": 99})), "99"),
        (messages.chain(("fill_any_like", {"value": float("inf")}), ("tril_triu", {"diagonal": 2**40})), ""),
    ],
    ids=range(16),
)
def test_what_is_no_program_is_refused_in_a_sentence(data, said):
    """The error says what is wrong; a program that is odd but whole may be read."""
    try:
        outcome = read(data, "paddle")
    except IRError as error:
        outcome = str(error)
    if said in ("", "no op|nothing|program"):
        assert isinstance(outcome, Graph) or outcome.count("\n") == 0
    else:
        assert isinstance(outcome, str)
        assert said in outcome
        assert "\n" not in outcome


def test_a_huge_constant_is_not_written_out():
    """A program that fills a tensor of many terabytes is read at once: the number is expanded."""
    data = messages.program(
        [messages.variable("v", (2**20, 2**20))],
        [messages.op("fill_constant", {}, {"Out": ["v"]}, {"shape": [2**20, 2**20], "value": 1.5})],
    )
    begun = time.perf_counter()

    graph = read(data)

    assert [op.type for op in graph.ops] == ["Constant", "Constant", "Expand"]
    assert time.perf_counter() - begun < 1


def test_many_versions_of_a_variable_are_read_in_time():
    """Three thousand writes to one name take no time that grows with their square."""
    ops = [messages.op("tanh", {"X": ["v"]}, {"Out": ["v"]})] * 3_000
    begun = time.perf_counter()

    graph = read(messages.program([messages.variable("v", (2, 3))], ops))

    assert len(graph.ops) == 3_000
    assert time.perf_counter() - begun < 20


def survives(data: bytes) -> None:
    try:
        outcome = read(data, "paddle")
    except IRError as error:
        outcome = error
    assert isinstance(outcome, Graph) or "\n" not in str(outcome)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=120))
def test_random_bytes_are_refused_or_read(data):
    """No bytes make the reader raise anything but its own error."""
    survives(b"\n" + data)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_changed_programs_are_refused_or_read(data):
    """A program with bytes changed, cut out or put in never breaks the reader."""
    program = bytearray(messages.layer(ipu_index=1))
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        place = data.draw(st.integers(0, len(program) - 1), label="place")
        length = data.draw(st.integers(0, 3), label="length")
        program[place : place + length] = data.draw(st.binary(max_size=4), label="bytes")
    survives(bytes(program))


values = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.floats(width=32),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
)
NAMES = [
    "axis",
    "axes",
    "shape",
    "dim",
    "keep_dim",
    "k",
    "out_dtype",
    "paddings",
    "strides",
    "ksize",
    "groups",
    "depth",
]
SLOTS = ["X", "Y", "Input", "Filter", "Scale", "Bias", "Mean", "Variance", "Ids", "W", "Label", "Logits", "Index"]


@settings(deadline=None, max_examples=250)
@given(
    st.sampled_from(sorted(paddle_program.ROWS)),
    st.dictionaries(st.sampled_from(SLOTS), st.lists(st.sampled_from(["a", "b", "c"]), max_size=2), max_size=5),
    st.dictionaries(st.sampled_from(["Out", "Y", "Loss", "Output", "Indices"]), st.just(["o"]), max_size=3),
    st.dictionaries(st.sampled_from(NAMES), values, max_size=5),
    st.lists(st.integers(-1, 5), max_size=5),
)
def test_any_op_with_any_attributes_is_refused_or_read(kind, inputs, outputs, attributes, shape):
    """No row of the table breaks on slots, attributes and shapes that Paddle would never write."""
    variables = [messages.variable(name, shape) for name in ("a", "b", "c", "o")]
    survives(messages.program(variables, [messages.op(kind, inputs, outputs, attributes)]))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(["tanh", "exp", "relu", "abs", "unknown"]), min_size=1, max_size=8))
def test_chains_are_read_op_by_op(types):
    """Every op of a chain is read, in order, between the chain's ends."""
    graph = read(messages.chain(*((kind, {}) for kind in types)), "paddle")

    expected = [{"unknown": "paddle::unknown"}.get(kind, kind.title()) for kind in types]
    assert [op.type for op in graph.ops] == expected
    assert (graph.inputs, graph.outputs) == (("v0",), (f"v{len(types)}",))


def test_the_command_line_shows_and_converts_programs(tmp_path, capsys):
    """``ir show`` and ``ir convert`` take a saved program like any other graph."""
    (tmp_path / "net.pdmodel").write_bytes(messages.layer())

    assert cli.main(["ir", "show", str(tmp_path / "net.pdmodel")]) == 0
    assert cli.main(["ir", "convert", str(tmp_path / "net.pdmodel"), str(tmp_path / "net.onnx")]) == 0

    assert "types   Add 1, MatMul 1, Tanh 1" in capsys.readouterr().out
    assert isomorphic(read(tmp_path / "net.onnx"), expected_layer()).verdict == ISOMORPHIC


def test_programs_are_not_written(tmp_path):
    """A graph cannot become a program again, and the error says what it can become."""
    with pytest.raises(IRError, match="not written as 'paddle'; use one of popart, json, onnx, dot, svg"):
        write(read(messages.layer()), tmp_path / "again.pdmodel")


def test_no_framework_is_imported():
    """Reading a saved program imports neither Paddle nor protobuf."""
    code = (
        "import sys; from ipu_conformance.ir import read; read(bytes.fromhex(sys.argv[1]), 'paddle');"
        "assert not {'paddle', 'google.protobuf', 'onnx', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, messages.layer().hex()], check=True)
