"""A journal keeps what was appended, refuses what was changed, and has one writer."""

import errno
import json
import subprocess
import sys
from typing import Any, Dict, List

import pytest

from ipu_conformance.report import journal
from ipu_conformance.report.journal import FolderInUseError, Journal, JournalError, parse, read

ENTRIES: List[Dict[str, Any]] = [
    {"kind": "begin"},
    {"kind": "case", "case": "a", "seconds": 0.1},
    {"kind": "case", "case": "ü"},
]


@pytest.fixture
def path(tmp_path):
    """A journal with three entries, which nobody writes."""
    written = Journal(tmp_path / "folder" / journal.FILE)
    for entry in ENTRIES:
        written.append(entry)
    written.close()
    return written.path


def test_what_is_appended_is_read(path):
    """Entries come back in order, each with its chain."""
    reading = read(path)

    assert [{key: value for key, value in entry.items() if key != "chain"} for entry in reading.entries] == ENTRIES
    assert (reading.torn, reading.broken, reading.size) == (0, None, path.stat().st_size)


def test_bytes_that_are_no_text_are_written_as_numbers(path):
    """An error message that quotes them ends no run."""
    again = Journal(path)
    again.append({"kind": "case", "sentence": "no device \udcff", "devices": ("\ud800",)})
    again.close()

    reading = read(path)
    assert (reading.broken, reading.entries[-1]["sentence"]) == (None, "no device \\udcff")
    assert reading.entries[-1]["devices"] == ["\\ud800"]


def test_a_torn_last_line_is_dropped_and_the_journal_goes_on(path):
    """A run that was killed while it wrote loses the line under way, wherever it was cut."""
    whole = path.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for end in range(last + 1, len(whole)):
        assert len(parse(whole[:end]).entries) == len(ENTRIES) - 1
    path.write_bytes(whole[: last + 5])

    again = Journal(path)
    again.append({"kind": "case", "case": "b"})
    again.close()

    reading = read(path)
    assert [entry.get("case") for entry in reading.entries] == [None, "a", "b"]
    assert reading.broken is None


def test_every_changed_byte_breaks_the_chain(path):
    """No byte can be changed, whether it is in a name, a number or a chain."""
    whole = path.read_bytes()

    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1
        reading = parse(bytes(changed))
        assert reading.broken is not None or reading.torn, position


@pytest.mark.parametrize("order", [(1, 2), (0, 2), (0, 2, 1), (0, 1, 1, 2)], ids=str)
def test_lines_cannot_be_left_out_moved_or_repeated(path, order):
    """The chain ends at the line that does not follow."""
    lines = path.read_bytes().splitlines(keepends=True)

    assert "does not follow" in parse(b"".join(lines[number] for number in order)).broken


def test_a_journal_that_was_changed_is_not_gone_on_with(path):
    """Appending to it would seal the change."""
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"z"'))

    with pytest.raises(JournalError, match="line 2 of the journal does not follow"):
        Journal(path)


def test_a_folder_has_one_writer(path):
    """A second run is refused with a sentence, in this process and in another; afterwards it may write."""
    first = Journal(path)
    program = (
        f"from ipu_conformance.report.journal import Journal; from pathlib import Path; Journal(Path({str(path)!r}))"
    )

    with pytest.raises(FolderInUseError, match="Another run writes to"):
        Journal(path)
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "FolderInUseError" in other.stderr
    first.close()

    Journal(path).close()


def test_a_full_disk_leaves_a_journal_that_can_be_gone_on_with(path, monkeypatch):
    """What was written of a line that does not fit is taken back, and the sentence says what to do."""
    before = path.read_bytes()
    full = Journal(path)

    class Full:
        def __init__(self, file):
            self.file, self.left = file, 7

        def write(self, data):
            if not self.left:
                raise OSError(errno.ENOSPC, "No space left on device")
            part, self.left = data[: self.left], 0
            return self.file.write(part)

        def __getattr__(self, name):
            return getattr(self.file, name)

    monkeypatch.setattr(full, "_file", Full(full._file))
    with pytest.raises(JournalError, match=r"No space left on device; make room, then go on with --resume"):
        full.append({"kind": "case", "case": "b"})
    full.close()

    assert path.read_bytes() == before


def test_a_line_is_one_json_object(path):
    """Other programs can read it."""
    assert [json.loads(line)["kind"] for line in path.read_text(encoding="utf-8").splitlines()] == [
        "begin",
        "case",
        "case",
    ]
