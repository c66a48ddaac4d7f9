"""Where cases are executed: what others have is left out, and what checks tell goes along with the reports."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any, Dict, Generator, Iterable, List, Mapping, Optional, Sequence, Tuple

import pytest

from ipu_conformance import notes
from ipu_conformance.cases import case_id, frameworks_of, why_left_out
from ipu_conformance.check.failure import CheckFailure
from ipu_conformance.report import mandatory, sharding
from ipu_conformance.report.results import CHECK, ERROR, TIME_LIMIT
from ipu_conformance.report.verdict import NOT_COVERED
from ipu_conformance.selection import Selection
from ipu_conformance.suite_files import in_suite, suite_folder

MOST_SLOTS = 160
"""Slots of a timeline; a longer one is a picture that nobody can read."""
FINISHED = "ipu_finished"
WHOLE = "ipu_whole"
LEFT_OUT = "ipu_left_out_mandatory"


def id_of(item: pytest.Item) -> str:
    """The id of a case: below the suite's folder, or pytest's own for a case of somebody else."""
    return case_id(item) if in_suite(item.path) else item.nodeid


def id_of_nodeid(nodeid: str, path: Path) -> str:
    """The same from pytest's id and the file of the case."""
    _, separator, name = nodeid.partition("::")
    if not in_suite(path):
        return nodeid
    return f"{path.relative_to(suite_folder()).as_posix()}{separator}{name}"


class Listening:
    """What happens where cases are executed."""

    def __init__(
        self, config: pytest.Config, selection: Selection, shard: Optional[sharding.Shard], finished: Iterable[str]
    ) -> None:
        self.config, self.selection, self.shard = config, selection, shard
        self.finished = frozenset(finished)
        self.whole: Dict[str, Any] = {}
        self.left_out: Dict[str, str] = {}
        self._mandatory = mandatory.shipped().cases
        self._aside = False
        self._heard: Dict[str, List[Any]] = {}

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Keep the reason why a mandatory case does not run."""
        if self._aside:
            return
        for item in items:
            case = id_of(item)
            if case in self._mandatory:
                self.left_out[case] = self._why_left_out(item)

    def _why_left_out(self, item: pytest.Item) -> str:
        missing = [marker.args[0] for marker in item.iter_markers("requires") if not _importable(marker.args[0])]
        if missing:
            return f"{NOT_COVERED}{missing[0]}"
        why = why_left_out(item, self.selection)
        return f"they {why}" if why else "the command line left them out (-k, -m or --deselect)"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: List[pytest.Item]) -> None:
        """Keep this shard's cases, and of these what no earlier run has finished."""
        cases = {id(item): id_of(item) for item in items if item.get_closest_marker("ipu") is not None}
        self.whole = {"count": len(cases), "digest": mandatory.digest_of(cases.values())}
        mine = set(cases.values())
        if self.shard is not None:
            mine = sharding.part(sorted(mine), self.shard)
        mine -= self.finished
        kept = [item for item in items if id(item) not in cases or cases[id(item)] in mine]
        dropped = [item for item in items if id(item) in cases and cases[id(item)] not in mine]
        if dropped:
            self._aside = True
            config.hook.pytest_deselected(items=dropped)
            self._aside = False
            items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Hear what the checks of a case tell."""
        self._heard = {}
        with notes.heard_by(lambda kind, facts: self._heard.setdefault(kind, []).append(facts)):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Send along why a case failed, in a sentence, and what was heard."""
        report = yield
        if report.failed and call.excinfo is not None:
            report.ipu_failure = list(_failure(call.excinfo))
        if report.when == "call" or (report.when == "setup" and report.failed):
            report.ipu_notes = _summed_up(self._heard)
            if report.failed and in_suite(item.path):
                report.ipu_notes["program"] = self._program(item)
        return report

    def _program(self, item: pytest.Item) -> str:
        """The program that shows a failed case alone; empty where it needs pytest itself."""
        from ipu_conformance.report.alone import calls, programs, slices

        choices = {name: self.selection.choice(name) for name in frameworks_of(item)}
        targets = {name: str(choice.target) for name, choice in choices.items() if choice is not None}
        if self._heard.get("call"):
            ((framework, target),) = targets.items()
            return calls.program(self._heard["call"][-1], framework, target)
        try:
            return programs.program(item, targets)
        except slices.UnslicedError:
            return ""

    def pytest_sessionfinish(self) -> None:
        """A worker hands in what only it knows."""
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[WHOLE] = self.whole
            self.config.workeroutput[LEFT_OUT] = self.left_out


def _importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _failure(excinfo: pytest.ExceptionInfo[BaseException]) -> Tuple[str, str]:
    """The cause and the sentence of a failure."""
    said = str(excinfo.value).strip().splitlines()
    first = said[0] if said else ""
    if isinstance(excinfo.value, CheckFailure):
        return CHECK, first
    if first.startswith("Timeout"):
        return TIME_LIMIT, f"the case was not done within its time limit ({first})"
    if isinstance(excinfo.value, AssertionError):
        return CHECK, first or "an assertion of the case does not hold"
    return ERROR, f"{type(excinfo.value).__name__}: {first}" if first else type(excinfo.value).__name__


def _summed_up(heard: Mapping[str, Sequence[Any]]) -> Dict[str, Any]:
    """The tightest margin of a case, its curves, and its timelines that can be drawn, as plain data."""
    result: Dict[str, Any] = {}
    margins = heard.get("margin", ())
    if margins:
        tightest = max(margins, key=lambda each: each["used"])
        result["margin"] = {"used": _rounded(tightest["used"]), "what": tightest["what"], "checks": len(margins)}
    for kind, word in (("curve", "curves"), ("ir", "graphs")):
        if heard.get(kind):
            result[word] = list(heard[kind])
    if heard.get("devices"):
        result["devices"] = heard["devices"][-1]
    timelines = [each for each in heard.get("timeline", ()) if len(each["slots"]) <= MOST_SLOTS]
    if timelines:
        result["timelines"] = timelines[:1]
    return result


def _rounded(value: float) -> float:
    """A share of a tolerance, which is a number that JSON has."""
    return float(f"{value:.4g}") if math.isfinite(value) else 1e300
