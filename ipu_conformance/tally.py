"""What became of the cases of a run, and the rule that a run which proves nothing has failed."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set

import pytest

from ipu_conformance.notes import NOT_SHOWN
from ipu_conformance.selection import Selection
from ipu_conformance.workers.scheduling import framework_of


def area_of(nodeid: str) -> str:
    """The area of the suite that a case belongs to: its framework, and its file's name without test_ and the ending."""
    framework, name = framework_of(nodeid), _name_of_file(nodeid.partition("::")[0])
    return name if framework is None else f"{framework} {name}"


@functools.lru_cache(maxsize=None)
def _name_of_file(path: str) -> str:
    stem = Path(path).stem
    return stem[len("test_") :] if stem.startswith("test_") else stem


def complaints(
    executed: Mapping[str, int], skipped: Mapping[str, int], left_out: Mapping[str, int] = MappingProxyType({})
) -> List[str]:
    """Why a run with these numbers of cases by area proves nothing, in sentences; empty if it proves something.

    ``left_out`` counts, by reason, the cases that were collected and did not belong to the run.
    """
    if not executed:
        if skipped:
            return [f"No case was executed: all {sum(skipped.values())} were skipped."]
        reasons = ", ".join(f"{count} that {why}" for why, count in sorted(left_out.items()))
        return [f"No case was executed: left out were {reasons}." if reasons else "No case was executed."]
    return [
        f"Area {area!r} was not tested: every case of it was skipped ({count})."
        for area, count in sorted(skipped.items())
        if area not in executed
    ]


def first_line(report: Any) -> str:
    """What a failure says in its first line, without the module of its exception."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash is not None else str(report.longrepr)).strip().splitlines()
    return re.sub(r"^(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_]\w*(?:: |$))", "", lines[0]) if lines else ""


def why_skipped(report: Any) -> str:
    """The reason that a skipped case gives."""
    said = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
    return str(said)[len("Skipped: ") :] if str(said).startswith("Skipped: ") else str(said)


class Tally:
    """Counts the cases of one run by area; a plug-in of its own, registered by the suite's."""

    def __init__(self, config: pytest.Config, selection: Callable[[], Selection]) -> None:
        self.config = config
        self.selection = selection
        self.executed: Dict[str, int] = {}
        self.skipped: Dict[str, int] = {}
        self.hidden: Dict[str, int] = {}
        """Cases skipped for want of what the vendor's API does not show, by reason."""
        self.left_out: Dict[str, int] = {}
        self.own: Sequence[pytest.Item] = ()
        """The cases that do not belong to the run."""
        self.deselected = 0
        """Cases that belong to the run and that the command line leaves out."""
        self.failed: Dict[str, str] = {}
        self.anything = False
        """Whether any test was run, of whatever kind."""
        self.selected: Set[str] = set()
        self.finished: Set[str] = set()
        self.lost: Dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which tests the run has selected; the master of workers has no items of its own."""
        self.selected.update(item.nodeid for item in session.items)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count what others leave out than this project."""
        if items is not self.own:
            self.deselected += sum(item.get_closest_marker("ipu") is not None for item in items)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Note the end of a test."""
        self.finished.add(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of one conformance case; a failed set-up counts as executed."""
        self.anything = True
        lost = getattr(report.longrepr, "lost", None)
        if lost is not None:
            self.lost[report.nodeid] = str(lost)
            self.finished.add(report.nodeid)
            return
        if "ipu" not in report.keywords:
            return
        if report.failed:
            self.failed.setdefault(report.nodeid, first_line(report))
        if report.skipped and not hasattr(report, "wasxfail"):
            self.count(report.nodeid, skipped=True, why=why_skipped(report))
        elif report.when == "call" or (report.failed and report.when == "setup"):
            self.count(report.nodeid, skipped=False)

    def count(self, nodeid: str, *, skipped: bool, why: str = "") -> None:
        """Count one case; ``why`` says why it was skipped."""
        if skipped and why.startswith(NOT_SHOWN) and self._may_hide(framework_of(nodeid)):
            self.hidden[why] = self.hidden.get(why, 0) + 1
            return
        area, counts = area_of(nodeid), self.skipped if skipped else self.executed
        counts[area] = counts.get(area, 0) + 1

    def _may_hide(self, framework: Optional[str]) -> bool:
        """Whether the target of a framework need not show more than the vendor's API does."""
        choice = self.selection().choice(framework) if framework is not None else None
        return choice is not None and choice.kind != "emulator"

    def is_about_ipu(self) -> bool:
        """Whether the run was meant to execute conformance cases."""
        if self.config.getoption("collectonly"):
            return False
        expression = (self.config.getoption("markexpr") or "").replace("(", " ").replace(")", " ").split()
        if "ipu" in expression or self.executed or self.skipped or self.hidden:
            return True
        return bool(self.left_out) and not self.anything  # what was asked for does not belong to the run

    @property
    def tested(self) -> Dict[str, int]:
        """How many cases of each area were executed, to their end or until they were lost."""
        result = dict(self.executed)
        for nodeid in self.lost:
            result[area_of(nodeid)] = result.get(area_of(nodeid), 0) + 1
        return result

    def complaints(self) -> List[str]:
        """Why a run that has failed no case has failed, in sentences; empty if it has passed."""
        by_hand = {"the command line leaves out (-k, -m, --deselect or a shard)": self.deselected}
        left_out = {**self.left_out, **(by_hand if self.deselected else {})}
        found = complaints(self.tested, self.skipped, left_out)
        if not self.selection().frameworks:
            found.append("No framework can run, so no device was tested; see `ipu-conformance doctor`.")
        left = self.selected - self.finished
        if left:
            found.append(
                f"The run ended early: {len(self.selected) - len(left)} of {len(self.selected)} selected tests "
                f"have finished; {min(left)} is among those that have not."
            )
        return found

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run that proves nothing; a worker only hands in what it left out."""
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["ipu_left_out"] = self.left_out, self.deselected
        elif exitstatus == pytest.ExitCode.OK and self.is_about_ipu() and self.complaints():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Say what was executed, what was left out, and why a run that proves nothing has failed."""
        if not self.is_about_ipu():
            return
        terminalreporter.section("IPU conformance")
        lost = f"{len(self.lost)} of them lost, " if self.lost else ""
        terminalreporter.line(
            f"cases: {sum(self.tested.values())} executed, {lost}"
            f"{sum(self.skipped.values()) + sum(self.hidden.values())} skipped, "
            f"{sum(self.left_out.values())} left out; areas tested: {len(self.tested)}"
        )
        for why, count in sorted(self.left_out.items()):
            terminalreporter.line(f"left out: {count} that {why}")
        for why, count in sorted(self.hidden.items()):
            terminalreporter.line(f"not covered: {count} skipped: {why}")
        for nodeid, sentence in self.failed.items():
            terminalreporter.line(f"failed: {nodeid}: {sentence}", red=True)
        for nodeid, how in sorted(self.lost.items()):
            terminalreporter.line(f"lost: {nodeid}: {how}", red=True)
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            for complaint in self.complaints():
                terminalreporter.line(f"FAILED: {complaint}", red=True)


TALLY = pytest.StashKey[Tally]()
