"""The journal: one line a case as it ends, flushed to the disk and chained to the line before.

Each line is a JSON object whose ``chain`` is the SHA-256 of the previous line's chain and of the line without it. So a
line that is changed, left out or moved is found, and a run that was killed leaves a last line that is whole or torn: a
torn one is dropped and its case runs again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import IO, Any, Dict, List, Mapping, NamedTuple, Optional

from ipu_conformance.errors import ConformanceError

FILE = "journal.jsonl"
START = hashlib.sha256(b"ipu-conformance journal 1").hexdigest()
"""The chain before the first line."""

SECONDS_TO_LET_GO = 1.0
"""How long a killed run may hold its folder after its end."""
SECONDS_UNSYNCED = 1.0
"""What a machine that loses its power may lose; a process that is killed loses nothing."""

Entry = Dict[str, Any]


class JournalError(ConformanceError):
    """A journal cannot be read or written."""


class FolderInUseError(JournalError):
    """Another run writes to the folder."""


class Reading(NamedTuple):
    """What a journal holds: whole entries, the bytes that they take, and what is wrong with the rest."""

    entries: List[Entry]
    size: int
    chain: str
    torn: int
    """Bytes of a last line that was never finished."""
    broken: Optional[str]
    """Why the chain ends before the file does, in a sentence; None if it does not."""


def canonical(data: Any) -> str:
    """The one way in which data is written as JSON here."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def linked(chain: str, entry: Mapping[str, Any]) -> str:
    """The chain of an entry that follows ``chain``."""
    body = {key: value for key, value in entry.items() if key != "chain"}
    return hashlib.sha256(f"{chain}\n{canonical(body)}".encode()).hexdigest()


def read(path: Path) -> Reading:
    """The whole entries of a journal; a line that does not fit the chain ends it, and is named."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}; give the folder of a report.") from error
    return parse(data)


def parse(data: bytes) -> Reading:
    """The whole entries of a journal's bytes."""
    entries: List[Entry] = []
    chain, size = START, 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        entry = _entry(line)
        if entry is None or entry.get("chain") != linked(chain, entry):
            return Reading(entries, size, chain, 0, f"line {number} of the journal does not follow from the one before")
        chain = entry["chain"]
        entries.append(entry)
        size += len(line) + 1
    return Reading(entries, size, chain, len(lines[-1]), None)


def _entry(line: bytes) -> Optional[Entry]:
    """The object of a line, None for what was not written here: no JSON, or JSON that is written in another way."""
    try:
        entry = json.loads(line.decode("utf-8"))
        as_written = canonical(entry).encode() == line
    except (ValueError, RecursionError):
        return None
    return entry if as_written and isinstance(entry, dict) else None


def _writable(data: Any) -> Any:
    """The data with every text in characters that UTF-8 has: an error message may quote bytes that are no text."""
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode()
    if isinstance(data, dict):
        return {_writable(key): _writable(value) for key, value in data.items()}
    return [_writable(each) for each in data] if isinstance(data, (list, tuple)) else data


class Journal:
    """A journal that is being written; while it is open, no other process opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Append-only: nothing that is written is ever written over.
            self._file: IO[bytes] = open(path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise JournalError(f"{path} cannot be written: {error.strerror}; choose another folder.") from error
        if not self._locked():
            self._file.close()
            raise FolderInUseError(f"Another run writes to {path.parent}; wait for its end, or choose another folder.")
        reading = read(path)
        if reading.broken is not None:
            self._file.close()
            raise JournalError(f"{reading.broken}; {path.parent} was changed and cannot be gone on with.")
        self.reload()
        self._synced = time.monotonic()

    def _locked(self) -> bool:
        """Whether the file is this process's now; a run that was just killed lets go of it within a moment."""
        deadline = time.monotonic() + SECONDS_TO_LET_GO
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.02)

    def reload(self) -> None:
        """Go on behind what another process of this run has written: a child that was lost."""
        reading = read(self.path)
        if reading.torn:
            os.truncate(self.path, reading.size)
        self.entries, self._chain, self._size = reading.entries, reading.chain, reading.size

    def append(self, entry: Mapping[str, Any]) -> Entry:
        """Hand one entry to the system, which keeps it if this process is killed; take back one that does not fit."""
        whole = _writable(dict(entry))
        whole["chain"] = linked(self._chain, whole)
        line = canonical(whole).encode() + b"\n"
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
            if time.monotonic() > self._synced + SECONDS_UNSYNCED:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            os.truncate(self.path, self._size)
            raise JournalError(
                f"{self.path} cannot be written: {error.strerror}; make room, then go on with --resume."
            ) from error
        self._chain, self._size = whole["chain"], self._size + len(line)
        self.entries.append(json.loads(line))
        return self.entries[-1]

    def close(self) -> None:
        """Let others open it."""
        self._file.close()
