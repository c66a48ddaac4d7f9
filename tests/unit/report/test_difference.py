"""Two reports are compared: verdicts and outcomes, and apart from them margins and times."""

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report.difference import difference
from tests.unit.report.journals import CASES, entries, failed, passed
from tests.unit.report.test_folder import MARGIN, sealed


def test_a_difference_names_verdicts_outcomes_margins_and_times(tmp_path):
    """A difference of results is told from one of times."""
    before = sealed(tmp_path / "a", entries([passed(CASES[0], margin=MARGIN), *map(passed, CASES[1:])]))
    wide = {**MARGIN, "used": 0.75}
    after = sealed(
        tmp_path / "b",
        entries(
            [passed(CASES[0], margin=wide), passed(CASES[1], seconds=3.5), failed(CASES[2]), *map(passed, CASES[3:])]
        ),
    )

    found = difference(*map(report_folder.read_report, (before, after)))

    assert found.results_differ
    assert found.lines == [
        "verdict: QUALIFIED -> NOT QUALIFIED",
        f"{CASES[2]}: passed -> failed (the loss of step 0, replica 2 differs: actual 1.5, expected 1.25.)",
        f"{CASES[0]}: uses 75% of its tolerance, was 25%",
        f"{CASES[1]}: 3.50 s, was 0.50 s",
        "time of all cases: 6.2 s, was 3.5 s",
    ]


def test_equal_results_are_said_to_be(tmp_path):
    """And the times."""
    folder = sealed(tmp_path, entries([*map(passed, CASES[1:]), failed(CASES[0])]))
    found = difference(*[report_folder.read_report(folder)] * 2)

    verdict = "the same verdict and outcomes: NOT QUALIFIED, 7 cases"
    assert found == ([verdict, "time of all cases: 3.2 s, was 3.2 s"], False)
