"""Graph files of TensorFlow, written byte by byte, so that the tests of their reader need no TensorFlow."""

from __future__ import annotations

import struct
from typing import Any, Mapping, Sequence, Tuple

from .paddle_files import field

FLOAT, INT32, RESOURCE = 1, 3, 20


class Type(int):
    """An attribute that is a dtype."""


class Func(str):
    """An attribute that is a function."""


def shape(lengths: Sequence[int]) -> bytes:
    """A shape; -1 is unknown."""
    return b"".join(field(2, field(1, length)) for length in lengths)


def tensor(values: Sequence[float], lengths: Sequence[int], dtype: int = FLOAT) -> bytes:
    """A constant with its content packed."""
    code = {FLOAT: "f", INT32: "i"}[dtype]
    return field(1, dtype) + field(2, shape(lengths)) + field(4, struct.pack(f"<{len(values)}{code}", *values))


def value(given: Any) -> bytes:
    """The value of an attribute; a tuple is a shape, a list a list of integers, bytes a tensor."""
    if isinstance(given, Type):
        return field(6, int(given))
    if isinstance(given, Func):
        return field(10, field(1, str(given)))
    if isinstance(given, bool):
        return field(5, given)
    if isinstance(given, int):
        return field(3, given)
    if isinstance(given, float):
        return field(4, given)
    if isinstance(given, str):
        return field(2, given)
    if isinstance(given, tuple):
        return field(7, shape(given))
    if isinstance(given, bytes):
        return field(8, given)
    return field(1, b"".join(field(3, number) for number in given))


def node(name: str, op: str, inputs: Sequence[str] = (), device: str = "", **attributes: Any) -> bytes:
    """A node."""
    found = field(1, name) + field(2, op) + b"".join(field(3, given) for given in inputs)
    found += field(4, device) if device else b""
    return found + b"".join(field(5, field(1, key) + field(2, value(item))) for key, item in attributes.items())


def function(
    name: str, arguments: Sequence[str], results: Mapping[str, str], nodes: Sequence[bytes], effects: Sequence[str] = ()
) -> bytes:
    """A function of a library."""
    signature = field(1, name) + b"".join(field(2, field(1, each) + field(3, FLOAT)) for each in arguments)
    signature += b"".join(field(3, field(1, each)) for each in results)
    found = field(1, signature) + b"".join(field(3, each) for each in nodes)
    found += b"".join(field(4, field(1, key) + field(2, item)) for key, item in results.items())
    return found + b"".join(field(6, field(1, each) + field(2, each)) for each in effects)


def graph(nodes: Sequence[bytes], functions: Sequence[bytes] = ()) -> bytes:
    """A GraphDef."""
    library = field(2, b"".join(field(1, each) for each in functions)) if functions else b""
    return b"".join(field(1, each) for each in nodes) + library


def placeholder(name: str = "x", lengths: Tuple[int, ...] = (2, 3)) -> bytes:
    """An input."""
    return node(name, "Placeholder", dtype=Type(FLOAT), shape=lengths)


def layer(device: str = "", **attributes: Any) -> bytes:
    """A matrix times a variable plus a bias, through a tanh; the ops that compute have the attributes."""
    placed = {"T": Type(FLOAT), **attributes}
    return graph([
        placeholder("x", (-1, 3)),
        node("w", "VarHandleOp", dtype=Type(FLOAT), shape=(3, 4), shared_name="w"),
        node("w/Read", "ReadVariableOp", ["w"], dtype=Type(FLOAT)),
        node("b", "VarHandleOp", dtype=Type(FLOAT), shape=(4,), shared_name="b"),
        node("b/Read", "ReadVariableOp", ["b"], dtype=Type(FLOAT)),
        node("y", "Tanh", ["sum"], device, **placed),
        node("sum", "BiasAdd", ["xw", "b/Read"], device, **placed),
        node("xw", "MatMul", ["x", "w/Read"], device, **placed),
    ])  # fmt: skip


def called(*, device: str = "", depth: int = 1) -> bytes:
    """A layer in a function, which functions around it call, with a variable handed down."""
    inner = function(
        "f0",
        ["a", "v"],
        {"out": "t:y:0"},
        [
            node("r", "ReadVariableOp", ["v"], dtype=Type(FLOAT)),
            node("m", "MatMul", ["a", "r:value:0"], T=Type(FLOAT)),
            node("t", "Tanh", ["m:product:0"], T=Type(FLOAT)),
        ],
    )
    around = [
        function(
            f"f{level}",
            ["a", "v"],
            {"out": "again:output:0"},
            [
                node("once", "PartitionedCall", ["a", "v"], f=Func(f"f{level - 1}")),
                node("again", "PartitionedCall", ["once:output:0", "v"], f=Func(f"f{level - 1}")),
            ],
        )
        for level in range(1, depth + 1)
    ]
    nodes = [
        placeholder("x", (2, 3)),
        node("w", "VarHandleOp", dtype=Type(FLOAT), shape=(3, 3)),
        node("call", "StatefulPartitionedCall", ["x", "w"], device, f=Func(f"f{depth}")),
        node("y", "Identity", ["call"], T=Type(FLOAT)),
    ]
    return graph(nodes, [inner, *around])


TEXT = """
# a comment
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: -1 } dim { size: 3 } } } } }
node { name: "w" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 3 } dim { size: 4 } } } }
  attr { key: "shared_name" value { s: "w" } } }
node { name: "w/Read" op: "ReadVariableOp" input: "w" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "b" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 4 } } } } attr { key: "shared_name" value { s: "\\142" } } }
node { name: "b/Read" op: "ReadVariableOp" input: 'b' attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "y" op: "Tanh" input: "sum" attr { key: "T" value { type: DT_FLOAT } } }
node < name: "su" "m" op: "BiasAdd" input: ["xw", "b/Read"], attr { key: "T" value { type: DT_FLOAT } } >
node { name: "xw"; op: "MatMul" input: "x" input: "w/Read" attr { key: "T" value { type: DT_FLOAT } } }
versions { producer: 1645 unknown_list: [1, 2] }
"""
"""The layer as text, in all the ways in which text may be written."""
