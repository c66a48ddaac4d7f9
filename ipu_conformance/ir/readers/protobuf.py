"""Protobuf messages as bytes, taken apart without a schema and without the protobuf library.

Every length is checked against what is there, groups and unknown wire types are refused, and nothing is allocated
before it was read.
"""

from __future__ import annotations

import struct
from typing import Any, Iterator, List, Tuple, Union

from ipu_conformance.ir.tensor import IRError

Value = Union[int, bytes]
"""A field as it is stored: a number, or bytes (text, a message, packed numbers, a float)."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Wire:
    """Takes the messages of one kind of document apart; ``document`` completes "the data is not …"."""

    def __init__(self, document: str) -> None:
        self.refusal = f"the data is not {document}"

    def fields(self, data: Any, what: str) -> Iterator[Tuple[int, Value]]:
        """The fields of a message, by number."""
        view = memoryview(data)
        place = 0
        while place < len(view):
            key, place = self.varint(view, place, what)
            number, wire = key >> 3, key & 7
            if number == 0:
                raise IRError(f"{self.refusal}: {what} has a field without a number")
            value: Value
            if wire == _VARINT:
                value, place = self.varint(view, place, what)
            elif wire in (_FIXED64, _FIXED32, _BYTES):
                length = 8 if wire == _FIXED64 else 4
                if wire == _BYTES:
                    length, place = self.varint(view, place, what)
                if length > len(view) - place:
                    raise IRError(f"{self.refusal}: {what} ends too early")
                value = bytes(view[place : place + length])
                place += length
            else:
                raise IRError(f"{self.refusal}: {what} has a field of wire type {wire}")
            yield number, value

    def varint(self, view: memoryview, place: int, what: str) -> Tuple[int, int]:
        """A number and the place behind it."""
        value = 0
        for shift in range(0, 70, 7):
            if place >= len(view):
                break
            byte = view[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (2**64 - 1), place
        raise IRError(f"{self.refusal}: {what} has a number without an end")

    def message(self, value: Value, what: str) -> bytes:
        """The bytes of a field that must have some."""
        if not isinstance(value, bytes):
            raise IRError(f"{self.refusal}: {what} is a number")
        return value

    def text(self, value: Value, what: str) -> str:
        """The text of a field."""
        try:
            return self.message(value, what).decode("utf-8")
        except UnicodeDecodeError:
            raise IRError(f"{self.refusal}: {what} is not UTF-8 text") from None

    def signed(self, value: Value, what: str = "a number") -> int:
        """A number that may be negative, as 64 bits of two's complement."""
        if not isinstance(value, int):
            raise IRError(f"{self.refusal}: {what} is not a number")
        return value - 2**64 if value >= 2**63 else value

    def floating(self, value: Value, code: str) -> float:
        """A float, of 32 or 64 bits as the code of ``struct`` says."""
        raw = value if isinstance(value, bytes) else b""
        if len(raw) != struct.calcsize(code):
            raise IRError(f"{self.refusal}: a float has the wrong size")
        found: float = struct.unpack(code, raw)[0]
        return found

    def numbers(self, value: Value) -> List[int]:
        """One number, or several that are packed."""
        if isinstance(value, int):
            return [self.signed(value)]
        view = memoryview(value)
        place = 0
        found: List[int] = []
        while place < len(view):
            number, place = self.varint(view, place, "a list")
            found.append(self.signed(number))
        return found

    def floats(self, value: Value, code: str) -> List[float]:
        """One float, or several that are packed."""
        raw = value if isinstance(value, bytes) else b""
        size = struct.calcsize(code)
        if not raw or len(raw) % size:
            raise IRError(f"{self.refusal}: a list of floats has the wrong size")
        return [found for (found,) in struct.iter_unpack(code, raw)]
