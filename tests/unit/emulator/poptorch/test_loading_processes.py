"""The processes that load data: what they import, and that they end with the program, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

DATASET = """
import multiprocessing, sys, time
from pathlib import Path

class Stuck:
    def __init__(self, note):
        self.note = note

    def __iter__(self):
        names = sorted(name for name in sys.modules if name.startswith("ipu_conformance"))
        Path(self.note + ".part").write_text(" ".join([multiprocessing.get_start_method(), *names]))
        Path(self.note + ".part").rename(self.note)
        time.sleep(1000)
        yield None
"""

PROGRAM = """
import sys, time
from stuck import Stuck
from ipu_conformance.emulator.poptorch.data.asynchronous import AsynchronousDataAccessor
from ipu_conformance.emulator.poptorch.options.enums import SharingStrategy

if __name__ == "__main__":
    open_ones = [
        AsynchronousDataAccessor(Stuck(name), early_preload=True, sharing_strategy=getattr(SharingStrategy, name))
        for name in ("ForkServer", "Fork")
    ]
    time.sleep(1000)
"""


def _until(condition: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(condition())


def _group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """A program with two loaders that are stuck in their datasets, in a group of processes of its own."""
    (tmp_path / "stuck.py").write_text(DATASET)
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path, start_new_session=True)
    yield process
    if not _group_is_gone(process.pid):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.timeout(180)
def test_a_terminated_program_leaves_no_process(program: subprocess.Popen, tmp_path: Path) -> None:
    """A worker imports its own module alone and forks workers of its own; no process outlives a terminated program."""
    notes = [tmp_path / name for name in ("ForkServer", "Fork")]
    assert _until(lambda: all(note.exists() for note in notes), 120), "the loaders never began"
    method, *imported = notes[0].read_text().split()
    program.terminate()
    program.wait()

    assert method == "fork"
    assert imported == [
        "ipu_conformance",
        "ipu_conformance.emulator",
        "ipu_conformance.emulator.poptorch",
        "ipu_conformance.emulator.poptorch.data",
        "ipu_conformance.emulator.poptorch.data.worker",
    ]
    assert _until(lambda: _group_is_gone(program.pid), 20), "processes are left"
