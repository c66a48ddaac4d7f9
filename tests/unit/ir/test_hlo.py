"""XLA's HLO text is read without TensorFlow; hostile text gives the one declared error."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.ir import IRError, checks, read
from ipu_conformance.ir.readers.hlo import ops
from tests.unit.examples import at_most
from tests.unit.refusals import refused

from .hlo_files import LAYER, SHORT
from .networks import survives


def test_the_entry_becomes_the_graph():
    """Parameters are inputs, the root is the output, and what is fused stands in place of the fusion."""
    graph = read(LAYER.encode())

    assert graph.name == "layer.9"
    assert (graph.inputs, graph.outputs) == (("x", "w"), ("out/maximum.1",))
    assert [op.type for op in graph.ops] == ["MatMul", "Constant", "Constant", "Expand", "Max"]
    assert checks.shapes(graph) == []


def test_sharding_and_attributes_for_the_compiler_are_read():
    """A sharding on one device is the IPU, an attribute names the stage, and all stay readable."""
    product = read(LAYER.encode()).ops[0]

    assert (product.ipu, product.stage) == (2, 1)
    assert product.attributes["frontend_attributes"] == 'PARTIALS_TYPE="half",_ipu_pipeline_stage="1"'


def test_names_without_signs_and_operands_without_shapes_are_read():
    """Newer printers leave both out; reducers, loops, tuples, constants and layouts are what they say."""
    graph = read(SHORT.encode())

    by_type = {op.type: op for op in graph.ops}
    assert dict(by_type["ReduceSum"].attributes) == {"axes": (1,), "keepdims": 0}
    loop: Any = by_type["xla::while"]
    assert loop.outputs == ("t.0", "t.1")
    assert loop.attributes["body body"][3] == "w = add(v, v)"
    assert loop.attributes["condition cond"][-1] == "l = compare(i, n)"
    assert by_type["Neg"].attributes["layout"] == (0, 1)
    assert graph.outputs == ("r", "m", "e", "q")
    assert dict(graph.initializers) == {"e": None}


def test_a_reduction_that_begins_elsewhere_is_not_taken_for_a_sum():
    """A sum that begins with 7 is no ReduceSum."""
    graph = read(SHORT.replace("z = f32[] constant(0)", "z = f32[] constant(7)").encode())

    assert "xla::reduce" in [op.type for op in graph.ops]
    assert "ReduceSum" not in [op.type for op in graph.ops]


def module(line: str, *parameters: str) -> bytes:
    """A module of one instruction."""
    given = "\n".join(f"p{place} = {shape} parameter({place})" for place, shape in enumerate(parameters))
    return f"HloModule m\nENTRY e {{\n{given}\nROOT y = {line}\n}}".encode()


@pytest.mark.parametrize(
    ("line", "parameters", "types"),
    [
        ("f32[2,5] dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
         ("f32[3,2]", "f32[5,3]"), ["Transpose", "Transpose", "MatMul"]),
        ("f32[2] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
         ("f32[2,3]", "f32[3]"), ["xla::dot"]),
        ("f32[1,4,4,2] convolution(p0, p1), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
         ("f32[1,4,4,5]", "f32[3,3,5,2]"), ["Transpose", "Transpose", "Conv", "Transpose"]),
        ("f32[1,2,4,4] convolution(p0, p1), window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01",
         ("f32[1,5,4,4]", "f32[2,5,3,3]"), ["Conv"]),
        ("f32[1,2,8,8] convolution(p0, p1), window={size=3x3 pad=2_2x2_2 lhs_dilate=2x2}, dim_labels=bf01_oi01->bf01",
         ("f32[1,5,4,4]", "f32[2,5,3,3]"), ["xla::convolution"]),
        ("s32[3] and(p0, p1)", ("s32[3]", "s32[3]"), ["xla::and"]),
        ("pred[3] and(p0, p1)", ("pred[3]", "pred[3]"), ["And"]),
        ("f32[3] rsqrt(p0)", ("f32[3]",), ["Sqrt", "Reciprocal"]),
        ("f32[<=3] negate(p0)", ("f32[<=3]",), ["Neg"]),
        ('f32[3] custom-call(p0), custom_call_target="spin", api_version=API', ("f32[3]",), ["xla::custom-call"]),
        ("bf16[3] convert(p0)", ("f32[3]",), ["Cast"]),
        ("f32[1] slice(p0), slice={[1:2]}", ("f32[3]",), ["Constant"] * 4 + ["Slice"]),
    ],
    ids=range(12),
)  # fmt: skip
def test_an_instruction_becomes_what_onnx_has_for_it(line, parameters, types):
    """What differs from ONNX in the order of dimensions is transposed, and what differs in meaning keeps its name."""
    assert [op.type for op in read(module(line, *parameters)).ops] == types


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HloModule", "a name is missing"),
        (b"HloModule m", "no ENTRY"),
        (b"HloModule m\nENTRY e {", "a name is missing"),
        (b"HloModule m\nENTRY e { }", "has no instruction"),
        (b"HloModule m\xff", "not UTF-8"),
        (module("f32[2 negate(p0)", "f32[2]"), "not the lengths"),
        (module("f32[2] negate(p7)", "f32[2]"), "stands nowhere before it"),
        (module("f32[2] negate(p0", "f32[2]"), "brackets do not match"),
        (module("f32[2] get-tuple-element(p0), index=0", "f32[2]"), "no such part"),
        (module("f32[2] call(p0), to_apply=e", "f32[2]"), "calls itself"),
        (module("f32[2] call(p0), to_apply=gone", "f32[2]"), "not in the module"),
        (module("(" * 100 + "f32[2] negate(p0)", "f32[2]"), "deep in each other"),
        (module("f32[99999999999999999999] negate(p0)", "f32[2]"), "not the lengths"),
        (module("f32[2\x1d] negate(p0)", "f32[2]"), "not the lengths"),
        (module("f32[2]{0\x1c} negate(p0)", "f32[2]"), "not a layout"),
        (module("f32[2] parameter(9)", "f32[2]") + b"\nENTRY e { a = f32[] parameter(0) }", "twice"),
        (module("f32[2] constant({1, x})"), "not as XLA makes them"),
    ],
    ids=range(17),
)
def test_what_is_no_module_is_refused_in_a_sentence(data, said):
    """The error says what is wrong."""
    with refused(IRError, said):
        read(data)


def test_what_grows_without_end_is_refused_at_once():
    """Computations that call each other twice a level are counted, not written out; brackets take no time."""
    levels = ["c0 { p = f32[] parameter(0) ROOT y = f32[] negate(p) }"]
    for level in range(1, 60):
        call = f"f32[] call(%s), to_apply=c{level - 1}"
        levels.append(f"c{level} {{ p = f32[] parameter(0) a = {call % 'p'} ROOT b = {call % 'a'} }}")
    entry = "ENTRY e { p = f32[] parameter(0) ROOT y = f32[] call(p), to_apply=c59 }"
    begun = time.process_time()

    with pytest.raises(IRError, match=r"instructions in all; at most 5\d{3} are read"):
        read("\n".join(["HloModule m", *levels, entry]).encode())
    for hostile in ("(" * 200_000, "()/*" * 5_000, "{" * 200_000 + '"', " " * 200_000 + "@", "/*" * 200_000):
        with pytest.raises(IRError):
            read(f"HloModule m\nENTRY e {{ a = f32[] add{hostile}".encode())

    assert time.process_time() - begun < 10


texts = st.one_of(
    st.lists(st.integers(0, 5), max_size=4).map(lambda numbers: "{" + ",".join(map(str, numbers)) + "}"),
    st.sampled_from(
        ["{size=2x2}", "{size=1x2x2x1 stride=1x2x2x1}", "b01f_01io->b01f", "add", "LT", "{[0:1]}", "3", '"a"']
    ),
)
KEYS = [
    "dimensions", "window", "dim_labels", "to_apply", "direction", "slice", "index", "lhs_contracting_dims",
    "rhs_contracting_dims", "lhs_batch_dims", "feature_group_count", "sharding",
]  # fmt: skip


@at_most(250)
@given(
    st.sampled_from(sorted(ops.ROWS)),
    st.lists(st.sampled_from(["p0", "p1", "p2"]), max_size=3),
    st.dictionaries(st.sampled_from(KEYS), texts, max_size=4),
    st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=4, max_size=4),
    st.sampled_from(["f32", "s32", "pred", "bf16", "c64", "token"]),
)
def test_any_instruction_with_any_attributes_is_refused_or_read(opcode, operands, attributes, shapes, dtype):
    """No row of the table breaks on operands, attributes and shapes that XLA would never write."""
    types = [f"{dtype}[{','.join(map(str, lengths))}]" for lengths in shapes]
    held = "".join(f", {key}={text}" for key, text in attributes.items())
    reducer = "\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"
    survives(module(f"{types[3]} {opcode}({', '.join(operands)}){held}", *types[:3]) + reducer.encode(), "hlo")
