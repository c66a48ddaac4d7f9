"""Saved programs of Paddle are read without Paddle; hostile ones give the one declared error."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.interpreter import execute
from ipu_conformance.ir import Graph, IRError, isomorphic, read, write
from ipu_conformance.ir.compare.isomorphism import ISOMORPHIC
from ipu_conformance.ir.readers.paddle.ops import ROWS
from ipu_conformance.ir.readers.paddle.program import TABLES
from tests.unit.examples import at_most

from . import networks
from . import paddle_files as files
from .networks import survives


def test_a_saved_program_becomes_a_graph():
    """Feeds are inputs, fetches outputs, what persists are weights, and unknown lengths stay unknown."""
    graph = read(files.layer(), "paddle")

    assert isomorphic(graph, networks.layer()).verdict == ISOMORPHIC
    assert (graph.inputs, graph.outputs, list(graph.initializers)) == (("x",), ("y",), ["w", "b"])


def test_placement_is_read():
    """Index and stage of an op are its IPU and its stage."""
    graph = read(files.layer(ipu_index=2, ipu_stage=1))

    assert isomorphic(graph, networks.layer(ipu=2, stage=1)).verdict == ISOMORPHIC


def test_gradients_and_updates_are_left_out():
    """Only ops with the role of the forward pass, or of the loss, are read."""
    roles = {"forward": 0, "loss": 256, "backward": 1, "optimize": 2, "schedule": 16, "seed": 257}
    ops = [files.op("tanh", {"X": ["v"]}, {"Out": [name]}, {"op_role": role}) for name, role in roles.items()]
    data = files.program([files.variable(name, (2, 3)) for name in ("v", *roles)], ops)

    assert [op.outputs for op in read(data).ops] == [("forward",), ("loss",)]


@pytest.mark.parametrize(("dtype", "casts"), [(files.INT32, 1), (files.BOOL, 1), (files.INT64, 0)])
def test_a_sum_is_one_of_the_type_of_its_result(tmp_path, dtype, casts):
    """Of 32 bits or of truths it is a sum of 64 bits, and the graph is valid ONNX."""
    variables = [files.variable("v", (2, 3), dtype), files.variable("total", (3,), files.INT64)]
    data = files.program(variables, [files.op("reduce_sum", {"X": ["v"]}, {"Out": ["total"]}, {"dim": [0]})])
    graph = read(data)
    write(graph, tmp_path / "sum.onnx")

    assert [op.type for op in graph.ops] == ["Cast"] * casts + ["ReduceSum"]
    (told,) = execute(graph, {"v": np.array([[1, 0, 1], [1, 0, 0]])}).outputs.values()
    assert told[0, 0, 0].tolist() == [2, 0, 1]


def test_an_op_without_a_translation_keeps_its_name():
    """It becomes an op of the domain paddle, with the attributes that a graph can hold."""
    graph = read(files.chain(("frobnicate", {"depth": 3, "mode": "fast", "empty": [], "sizes": [1, 2]})))

    assert [op.type for op in graph.ops] == ["paddle::frobnicate"]
    assert dict(graph.ops[0].attributes) == {"depth": 3, "mode": "fast", "sizes": (1, 2)}


def test_a_variable_that_is_written_again_gets_a_name_of_its_own():
    """Later readers read the later value."""
    names = {"v": (2, 3), "a": (2, 3), "b": (2, 3)}
    ops = [
        files.op("tanh", {"X": ["v"]}, {"Out": ["a"]}),
        files.op("exp", {"X": ["a"]}, {"Out": ["a"]}),
        files.op("relu", {"X": ["a"]}, {"Out": ["b"]}),
    ]

    graph = read(files.program([files.variable(*item) for item in names.items()], ops))

    assert [(op.inputs, op.outputs) for op in graph.ops] == [(("v",), ("a",)), (("a",), ("a_1",)), (("a_1",), ("b",))]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\n", "its Program is cut short"),
        (b"\n\x05ab", "its Program is cut short"),
        (b"\n\x00", "no op|nothing|program"),
        (files.program([], [], blocks=2), "2 blocks"),
        (files.program([files.variable("v", (1,))] * 2, []), "twice"),
        (files.program([], [files.op("tanh", {}, {})]), "no input 'X'"),
        (files.program([], [files.op("", {}, {})]), "no type"),
        (files.program([b""], []), "no name"),
        (files.program([], [b"\xff" * 12]), "its Op is cut short"),
        (files.program([], [files.field(3, b"\xff\xfe")]), "UTF-8"),
        (files.program([], [files.op("tanh", {"X": ["v"]}, {"Out": ["w"]})]), "'v', which the program does not"),
        (files.chain(("softmax", {"axis": 9})), "axis 9"),
        (files.chain(("softmax", {"axis": "last"})), "as Paddle makes them"),
        (files.chain(("transpose", {"axis": [0, 0]})), "order"),
        (files.chain(("cast", {"out_dtype": 99})), "99"),
        (files.chain(("fill_any_like", {"value": float("inf")}), ("tril_triu", {"diagonal": 2**40})), ""),
    ],
    ids=range(16),
)
def test_what_is_no_program_is_refused_in_a_sentence(data, said):
    """The error says what is wrong; a program that is odd but whole may be read."""
    try:
        outcome: Any = read(data, "paddle")
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
    data = files.program(
        [files.variable("v", (2**20, 2**20))],
        [files.op("fill_constant", {}, {"Out": ["v"]}, {"shape": [2**20, 2**20], "value": 1.5})],
    )
    begun = time.perf_counter()

    graph = read(data)

    assert [op.type for op in graph.ops] == ["Constant", "Constant", "Expand"]
    assert time.perf_counter() - begun < 1


def test_many_versions_of_a_variable_are_read_in_time():
    """Three thousand writes to one name take no time that grows with their square."""
    ops = [files.op("tanh", {"X": ["v"]}, {"Out": ["v"]})] * 3_000
    begun = time.perf_counter()

    graph = read(files.program([files.variable("v", (2, 3))], ops))

    assert len(graph.ops) == 3_000
    assert time.perf_counter() - begun < 20


assert all(TABLES)  # importing these modules fills ROWS
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


@at_most(250)
@given(
    st.sampled_from(sorted(ROWS)),
    st.dictionaries(st.sampled_from(SLOTS), st.lists(st.sampled_from(["a", "b", "c"]), max_size=2), max_size=5),
    st.dictionaries(st.sampled_from(["Out", "Y", "Loss", "Output", "Indices"]), st.just(["o"]), max_size=3),
    st.dictionaries(st.sampled_from(NAMES), values, max_size=5),
    st.lists(st.integers(-1, 5), max_size=5),
)
def test_any_op_with_any_attributes_is_refused_or_read(kind, inputs, outputs, attributes, shape):
    """No row of the table breaks on slots, attributes and shapes that Paddle would never write."""
    variables = [files.variable(name, shape) for name in ("a", "b", "c", "o")]
    survives(files.program(variables, [files.op(kind, inputs, outputs, attributes)]), "paddle")


@at_most(100)
@given(st.lists(st.sampled_from(["tanh", "exp", "relu", "abs", "unknown"]), min_size=1, max_size=8))
def test_chains_are_read_op_by_op(types):
    """Every op of a chain is read, in order, between the chain's ends."""
    graph = read(files.chain(*((kind, {}) for kind in types)), "paddle")

    expected = [{"unknown": "paddle::unknown"}.get(kind, kind.title()) for kind in types]
    assert [op.type for op in graph.ops] == expected
    assert (graph.inputs, graph.outputs) == (("v0",), (f"v{len(types)}",))


def test_programs_are_not_written(tmp_path):
    """A graph cannot become a program again, and the error says what it can become."""
    with pytest.raises(IRError, match="not written as 'paddle'; use one of popart, json, onnx, dot, svg"):
        write(read(files.layer()), tmp_path / "again.pdmodel")
