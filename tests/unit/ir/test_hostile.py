"""Readers meet hostile input: the one declared error or a graph, in bounded time and memory, and nothing else."""

from __future__ import annotations

import json
import re
import sys
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.ir import IRError, dumps, read
from ipu_conformance.ir.formats.json_text import MAX_DEPTH, parse
from ipu_conformance.ir.readers import onnx
from tests.unit.examples import at_most
from tests.unit.refusals import refused

from . import hlo_files, networks, paddle_files, tf_files
from .networks import survives

REAL = {
    **{
        (name, format): dumps(graph, format)
        for name, graph in (("convnet", networks.convnet()), ("training", networks.training()))
        for format in ("json", "popart", "onnx")
    },
    ("layer", "paddle"): paddle_files.layer(ipu_index=1),
    ("layer", "tensorflow"): tf_files.layer("/device:IPU:1"),
    ("functions", "tensorflow"): tf_files.called(depth=2),
    ("text", "tensorflow"): tf_files.TEXT.encode(),
    ("layer", "hlo"): hlo_files.LAYER.encode(),
    ("short", "hlo"): hlo_files.SHORT.encode(),
}
FORMATS = [None, *sorted({format for _, format in REAL})]
STARTS = [b"", b"\n", b"\n\x05\x08\x00", b"node {", b"\x08\x01\x12", b"HloModule "]
WORDS = [b"}", b"{", b"(", b")", b",", b"=", b"ROOT ", b"f32[2]", b"%", b'"', b"/*", b"-1", b"9" * 30, b"\xff"]


@pytest.mark.parametrize("format", FORMATS)
@at_most(100)
@given(st.sampled_from(STARTS), st.binary(max_size=200))
def test_random_bytes_are_refused_or_read(format, start, data):
    """No bytes make a reader raise anything but its own error."""
    survives(start + data, format)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@at_most(200)
@given(st.data())
def test_any_json_in_any_place_is_refused_or_read(data):
    """A valid document with one value replaced by any other never breaks a reader."""
    name = data.draw(st.sampled_from(["json", "popart"]))
    document = json.loads(REAL["convnet", name])
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys), label="key")
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans(), label="stop"):
            place[key] = data.draw(json_values, label="value")
            break
        place = place[key]

    survives(json.dumps(document).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("original", sorted(REAL), ids="-".join)
@at_most(100)
@given(data=st.data())
def test_mutated_files_are_refused_or_read(original, data):
    """Flipped bytes, cuts, repeats, insertions and splices of real files never break a reader."""
    content = bytearray(REAL[original])
    for _ in range(data.draw(st.integers(1, 4), label="mutations")):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)), label="at")
        length = data.draw(st.integers(0, 40), label="length")
        kind = data.draw(st.sampled_from(["flip", "cut", "truncate", "repeat", "put in", "splice"]), label="kind")
        if kind == "flip" and content:
            content[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
        elif kind == "cut":
            del content[at : at + length]
        elif kind == "truncate":
            del content[at:]
        elif kind == "repeat":
            content[at:at] = content[at : at + length]
        elif kind == "put in":
            content[at : at + length // 4] = data.draw(st.sampled_from(WORDS) | st.binary(max_size=6), label="bytes")
        else:
            other = REAL[data.draw(st.sampled_from(sorted(REAL)), label="from")]
            start = data.draw(st.integers(0, len(other)), label="start")
            content[at : at + length] = other[start : start + length]

    survives(bytes(content), data.draw(st.sampled_from([None, original[1]]), label="format"))


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"a":' * 300_000,
        b'{"maingraph":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
        b'[{"a":' * 100_000 + b"1" + b"}]" * 100_000,
        b'{"a":"' + b'\\"' * 1_000_000,
        b'"' * 2_000_001,
        b"{" + b"}" * 1_000_000,
    ],
    ids=["lists", "objects", "balanced", "mixed", "unterminated string", "quotes", "closing"],
)
@pytest.mark.parametrize("format", [None, "json"])
def test_deep_nesting_is_refused_without_recursion(data, format):
    """Even with Python's recursion limit raised, nesting never reaches the recursive parser."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000_000)
    try:
        with pytest.raises(IRError):
            read(data, format)
    finally:
        sys.setrecursionlimit(limit)


@at_most(100)
@given(json_values)
def test_strict_parsing_agrees_with_python_on_what_it_accepts(value):
    """Values with 64-bit integers and without NaN parse to what Python's own parser makes of them."""
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    odd = re.search(rb"NaN|Infinity|\d{20}|\xed[\xa0-\xbf]", text)
    try:
        value = parse(text)
    except IRError:
        assert odd
        return

    assert value == json.loads(text)


