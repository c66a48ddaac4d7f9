"""What was found before is known: the kills of runs that were written down."""

from __future__ import annotations

import json

import pytest

from ipu_conformance.matrix import campaign
from ipu_conformance.matrix.table import MatrixError


def test_kills_are_read_from_runs(tmp_path):
    """A file's name begins with its framework; what passed or broke is no kill, nor is a line that was cut off."""
    runs = [
        {"fault": "slip:a:b", "case": "test_a.py::test_one", "verdict": "killed"},
        {"fault": "slip:a:b", "case": "test_a.py::test_two", "verdict": "broke"},
        {"fault": "slip:a:c", "case": "test_a.py::test_two", "verdict": "passed"},
        {"fault": "slip:a:b", "case": "test_a.py::test_three", "verdict": "killed"},
    ]
    path = tmp_path / "paddle.provoke0.jsonl"
    path.write_text("\n".join([*map(json.dumps, runs), '{"fault"']), encoding="utf-8")

    assert campaign.killers([path]) == {"paddle": {"slip:a:b": ["test_a.py::test_one", "test_a.py::test_three"]}}


def test_a_file_of_runs_that_is_not_there_is_refused(tmp_path):
    """Its name is said."""
    with pytest.raises(MatrixError, match=r"paddle\.x\.jsonl cannot be read"):
        campaign.killers([tmp_path / "paddle.x.jsonl"])


def test_a_file_of_runs_says_whose_they_are(tmp_path):
    """Its name begins with a framework's."""
    with pytest.raises(MatrixError, match=r"runs\.jsonl holds no runs: a name begins with one of poptorch"):
        campaign.recorded([tmp_path / "runs.jsonl"])


def test_a_slip_that_ended_the_process_is_not_tried_again(tmp_path):
    """What was begun and has no line broke the device; what has one is known."""
    job = tmp_path / "paddle.provoke0.json"
    note = {"fault": "slip:a:b", "case": "test_a.py::test_one", "verdict": "passed"}
    job.with_suffix(".jsonl").write_text(json.dumps(note) + "\n", encoding="utf-8")
    assert campaign._before(job) == [note]

    begun = {"fault": "slip:a:c", "case": "test_a.py::test_one"}
    job.with_suffix(".trying").write_text(json.dumps(begun), encoding="utf-8")
    first, last = campaign._before(job)
    assert first == note
    assert (last["fault"], last["case"], last["verdict"]) == ("slip:a:c", "test_a.py::test_one", "broke")

    job.with_suffix(".trying").write_text(json.dumps({**begun, "fault": "slip:a:b"}), encoding="utf-8")
    assert campaign._before(job) == [note]


def test_kills_that_do_not_come_again_are_told(tmp_path, monkeypatch):
    """A fault whose other killers notice it again is not lost; faults without kills are not tried."""
    known = {"slow": ["test_a.py::test_one", "test_a.py::test_two"], "lost": ["test_a.py::test_one"], "open": []}
    verdicts = {("slow", "test_a.py::test_one"): "killed"}
    monkeypatch.setattr(campaign, "published", lambda: {"paddle": known})

    def run(jobs, processes, say):
        for job in jobs:
            kills = json.loads(job.read_text(encoding="utf-8"))["candidates"]
            notes = [
                {"fault": fault, "case": case, "verdict": verdicts.get((fault, case), "passed")}
                for fault, cases in kills.items()
                for case in cases
            ]
            job.with_suffix(".jsonl").write_text("".join(f"{json.dumps(note)}\n" for note in notes), encoding="utf-8")

    monkeypatch.setattr(campaign, "_run", run)
    found = campaign.confirm(tmp_path, ["paddle"], 2, print)["paddle"]

    assert (found.faults, found.lost, found.kills) == (2, ["lost"], 3)
    unconfirmed = {(run["fault"], run["case"]) for run in found.unconfirmed}
    assert unconfirmed == {("slow", "test_a.py::test_two"), ("lost", "test_a.py::test_one")}

    every_other = campaign.confirm(tmp_path, ["paddle"], 2, print, one_in=2)["paddle"]
    assert every_other.faults == 1
