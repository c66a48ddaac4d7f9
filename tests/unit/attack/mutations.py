"""Changes good files at random: what a damaged disk, a cut download or somebody's editor would leave."""

from __future__ import annotations

import random
from typing import Sequence

WORDS = (
    b"", b"\0", b"\xff", b"\x80", b"\xff\xff\xff\xff\x7f", b"-1", b"9" * 30, b"1e999", b"NaN", b"null", b"{", b"}",
    b"[", b"]", b"(", b")", b'"', b"\\", b"\n", b"::", b"../", b"ROOT ", b"f32[2]", b"\x80\x02", b"PK\x03\x04",
)  # fmt: skip
MOST_CHANGES = 6
LONGEST = 64


def mutated(chance: random.Random, originals: Sequence[bytes]) -> bytes:
    """One of the originals with a few changes, the more of them at its two ends, where headers are."""
    data = bytearray(chance.choice(originals))
    for _ in range(chance.randint(1, MOST_CHANGES)):
        _change(chance, data, originals)
    return bytes(data)


def _change(chance: random.Random, data: bytearray, originals: Sequence[bytes]) -> None:
    span = min(len(data), chance.choice((64, 512, len(data))))
    at = chance.randrange(span + 1)
    at = at if chance.random() < 0.6 else len(data) - at
    length = chance.randint(0, LONGEST)
    kind = chance.randrange(8)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and at < len(data):
        data[at] = chance.randrange(256)
    elif kind == 2:
        del data[at : at + length]
    elif kind == 3:
        data[at:at] = data[at : at + length] * chance.choice((1, 2, 50))
    elif kind == 4:
        data[at : at + chance.randint(0, 8)] = chance.choice(WORDS)
    elif kind == 5:
        data[at : at + length] = bytes(chance.randrange(256) for _ in range(chance.randint(0, 8)))
    elif kind == 6:
        other = chance.choice(originals)
        start = chance.randrange(len(other) + 1)
        data[at : at + length] = other[start : start + length]
    elif chance.random() < 0.3:
        del data[at:]
