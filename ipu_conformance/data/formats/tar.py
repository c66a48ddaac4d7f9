"""Reads a tar from front to back, in memory: names and contents of files, and nothing that a tar could do besides.

The standard library's reader spends unbounded time on headers that nobody needs here. What extended headers say counts
where it names the next member or gives its size.
"""

from __future__ import annotations

from typing import Dict, Iterator, NamedTuple, Protocol

_BLOCK = 512
_MAX_MEMBERS = 1_000
_HEADER_ROOM = 65_536
"""The most bytes of one extended header."""
_MAX_SIZE = 1 << 40
_NAMES = (b"L", b"K")
_EXTENDED = (b"x", b"g", b"X")
_FILES = (b"0", b"\0", b"7")


class TarError(Exception):
    """The data is not a tar, or is more than files and folders need."""


class Stream(Protocol):
    """What a tar is read from."""

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes."""


class Member(NamedTuple):
    """An entry of a tar; its content is still in the stream."""

    name: str
    size: int
    is_file: bool
    is_folder: bool


def members(stream: Stream) -> Iterator[Member]:
    """The members in order; each one's content is the next ``padded(size)`` bytes, which the caller has to take."""
    changes: Dict[str, str] = {}
    for _ in range(_MAX_MEMBERS):
        header = exactly(stream, _BLOCK)
        if not any(header):
            return
        _check(header)
        kind, size = header[156:157], _number(header[124:136])
        if kind in _NAMES or kind in _EXTENDED:
            if size > _HEADER_ROOM:
                raise TarError(f"an extended header has {size} bytes; at most {_HEADER_ROOM} are read")
            content = exactly(stream, padded(size))[:size]
            if kind == b"L":
                changes["path"] = _text(content)
            elif kind in (b"x", b"X"):
                changes.update(_records(content))
            continue
        prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
        name = _text(header[:100])
        name = changes.get("path", f"{prefix}/{name}" if prefix else name)
        if "size" in changes:
            size = _decimal(changes["size"])
        if not 0 <= size <= _MAX_SIZE:
            raise TarError(f"a member has {size} bytes")
        is_folder = kind == b"5" or (kind in _FILES and name.endswith("/"))
        yield Member(name, size, kind in _FILES and not is_folder, is_folder)
        changes = {}
    raise TarError(f"it has more than {_MAX_MEMBERS} members")


def padded(size: int) -> int:
    """The bytes that a content of a size takes."""
    return -(-size // _BLOCK) * _BLOCK


def exactly(stream: Stream, size: int) -> bytes:
    """So many bytes; fewer are an error."""
    blocks = []
    left = size
    while left:
        block = stream.read(min(left, 1 << 20))
        if not block:
            raise TarError("it ends too early")
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def skip(stream: Stream, size: int) -> None:
    """Read past so many bytes."""
    while size:
        block = stream.read(min(size, 1 << 20))
        if not block:
            raise TarError("it ends too early")
        size -= len(block)


def _check(header: bytes) -> None:
    """Refuse a header whose sum is not the one that it states, counted with or without signs."""
    blanked = header[:148] + b" " * 8 + header[156:]
    plain = sum(blanked)
    if _number(header[148:156]) not in (plain, plain - 256 * sum(byte > 127 for byte in blanked)):
        raise TarError("a header has a wrong checksum")


def _number(field: bytes) -> int:
    """A number of a header: octal digits, or big-endian bytes after a mark."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0")[0].strip()
    try:
        return int(digits or b"0", 8)
    except ValueError:
        raise TarError(f"a header has {digits!r} where a number belongs") from None


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 13):
        raise TarError(f"an extended header has {text[:40]!r} where a size belongs")
    return int(text)


def _text(field: bytes) -> str:
    return field.split(b"\0")[0].decode("utf-8", "surrogateescape")


def _records(content: bytes) -> Dict[str, str]:
    """The path and the size of a header of records ``length key=value``."""
    found: Dict[str, str] = {}
    place = 0
    while place < len(content) and content[place]:
        digits = content[place : place + 8].split(b" ")[0]
        if not digits.isdigit() or int(digits) < len(digits) + 3:
            raise TarError("an extended header has a record without a length")
        record = content[place : place + int(digits)]
        key, _, value = record[len(digits) + 1 :].partition(b"=")
        if not record.endswith(b"\n"):
            raise TarError("an extended header has a record that does not end where it says")
        if key in (b"path", b"size"):
            found[key.decode()] = _text(value[:-1])
        elif key.startswith(b"GNU.sparse"):
            raise TarError("it holds a sparse file")
        place += len(record)
    return found
