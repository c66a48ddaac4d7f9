"""The display follows a journal: a table on a terminal, plain lines elsewhere."""

import io

import pytest

from ipu_conformance.report import display
from ipu_conformance.report.display import Display, Progress
from ipu_conformance.report.journal import FILE, Journal
from ipu_conformance.report.results import Result
from tests.unit.report.journals import CASES, entries, failed, passed


def fed(results, *, earlier=0):
    """The progress of a run with these results, the first of which are an earlier run's."""
    progress = Progress()
    for number, line in enumerate(entries(results, ended=False)):
        progress.feed(line, earlier=number < 2 + earlier)
    return progress


def test_before_the_plan_nothing_is_counted():
    """Collecting takes some seconds."""
    assert Progress().line(3.2) == "collecting cases, 3 s"
    assert Progress().table() == []


def test_a_line_has_counts_and_the_time_left():
    """What is left is computed from what the cases are expected to cost."""
    progress = fed([passed(CASES[4]), failed(CASES[3]), Result(CASES[5], "skipped", 0.0)])
    share = progress.share

    assert 0 < share < 1
    left = 90 * (1 - share) / share
    assert progress.line(90.0) == (
        f"3 of 7 cases ({share:.0%} of the work), 1 failed, 1 skipped, 1 min 30 s, about {display._time(left)} left"
    )


def test_repetitions_of_failed_cases_are_counted():
    """They may take longer than all cases, and a run that says nothing looks as if it hung."""
    progress = fed([failed(CASES[3])])
    for device in ("d0", "d1", "d2"):
        progress.feed({"kind": "repeats", "case": CASES[3], "devices": {device: ["failed", "passed"]}}, earlier=False)

    assert ", 1 failed, 6 repetitions on devices, 9 s" in progress.line(9.0)


def test_what_comes_before_the_cases_says_nothing_about_the_time_left():
    """Nor does the first of many cases, which imports its framework."""
    progress = Progress()
    progress.feed({"kind": "plan", "cases": [f"a/test_a.py::test_a[{number}]" for number in range(100)]}, earlier=False)
    progress.before = 60.0
    said = []
    for number in range(20):
        progress.feed(passed(f"a/test_a.py::test_a[{number}]").entry(), earlier=False)
        said.append(progress.line(60.0 + number + 1))

    assert said[0] == "1 of 100 cases (1% of the work), 0 failed, 1 min 1 s"
    assert said[-1] == "20 of 100 cases (20% of the work), 0 failed, 1 min 20 s, about 1 min 20 s left"


def test_what_an_earlier_run_did_says_nothing_about_the_time_left():
    """Its seconds are not this run's."""
    results = [passed(CASES[4]), passed(CASES[3]), passed(CASES[5])]

    assert "left" not in fed(results, earlier=3).line(2.0)
    assert "left" in fed(results, earlier=2).line(2.0)


def test_the_table_has_a_row_a_chapter_and_a_column_a_framework():
    """Cells count what is done, and what failed."""
    table = fed([passed(CASES[1]), failed(CASES[2])]).table()

    assert [line.split() for line in table] == [
        ["poptorch", "paddle"],
        ["feeding", "0/1"],
        ["ir", "0/1"],
        ["ops", "0/1", "0/1"],
        ["training", "2/2", "(1", "failed)", "0/1"],
    ]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def journal(tmp_path):
    """A journal that is being written."""
    written = Journal(tmp_path / FILE)
    yield written
    written.close()


def test_elsewhere_than_on_a_terminal_lines_are_plain(journal):
    """A failure is said at once, the state now and then, without any control characters."""
    stream = io.StringIO()
    shown = Display(journal.path, stream)
    for line in entries([passed(CASES[0]), failed(CASES[1])], ended=False):
        journal.append(line)
        shown.update()
    shown.update(last=True)

    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert f"FAILED {CASES[1]}: the loss of step 0, replica 2 differs: actual 1.5, expected 1.25." in lines
    assert lines[-1].startswith("2 of 7 cases (")
    assert len(lines) < 6


def test_the_end_is_said_once(journal):
    """What the last case has said already is not said again when pytest ends."""
    stream = io.StringIO()
    shown = Display(journal.path, stream)
    for line in entries([passed(case) for case in CASES]):
        journal.append(line)
    shown.update()
    shown.update(last=True)

    assert [line[:12] for line in stream.getvalue().splitlines()] == ["7 of 7 cases"]


def test_on_a_terminal_the_table_is_drawn_over(journal, monkeypatch):
    """The second picture takes the place of the first."""
    monkeypatch.setattr(display, "REDRAWN", 0.0)
    stream = Terminal()
    shown = Display(journal.path, stream)
    for line in entries([passed(CASES[0])], ended=False)[:2]:
        journal.append(line)
    shown.update()
    first = stream.getvalue()
    journal.append(passed(CASES[0]).entry())
    shown.update(last=True)

    assert "training  0/2       0/1\n" in first
    second = stream.getvalue()[len(first) :]
    assert second.startswith(f"\x1b[{len(first.splitlines())}A\x1b[J")
    assert "training  0/2       1/1\n" in second


def test_half_a_line_waits_for_its_other_half(tmp_path):
    """The writer may be in the middle of it."""
    written = Journal(tmp_path / FILE)
    for line in entries([passed(CASES[0])], ended=False):
        written.append(line)
    written.close()
    whole, path = written.path.read_bytes(), tmp_path / "growing.jsonl"
    shown = Display(path, io.StringIO())
    for end in (0, 100, len(whole) - 9, len(whole)):
        path.write_bytes(whole[:end])
        shown.update()

    assert list(shown.progress.done) == [CASES[0]]
