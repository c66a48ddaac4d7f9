"""A run of the checkout leaves nothing behind: no process, no temporary file; nor does one that SIGTERM ends."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import os, pathlib, subprocess, tempfile, time

import pytest

from tests.unit.commands import Forks


@pytest.fixture(scope="session", autouse=True)
def forks():
    processes = Forks("json")
    yield
    processes.close()


@pytest.mark.parametrize("number", range(3))
def test_that_leaves_files(number, tmp_path):
    tempfile.mkstemp()
    (tmp_path / "file").touch()
    if float(os.environ["SECONDS_OF_A_TEST"]):
        global started
        started = subprocess.Popen(["sleep", "600"])
    pathlib.Path(os.environ["READY"], str(os.getpid())).touch()
    time.sleep(float(os.environ["SECONDS_OF_A_TEST"]))
"""
PATIENCE = """
from xdist.workermanage import NodeManager

NodeManager.EXIT_TIMEOUT = 1
"""
"""How long pytest-xdist waits for a worker that is in the middle of a test, and is not told, before it ends it: else
ten seconds."""
GRACE = 60
"""Seconds in which a run that is told to end does; it takes a few."""


def processes_of(session):
    """The processes of a session that have not ended, with their command lines."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that ends meanwhile
            state, _, _, number = stat.read_text().rpartition(")")[2].split()[:4]
            if int(number) == session and state != "Z":
                found[stat.parent.name] = stat.with_name("cmdline").read_text().replace("\0", " ")
    return found


def _hear_hangups():
    """Under nohup a process ignores SIGHUP, and so do all that it starts."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Run:
    """A run of pytest in a session of its own, whose tests take so many seconds each."""

    def __init__(self, folder, seconds, *arguments):
        for name in ("ready", "temporary"):
            (folder / name).mkdir(parents=True)
        shutil.copy(ROOT / "conftest.py", folder)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_leaving.py").write_text(TESTS)
        (folder / "patience.py").write_text(PATIENCE)
        self.folder, self.temporary = folder, folder / "temporary"
        variables = {"TMPDIR": str(self.temporary), "READY": str(folder / "ready"), "SECONDS_OF_A_TEST": str(seconds)}
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            env={**os.environ, **variables, "PYTHONPATH": path},
            cwd=folder, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=_hear_hangups,
        )  # fmt: skip

    def wait_for_a_test(self):
        """Wait until a process is inside a test."""
        end = time.monotonic() + GRACE
        while not any((self.folder / "ready").iterdir()):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end, "no test has begun"
            time.sleep(0.05)

    def end(self):
        """How the run ended, and what it left: exit code, output, processes and temporary files."""
        shown, _ = self.process.communicate(timeout=GRACE)
        left = processes_of(self.process.pid)
        return self.process.returncode, shown, left, [path.name for path in self.temporary.iterdir()]

    def kill(self):
        """End whatever is left."""
        for number in processes_of(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def start(tmp_path):
    """Starts runs, and ends those that a failed test leaves."""
    runs = []

    def begin(*arguments, seconds):
        runs.append(Run(tmp_path / str(len(runs)), seconds, *arguments))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look for processes")
def test_a_run_leaves_nothing_behind(start):
    """At its end, and where a signal ends the master of workers or all processes in the middle of a test.

    What a test has started goes too, though its worker is killed and cannot end it.
    """
    whole, group = (start("-n", "1", seconds=seconds) for seconds in (0, 600))
    master = start("-n", "1", "-p", "patience", seconds=600)
    for run in (master, group):
        run.wait_for_a_test()
    master.process.send_signal(signal.SIGTERM)
    os.killpg(group.process.pid, signal.SIGHUP)

    code, shown, *left = whole.end()
    assert (code, left) == (0, [{}, []]), shown
    assert "3 passed" in shown
    for run, number in ((master, signal.SIGTERM), (group, signal.SIGHUP)):
        code, shown, *left = run.end()
        assert (code, left) == (128 + number, [{}, []]), shown
