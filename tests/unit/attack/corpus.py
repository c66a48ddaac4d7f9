"""Files that once stalled a reader or filled the memory, made here: each is small and takes its reader no time."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from typing import Callable, Dict, Tuple

import numpy as np


def shared_lists(width: int = 500, depth: int = 3) -> bytes:
    """A pickle of lists that hold one list over and over: some kilobytes for 125 million items."""
    data = b"\x80\x02}(U\x04data](" + (b"G" + struct.pack(">d", 1.5)) * width + b"eq\x00"
    for level in range(1, depth):
        data += b"0](" + (b"h" + bytes([level - 1])) * width + b"eq" + bytes([level])
    return data + b"U\x06labels]u."


def doubled_key(depth: int = 200) -> bytes:
    """A pickled dictionary whose key is a pair of pairs of pairs: its hash looks at each of them."""
    return b"\x80\x02}K\x01q\x000" + b"h\x00h\x00\x86q\x000" * depth + b"h\x00K\x01s."


def repeated_text(length: int = 500_000, times: int = 60_000) -> bytes:
    """A pickle that encodes one long text over and over."""
    text = b"X" + struct.pack("<I", length) + b"a" * length
    head = b"\x80\x02c_codecs\nencode\nq\x000" + text + b"q\x010X\x06\x00\x00\x00latin1q\x020h\x01h\x02\x86q\x030]("
    return head + b"h\x00h\x03R" * times + b"e."


def digits_header(digits: int = 400_000) -> bytes:
    """A tar whose extended header is one long number."""
    header = tarfile.TarInfo("x")
    header.type, header.size = b"x", digits
    return gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + b"1" * digits + bytes(-digits % 512 + 1024))


def many_members(count: int = 50_000) -> bytes:
    """A tar of empty files."""
    return gzip.compress(tarfile.TarInfo("x").tobuf() * count, 1)


def empty_batches() -> bytes:
    """A tar of all images, each of them black."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for number in range(1, 6):
            member = tarfile.TarInfo(f"data_batch_{number}.bin")
            member.size = 3073 * 10_000
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return gzip.compress(stream.getvalue(), 1)


def packed_jpegs(count: int = 50_000) -> bytes:
    """One JPEG file many times over, packed."""
    from tests.unit.data import files

    one = files.jpeg(np.zeros((32, 32, 3), np.uint8))
    stream = io.BytesIO()
    offsets = np.arange(count + 1, dtype=np.int64) * len(one)
    joined = np.frombuffer(one * count, np.uint8)
    np.savez_compressed(stream, jpeg=joined, offset=offsets, label=np.zeros(count, np.uint8))
    return stream.getvalue()


def doubling_functions() -> bytes:
    """Functions that call the next one twice: two kilobytes for 160,000 ops."""
    from tests.unit.ir import tf_files

    return tf_files.called(depth=15)


def doubling_onnx(depth: int = 24) -> bytes:
    """The same in ONNX."""
    from onnx import helper

    opsets = [helper.make_opsetid("", 11), helper.make_opsetid("d", 1)]
    functions = [
        helper.make_function(
            "d", f"f{level}", ["x"], ["z"],
            [helper.make_node(f"f{level + 1}", [a], [b], domain="d") for a, b in (("x", "y"), ("y", "z"))], opsets,
        )
        for level in range(depth)
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, 1, [1]) for name in "ab"]
    graph = helper.make_graph([helper.make_node("f0", ["a"], ["b"], domain="d")], "g", ends[:1], ends[1:])
    data: bytes = helper.make_model(graph, functions=functions, opset_imports=opsets).SerializeToString()
    return data


def tiny_ops(count: int = 200_000) -> bytes:
    """An ONNX model of ops that take five bytes each."""
    ops = b"\x0a\x03\x22\x01A" * count
    size, length = len(ops) + 3, b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return b"\x08\x08\x3a" + length + bytes([size]) + b"\x12\x01g" + ops + b"\x42\x02\x10\x0b"


def tiny_nodes(count: int = 30_000) -> bytes:
    """A graph of TensorFlow, as text, of nodes that take thirty bytes each."""
    return b"".join(b'node{name:"%x"op:"Relu"input:"z"}' % number for number in range(count))


def blanks(size: int = 1 << 20) -> bytes:
    """Blanks before a graph in text."""
    return b" \n" * (size // 2) + b'node { name: "a" op: "B" }'


def many_strings(count: int = 340_000) -> bytes:
    """A string of a graph in text, written in pieces."""
    return b'node { name: "a" op: "B" device: ' + b'"" ' * count + b"}"


def short_instructions(count: int = 43_000) -> bytes:
    """A module of instructions that take twenty bytes each."""
    lines = b"".join(b"b%x=f32[] negate(a)\n" % number for number in range(count))
    return b"HloModule m\nENTRY e {\na=f32[] parameter(0)\n" + lines + b"ROOT r=f32[] negate(a)\n}\n"


def endless_levels() -> bytes:
    """A file of weights whose first tensor has 2^40 levels."""
    return struct.pack("<IQ", 0, 1 << 40) + bytes(100)


CONSTRUCTED: Dict[str, Tuple[str, Callable[[], bytes]]] = {
    "shared lists": ("data-pickle", shared_lists),
    "a key of pairs": ("data-pickle", doubled_key),
    "a text encoded often": ("data-pickle", repeated_text),
    "a header of digits": ("data-tar", digits_header),
    "many members": ("data-tar", many_members),
    "black images": ("data-tar", empty_batches),
    "packed JPEG files": ("data-jpeg", packed_jpegs),
    "doubling functions": ("ir-tensorflow", doubling_functions),
    "doubling ONNX functions": ("ir-onnx", doubling_onnx),
    "tiny ops": ("ir-onnx", tiny_ops),
    "tiny nodes": ("ir-tensorflow-text", tiny_nodes),
    "blanks": ("ir-tensorflow-text", blanks),
    "64 MB of blanks": ("ir-tensorflow-text", lambda: blanks((64 << 20) - 100)),
    "strings in pieces": ("ir-tensorflow-text", many_strings),
    "short instructions": ("ir-hlo", short_instructions),
    "endless levels": ("paddle-weights", endless_levels),
}
"""The files by their names, with the reader that each is for."""
