"""A case on a wrong device that goes on for ever is stopped, and the device broke."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from ipu_conformance.matrix import session
from ipu_conformance.matrix.verdict import Verdict, of_exception


def _never_ending():
    while True:
        pass


def test_a_case_that_never_ends_is_stopped():
    """It is no kill: nobody knows what the case would have said."""
    with pytest.raises(session.TimeUpError, match=r"stopped after 0\.05 s") as info, session.limited(0.05):
        _never_ending()

    assert of_exception(info.value, Path("/suite")) is Verdict.BROKE


def test_the_limit_is_gone_afterwards():
    """Signals are handled as before."""
    before = signal.getsignal(signal.SIGALRM)
    with session.limited():
        assert signal.getsignal(signal.SIGALRM) is not before

    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


class _Device:
    """Stands for the loop: gives one outcome after another."""

    def __init__(self, *verdicts):
        self._verdicts = list(verdicts)

    def run(self, case, limit=1.0):
        return session.Outcome(self._verdicts.pop(0), 0.25, "3 is not 4")


@pytest.mark.parametrize(
    ("verdicts", "counted"),
    [
        ([Verdict.PASSED], Verdict.PASSED),
        ([Verdict.KILLED, Verdict.PASSED], Verdict.KILLED),
        ([Verdict.BROKE, Verdict.PASSED], Verdict.BROKE),
    ],
    ids=["passed", "killed", "broke"],
)
def test_a_failure_counts_if_the_case_passes_afterwards(tmp_path, verdicts, counted):
    """The line says what became of the run under the fault."""
    path = tmp_path / "paddle.provoke0.jsonl"
    loop: Any = _Device(*verdicts)
    with path.open("w", encoding="utf-8") as out:
        assert session.attempt(loop, "update-halved", "test_a.py::test_one", out) is counted

    assert json.loads(path.read_text(encoding="utf-8"))["verdict"] == counted


def test_a_fault_that_leaves_something_behind_spoils_the_process(tmp_path):
    """The failure is no kill, and nothing more is said of any fault."""
    path = tmp_path / "paddle.provoke0.jsonl"
    loop: Any = _Device(Verdict.KILLED, Verdict.KILLED)
    said = "update-halved left something"
    with path.open("w", encoding="utf-8") as out, pytest.raises(session.SpoiledError, match=said):
        session.attempt(loop, "update-halved", "test_a.py::test_one", out)

    note = json.loads(path.read_text(encoding="utf-8"))
    assert note["verdict"] == "broke"
    assert note["sentence"].startswith("the case fails without the fault as well")


def test_every_kill_that_is_claimed_is_tried_once(tmp_path, monkeypatch):
    """What was tried before the process was spoiled is not tried again; a case or a function that is gone is said."""
    loop: Any = _Device(Verdict.KILLED, Verdict.PASSED, Verdict.PASSED)
    loop.cases = dict.fromkeys(["test_a.py::test_one", "test_a.py::test_two"])
    monkeypatch.setattr(session, "wake", lambda framework: None)
    monkeypatch.setattr(session, "pytest_session", lambda paths, framework, work: work(loop))
    kills = {
        "update-halved": ["test_a.py::test_one", "test_a.py::test_two", "test_a.py::test_gone"],
        "known": ["test_a.py::test_one"],
        "slip:core.streams:gone": ["test_a.py::test_one"],
    }
    path = tmp_path / "paddle.confirm0.jsonl"
    with path.open("w", encoding="utf-8") as out:
        families = session.confirm("paddle", kills, out, [{"fault": "known", "case": "test_a.py::test_one"}])

    assert families == ["test_a.py::test_one", "test_a.py::test_two"]
    verdicts = {(run["fault"], run["case"]): run["verdict"] for run in session.lines(path)}
    assert verdicts == {
        ("update-halved", "test_a.py::test_one"): "killed",
        ("update-halved", "test_a.py::test_two"): "passed",
        ("update-halved", "test_a.py::test_gone"): "skipped",
        ("slip:core.streams:gone", "test_a.py::test_one"): "skipped",
    }
