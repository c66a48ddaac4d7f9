"""Saved programs of Paddle, written byte by byte, so that the tests of their reader need no Paddle."""

from __future__ import annotations

import struct
from typing import Any, Mapping, Sequence, Tuple

BOOL, INT32, INT64, FLOAT, TENSOR = 0, 2, 3, 5, 7


def varint(number: int) -> bytes:
    """A number as protobuf writes it; a negative one has ten bytes."""
    number &= 2**64 - 1
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def field(number: int, value: Any) -> bytes:
    """One field of a message: an integer, a float of 32 bits, text or bytes."""
    if isinstance(value, (bool, int)):
        return varint(number << 3) + varint(int(value))
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode("utf-8") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def variable(name: str, shape: Sequence[int], dtype: int = FLOAT, persistable: bool = False) -> bytes:
    """A variable that is a tensor."""
    tensor = field(1, dtype) + b"".join(field(2, length) for length in shape)
    kind = field(1, TENSOR) + field(3, field(1, tensor))
    return field(1, name) + field(2, kind) + field(3, persistable)


def attribute(name: str, value: Any) -> bytes:
    """An attribute of an op, of the kind that its value shows."""
    head = field(1, name)
    if isinstance(value, bool):
        return head + field(2, 6) + field(10, value)
    if isinstance(value, int):
        return head + field(2, 0) + field(3, value)
    if isinstance(value, float):
        return head + field(2, 1) + field(4, value)
    if isinstance(value, str):
        return head + field(2, 2) + field(5, value)
    return head + field(2, 3) + b"".join(field(6, item) for item in value)


def op(
    type: str,
    inputs: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Sequence[str]],
    attributes: Mapping[str, Any] = {},
) -> bytes:
    """An op."""
    found = b""
    for number, slots in ((1, inputs), (2, outputs)):
        for slot, names in slots.items():
            found += field(number, field(1, slot) + b"".join(field(2, name) for name in names))
    return found + field(3, type) + b"".join(field(4, attribute(*item)) for item in attributes.items())


def program(variables: Sequence[bytes], ops: Sequence[bytes], blocks: int = 1) -> bytes:
    """A saved program; further blocks are empty."""
    block = field(1, 0) + field(2, -1)
    block += b"".join(field(3, each) for each in variables) + b"".join(field(4, each) for each in ops)
    rest = b"".join(field(1, field(1, number) + field(2, 0)) for number in range(1, blocks))
    return field(1, block) + rest + field(4, field(1, 2006002))


def layer(**attributes: Any) -> bytes:
    """A fed matrix times a weight plus a bias, through a tanh, fetched; each op has the attributes."""
    variables = [
        variable("x", (-1, 3)),
        variable("w", (3, 4), persistable=True),
        variable("b", (4,), persistable=True),
        *(variable(name, (-1, 4)) for name in ("xw", "sum", "y")),
    ]
    ops = [
        op("feed", {"X": ["feed"]}, {"Out": ["x"]}, {"col": 0}),
        op("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["xw"]}, {"x_num_col_dims": 1, "y_num_col_dims": 1, **attributes}),
        op("elementwise_add", {"X": ["xw"], "Y": ["b"]}, {"Out": ["sum"]}, {"axis": 1, **attributes}),
        op("tanh", {"X": ["sum"]}, {"Out": ["y"]}, attributes),
        op("fetch", {"X": ["y"]}, {"Out": ["fetch"]}, {"col": 0}),
    ]
    return program(variables, ops)


def chain(*steps: Tuple[str, Mapping[str, Any]]) -> bytes:
    """Ops from ``X`` to ``Out``, one after the other, on a matrix."""
    names = [f"v{number}" for number in range(len(steps) + 1)]
    ops = [op(kind, {"X": [a]}, {"Out": [b]}, held) for (kind, held), a, b in zip(steps, names, names[1:])]
    return program([variable(name, (2, 3)) for name in names], ops)
