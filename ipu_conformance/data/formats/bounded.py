"""Reading with limits: no file is believed about its size, and every failure to read is one sentence."""

from __future__ import annotations

import gzip
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator

from ipu_conformance.data.dataset import DataError

_BLOCK = 1 << 20


@contextmanager
def refusing(path: Path, expected: str) -> Iterator[None]:
    """Turn whatever a parser raises about ``path`` into a ``DataError`` that says what the file should be.

    The parsers of the standard library, NumPy and Pillow have no closed set of exceptions for damaged input, so the
    net is wide; the cause stays attached.
    """
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; it should be {expected}") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if len(reason) > 120:
            reason = reason[:117] + "..."
        raise DataError(f"{path} cannot be read as {expected} ({reason}); replace the file") from error


class Bounded:
    """A readable stream that refuses to give more than ``limit`` bytes, whatever the file inside claims."""

    def __init__(self, stream: IO[bytes], limit: int, path: Path) -> None:
        self._stream, self._limit, self._path = stream, limit, path
        self._given = 0

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes; one byte beyond the limit is an error."""
        room = self._limit - self._given + 1
        data = self._stream.read(room if size is None or size < 0 else min(size, room))
        self._given += len(data)
        if self._given > self._limit:
            raise DataError(f"{self._path} unpacks to more than {self._limit:,} bytes; it is not the original file")
        return data


@contextmanager
def open_maybe_gzip(path: Path, limit: int) -> Iterator[Bounded]:
    """A bounded stream of the contents of a plain or gzip file; the first two bytes show which."""
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield Bounded(unpacked, limit, path)  # type: ignore[arg-type]
        else:
            yield Bounded(raw, limit, path)


def read_all(stream: Bounded, length: int) -> bytes:
    """All of the stream, in blocks; it should hold exactly ``length`` bytes."""
    blocks = []
    total = 0
    while True:
        block = stream.read(_BLOCK)
        if not block:
            break
        blocks.append(block)
        total += len(block)
    if total != length:
        raise ValueError(f"{total:,} bytes follow the header, which announces {length:,}")
    return b"".join(blocks)
