"""Paddle's weight files, walked without Paddle, whose own reader believes every length in them.

A file is one tensor after the other: a version, the levels of its sequences with their lengths, a version again, the
description of the tensor, and its values.
"""

from __future__ import annotations

import struct

from ipu_conformance.ir.readers.paddle.messages import SCHEMA, parse_blocks
from ipu_conformance.ir.tensor import IRError

_BYTES = {0: 1, 1: 2, 2: 4, 3: 8, 4: 2, 5: 4, 6: 8, 20: 1, 21: 1, 22: 2, 23: 8, 24: 16}
"""The bytes of an element, by the number of its dtype."""
_TENSOR = 7
_MAX_LEVELS = 16
_MAX_DESCRIPTION = 4096


def require_weights(program: bytes, weights: bytes) -> None:
    """Refuse weights that are not, to the byte, the tensors which a saved program keeps."""
    variables = [variable for block, _ in parse_blocks(program) for variable in block]
    expected = sum(variable.persistable and variable.kind == _TENSOR for variable in variables)
    walk = _Walk(weights)
    count = 0
    while walk.place < len(weights):
        walk.tensor()
        count += 1
    if count != expected:
        raise IRError(f"the file of weights has {count} tensors, and the program keeps {expected}")


class _Walk:
    """Goes through a file of tensors; every length has to lie within it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if not 0 <= size <= len(self.data) - self.place:
            raise IRError(f"the file of weights ends within a tensor, at byte {self.place}")
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self, code: str) -> int:
        """The next number."""
        (value,) = struct.unpack(code, self.take(struct.calcsize(code)))
        return int(value)

    def tensor(self) -> None:
        """Pass the next tensor."""
        start = self.place
        version, levels = self.number("<I"), self.number("<Q")
        if version or levels > _MAX_LEVELS:
            raise IRError(f"the file of weights has no tensor at byte {start}")
        for _ in range(levels):
            self._skip(self.number("<Q"))
        version, size = self.number("<I"), self.number("<i")
        if version or not 0 <= size <= _MAX_DESCRIPTION:
            raise IRError(f"the file of weights has no tensor at byte {start}")
        described = SCHEMA.parse("TensorType", self.take(size))
        length = _BYTES.get(described.data_type if described.WhichOneof("value") else -1, 0)
        for extent in described.dims:
            if not 0 <= extent <= len(self.data):
                length = 0
            length *= extent
        if not length and 0 not in described.dims:
            raise IRError(f"the tensor at byte {start} of the file of weights has no length that a file can hold")
        self._skip(length)

    def _skip(self, size: int) -> None:
        if size > len(self.data) - self.place:
            raise IRError(f"the file of weights ends within a tensor, at byte {self.place}")
        self.place += size
