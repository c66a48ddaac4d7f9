"""What was found before is known: the kills of runs that were written down."""

from __future__ import annotations

import json

import pytest

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.matrix import campaign, session
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


@pytest.fixture
def confirming(monkeypatch):
    """A suite of two families, the second of which notices nothing, and what the catalogue and the matrix know."""
    known = {
        "slow": ["test_a.py::test_one[1]", "test_a.py::test_two"],
        "lost": ["test_a.py::test_one[1]"],
        "open": [],
        "gone": ["test_a.py::test_one[1]"],
        "slip:a:b": ["test_a.py::test_one[2]"],
    }
    killed = {
        ("slow", "test_a.py::test_one[1]"),
        ("slip:a:b", "test_a.py::test_one[2]"),
        ("new", "test_a.py::test_one[1]"),
    }
    described = {name: {"what": f"is {name}", "place": "plan"} for name in ("slow", "lost", "open", "new")}
    monkeypatch.setattr(campaign, "published", lambda: {"paddle": known})
    monkeypatch.setattr(catalogue, "load", lambda framework: None)
    monkeypatch.setattr(session, "described", lambda framework: described)

    def run(jobs, processes, say):
        for job in jobs:
            kills = json.loads(job.read_text(encoding="utf-8"))["candidates"]
            notes = [
                {
                    "fault": fault,
                    "case": case,
                    "verdict": "killed" if (fault, case) in killed else "passed",
                    "seconds": 2.0,
                }
                for fault, cases in kills.items()
                for case in cases
            ]
            job.with_suffix(".jsonl").write_text("".join(f"{json.dumps(note)}\n" for note in notes), encoding="utf-8")
            families = ["test_a.py::test_one", "test_a.py::test_two"]
            job.with_name("paddle.families.json").write_text(json.dumps(families), encoding="utf-8")

    monkeypatch.setattr(campaign, "_run", run)


def test_kills_that_do_not_come_again_are_told(tmp_path, confirming):
    """A fault whose other killers notice it again is not lost; faults without kills, or gone, are not tried."""
    found = campaign.confirm(tmp_path, ["paddle"], 2, print)["paddle"]

    assert (found.faults, found.lost, found.kills) == (3, ["lost"], 4)
    unconfirmed = {(run["fault"], run["case"]) for run in found.unconfirmed}
    assert unconfirmed == {("slow", "test_a.py::test_two"), ("lost", "test_a.py::test_one[1]")}

    every_other = campaign.confirm(tmp_path, ["paddle"], 2, print, one_in=2)["paddle"]
    assert every_other.faults == 2


def test_a_matrix_of_confirmed_kills_says_nothing_else(tmp_path, confirming):
    """Kills of the tables count beside the published ones; what did not come again survives, and families are idle."""
    claims = {"paddle": {"new": ["test_a.py::test_one[1]"], "slow": ["test_a.py::test_one[1]"]}}
    matrix = campaign.confirm(tmp_path, ["paddle"], 2, print, claims=claims)["paddle"].matrix

    kills = {fault: row.kills for fault, row in matrix.rows["paddle"].items()}
    assert kills == {
        "slow": ["test_a.py::test_one[1]"],
        "lost": [],
        "open": [],
        "new": ["test_a.py::test_one[1]"],
        "slip:a:b": ["test_a.py::test_one[2]"],
    }
    assert matrix.survivors("paddle") == ["lost", "open"]
    assert matrix.idle("paddle") == ["test_a.py::test_two"]
