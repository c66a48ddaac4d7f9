"""The matrix says of every fault who noticed it, and of every family of cases what it notices."""

from __future__ import annotations

import pytest

from ipu_conformance.matrix import table
from ipu_conformance.matrix.page import page
from ipu_conformance.matrix.table import MatrixError

FAULTS = {name: {"what": name, "place": "ir.graph"} for name in ("seen", "crashing", "unseen")}
CASES = ["paddle/test_a.py::test_one[x]", "paddle/test_a.py::test_one[y]", "paddle/test_a.py::test_two"]
RUNS = [
    {"fault": "seen", "case": "paddle/test_a.py::test_two", "verdict": "passed", "seconds": 1.0},
    {"fault": "seen", "case": "paddle/test_a.py::test_one[x]", "verdict": "killed", "seconds": 2.0},
    {"fault": "seen", "case": "paddle/test_a.py::test_one[y]", "verdict": "killed", "seconds": 4.0},
    {"fault": "crashing", "case": "paddle/test_a.py::test_two", "verdict": "broke", "seconds": 1.0},
    {"fault": "unseen", "case": "paddle/test_a.py::test_two", "verdict": "passed", "seconds": 1.0},
]


def _matrix():
    return table.gathered("paddle", FAULTS, CASES, RUNS)


def test_a_crash_is_no_kill():
    """A fault under which cases only crash survives, and is listed apart."""
    matrix = _matrix()

    assert matrix.survivors("paddle") == ["crashing", "unseen"]
    assert matrix.crashed_only("paddle") == ["crashing"]


def test_a_fault_that_a_device_cannot_have_is_no_survivor():
    """It is spared, with the reason."""
    matrix = _matrix()
    matrix.rows["paddle"]["unseen"].spared = "Paddle has no such thing"

    assert matrix.survivors("paddle") == ["crashing"]
    assert "cannot occur: Paddle has no such thing" in page(matrix)


def test_a_slip_counts_where_it_was_noticed():
    """Many are tried to provoke a case, and those that it passes under prove nothing."""
    slips = [
        {"fault": "slip:a:f", "case": "paddle/test_a.py::test_two", "verdict": "passed", "seconds": 1.0},
        {"fault": "slip:a:g", "case": "paddle/test_a.py::test_two", "verdict": "killed", "seconds": 1.0},
    ]
    matrix = table.gathered("paddle", FAULTS, CASES, [*RUNS, *slips])

    assert matrix.idle("paddle") == []
    assert "slip:a:g" in matrix.rows["paddle"]
    assert "slip:a:f" not in matrix.rows["paddle"]


def test_families_without_a_kill_are_named():
    """A family is a test function with all its parameters; its time is their sum."""
    matrix = _matrix()

    assert matrix.killing("paddle") == {"paddle/test_a.py::test_one": ["seen"], "paddle/test_a.py::test_two": []}
    assert matrix.idle("paddle") == ["paddle/test_a.py::test_two"]
    assert matrix.families["paddle"] == ["paddle/test_a.py::test_one", "paddle/test_a.py::test_two"]


def test_the_time_to_the_first_kill_counts_what_passed_before():
    """Runs after the first kill cost nothing more."""
    assert _matrix().rows["paddle"]["seen"].seconds == 3.0


def test_a_matrix_comes_back_from_its_file(tmp_path):
    """What is written is read again."""
    table.write(_matrix(), tmp_path / "matrix.json")

    assert table.read(tmp_path / "matrix.json") == _matrix()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "holds no matrix"), ("[]", "holds no matrix"), ('{"version": 9}', "has version 9"),
     ('{"version": 2, "rows": {"paddle": {"a": {"size": 3}}}}', "holds no matrix")],
)  # fmt: skip
def test_a_file_that_holds_no_matrix_is_one_sentence(text, sentence, tmp_path):
    """A damaged file, or one of another version, is refused."""
    path = tmp_path / "matrix.json"
    path.write_text(text)

    with pytest.raises(MatrixError, match=sentence):
        table.read(path)


def test_a_missing_file_says_how_to_make_it(tmp_path):
    """The command is named."""
    with pytest.raises(MatrixError, match="faults matrix"):
        table.read(tmp_path / "matrix.json")


def test_the_page_names_faults_cases_and_survivors():
    """A fault stands beside the case that notices it; a family without a kill and a survivor are said to be such."""
    text = page(_matrix())

    assert "<code>paddle/test_a.py::test_one[x]</code>" in text
    assert text.count("no case") == 2
    assert "none known" in text


def test_a_matrix_grows_by_runs_that_were_made_since():
    """Kills are added once, a new fault gets a row, a new family is known, and a fault that is gone has none left."""
    since = [
        {"fault": "seen", "case": "paddle/test_a.py::test_one[y]", "verdict": "killed", "seconds": 4.0},
        {"fault": "unseen", "case": "paddle/test_a.py::test_two", "verdict": "killed", "seconds": 1.5},
        {"fault": "new", "case": "paddle/test_b.py::test_three[z]", "verdict": "killed", "seconds": 0.5},
        {"fault": "renamed", "case": "paddle/test_a.py::test_two", "verdict": "killed", "seconds": 0.5},
    ]
    faults = {**{name: FAULTS[name] for name in ("seen", "unseen")}, "new": {"what": "new", "place": "plan.slots"}}

    before = _matrix()
    grown = table.grown(before, "paddle", faults, since)

    assert {name: row.kills for name, row in grown.rows["paddle"].items()} == {
        "seen": ["paddle/test_a.py::test_one[x]", "paddle/test_a.py::test_one[y]"],
        "unseen": ["paddle/test_a.py::test_two"],
        "new": ["paddle/test_b.py::test_three[z]"],
    }
    assert grown.idle("paddle") == []
    assert set(grown.families["paddle"]) == {*before.families["paddle"], "paddle/test_b.py::test_three"}
    assert before == _matrix()


def test_a_matrix_without_a_framework_grows_by_it():
    """The others stay as they were."""
    grown = table.grown(_matrix(), "poptorch", FAULTS, [{**RUNS[1], "case": "poptorch/test_c.py::test_four"}])

    assert grown.rows["paddle"] == _matrix().rows["paddle"]
    assert grown.killing("poptorch") == {"poptorch/test_c.py::test_four": ["seen"]}