def test_nesting_up_to_the_limit_is_parsed():
    """Brackets inside strings do not count, and the deepest allowed document is read."""
    text = "[" * MAX_DEPTH + json.dumps('[[[{{"\\' * 50) + "]" * MAX_DEPTH

    assert parse(text.encode()) == json.loads(text)
    with pytest.raises(IRError, match=f"deeper than {MAX_DEPTH}"):
        parse(f"[{text}]".encode())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"maingraph":[],"maingraph":[]}', "stands twice"),
        (b'{"format": NaN}', "NaN is not JSON"),
        (b'{"format": -Infinity}', "-Infinity is not JSON"),
        (b'{"format": ' + b"9" * 1_000_000 + b"}", "1000000 digits"),
        (b'{"format": "\xff"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not an ONNX model"),
        (b'{"format": 1} trailing', "not JSON"),
    ],
)
def test_json_that_python_would_accept_or_choke_on_is_refused(data, said):
    """Duplicate keys, NaN and integers of a million digits are errors, found at once."""
    with refused(IRError, said):
        read(data)


@pytest.mark.parametrize("format", ["json", "popart", "onnx"])
def test_huge_declared_sizes_take_no_memory(format):
    """Dimensions near 2^63 and lengths beyond the end of the data are numbers, and nothing is allocated for them."""
    huge = {
        "json": b'{"format": "ipu_conformance.ir", "version": 1, "name": "g", "opset": 11, "inputs": ["x"], "outputs": '
        b'[], "initializers": {}, "tensors": {"x": ["FLOAT", [9223372036854775807, 9223372036854775807]]}, "ops": []}',
        "popart": b'{"maingraph":[{"type":"A","name":"","inputs":[{"name":"x","shape":"[9223372036854775807 '
        b'9223372036854775807]","type":"FLOAT","index":"0"}],"outputs":[],"attributes":{}}]}',
        "onnx": bytes([0x08, 8, 0x3A]) + b"\xff\xff\xff\xff\x07" + b"\x0a\xff\xff\xff\xff\x07",
    }
    survives(huge[format])  # what is imported on first use does not count
    tracemalloc.start()
    try:
        survives(huge[format])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 2**20
    if format != "onnx":
        assert read(huge[format]).tensors["x"].nbytes == (2**63 - 1) ** 2 * 4


def test_millions_of_tiny_ops_are_refused_at_once(monkeypatch):
    """An ONNX file in which an op takes five bytes is counted before it is converted."""
    monkeypatch.setattr(onnx, "MAX_ENTRIES", 1_000)
    body = b"\x12\x01g" + b"\x0a\x03\x22\x01A" * 1_001
    length = bytes([len(body) & 127 | 128, len(body) >> 7])
    data = b"\x08\x08\x3a" + length + body + b"\x42\x02\x10\x0b"

    with pytest.raises(IRError, match="lists 1001 ops or tensors of a kind; at most 1000 are read"):
        read(data)


@pytest.mark.parametrize("name", [b"conv1", b"Conv", b"fc1"])
def test_names_that_are_not_text_are_refused(name):
    """A name whose bytes are not UTF-8 is refused wherever in the file it stands."""
    good = dumps(networks.convnet(), "onnx")
    at = good.index(name)
    bad = good[:at] + bytes([good[at] ^ 0x80]) + good[at + 1 :]

    with pytest.raises(IRError, match="not an ONNX model"):
        read(bad, format="onnx")


LONG = {
    "unknown list": ("unknown: [", "1, ", "1]", 1_000_000),
    "list in an unknown message": ("unknown { name: [", "1,", "1] }", 1_000_000),
    "field of another message": ("size: [", "1,", "1]", 1_000_000),
    "unknown numbers": ("", "unknown:1;", "", 400_000),
    "unknown messages": ("", "unknown {} ", "", 400_000),
    "octal escapes": ('device: "', "\\001", '"', 1_000_000),
    "escapes": ('device: "', "\\n", '"', 1_000_000),
    "spaces": ("", " ", "", 1_000_000),
    "lines": ("", "\t\n", "", 1_000_000),
    "comments": ("", "#\n", "", 400_000),
    "strings": ('device: "" ', '"" ', "", 400_000),
}
"""How a text begins, goes on and ends, and its bytes: so many that work which grows with their square takes too long,
and more values of a list than are read."""


@pytest.mark.parametrize(("start", "again", "end", "size"), LONG.values(), ids=LONG)
def test_a_long_text_is_read_or_refused_quickly(start, again, end, size):
    """A text graph of a megabyte costs no more than two seconds, whatever fills it."""
    content = start + again * (size // len(again)) + end
    begun = time.process_time()
    survives(f'node {{ name: "a" op: "B" {content} }}'.encode(), "tensorflow")

    assert time.process_time() - begun < 2


def test_a_constant_whose_value_is_a_list_is_kept_as_an_op():
    """A Const node holds a tensor; one that holds anything else is an op that nobody knows."""
    graph = read(b'node { name: "a" op: "Const" attr { key: "value" value { list { i: [1, 2] } } } }', "tensorflow")

    assert [op.type for op in graph.ops] == ["tensorflow::Const"]
