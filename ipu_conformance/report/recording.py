"""Writes the journal and the folder while pytest runs: a plug-in of its own, registered where a report is wanted.

In each process that executes cases ``Listening`` leaves out what another shard or an earlier run has, hears what checks
tell, and sends it along with pytest's reports. ``Recorder`` alone writes: it is in the process that started the run.
"""

from __future__ import annotations

import datetime
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set

import pytest

from ipu_conformance import __version__, levels
from ipu_conformance.asking import SELECTION, matches_cases_only, path_of
from ipu_conformance.errors import ConformanceError
from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import mandatory, schema, sharding
from ipu_conformance.report.environment import devices, environment
from ipu_conformance.report.journal import FILE, Journal, JournalError
from ipu_conformance.report.listening import FINISHED, LEFT_OUT, WHOLE, Listening, id_of_nodeid
from ipu_conformance.report.repetitions import repeats_of
from ipu_conformance.report.results import CRASH, ERROR, FAILED, NEUTRAL, PASSED, SKIPPED, Result, result_of
from ipu_conformance.report.verdict import Verdict
from ipu_conformance.selection import Selection
from ipu_conformance.suite_files import in_suite, suite_digest, suite_folder
from ipu_conformance.tally import TALLY, why_skipped
from ipu_conformance.targets import discover
from ipu_conformance.workers.leases import JOINED

MOST_LOST = 20
"""Programs of cases that took their process with them: to write one takes a second."""
MOST_DETAILS = 20_000
"""Characters of a failure's trace that are kept, the last ones."""


def register(config: pytest.Config) -> None:
    """Begin to record; a folder that is in use, holds another run, or cannot be written is refused."""
    selection = config.stash[SELECTION]
    shard = sharding.parse(config.getoption("ipu_shard"))
    handed_down = getattr(config, "workerinput", None)
    if handed_down is not None:
        finished = frozenset(handed_down.get(FINISHED, ()))
        config.pluginmanager.register(Listening(config, selection, shard, finished), "ipu_conformance_listening")
        return
    place = config.invocation_params.dir / config.getoption("ipu_report")
    waivers = config.getoption("ipu_waivers")
    run = run_facts(selection, shard, mandatory.waivers(config.invocation_params.dir / waivers) if waivers else ())
    recorder = Recorder(config, place, run, environment(selection), resume=config.getoption("ipu_resume"))
    recorder.listening = Listening(config, selection, shard, recorder.finished)
    config.pluginmanager.register(recorder.listening, "ipu_conformance_listening")
    config.pluginmanager.register(recorder, "ipu_conformance_recorder")
    if config.pluginmanager.has_plugin("xdist"):
        config.pluginmanager.register(_XdistHooks(recorder), "ipu_conformance_recorder_xdist")
    config.add_cleanup(recorder.close)


def run_facts(
    selection: Selection, shard: Optional[sharding.Shard], waivers: Sequence[mandatory.Waiver]
) -> Dict[str, Any]:
    """What two runs have in common that may be one: the first line of the journal."""
    listed = mandatory.shipped()
    return {
        "ipu_conformance": __version__,
        "target": selection.wanted_target,
        "level": selection.level,
        "frameworks": devices(selection),
        "count": selection.count,
        "shard": "" if shard is None else str(shard),
        "suite": suite_digest(suite_folder()),
        "mandatory": {"digest": listed.digest, "cases": sorted(listed.cases)},
        "advisory": dict(mandatory.advisory().rows),
        "waivers": [waiver.facts() for waiver in waivers],
    }


class Recorder:
    """Writes a line as each case ends, and the folder when the run does."""

    def __init__(
        self,
        config: pytest.Config,
        place: Path,
        run: Mapping[str, Any],
        where: Mapping[str, Any],
        *,
        resume: bool,
    ) -> None:
        self.config, self.place, self.run, self.where = config, place, run, where
        self.journal = Journal(place / FILE)
        self.verdict: Optional[Verdict] = None
        self.problem = ""
        self.listening: Optional[Listening] = None
        self.whole: Mapping[str, Any] = {}
        self.left_out: Dict[str, str] = {}
        self._planned: Dict[str, str] = {}
        self._phases: Dict[str, List[Any]] = {}
        self._not_collected: List[str] = []
        self._broken = ""
        self._process = os.getpid()
        self._causes: Dict[str, str] = {}
        self._begun = self._refused = False
        self._lost = 0
        try:
            self._go_on(resume)
        except ConformanceError:
            self.journal.close()
            raise

    def _go_on(self, resume: bool) -> None:
        """Take up what an earlier run left, which must have been about the same."""
        entries = self.journal.entries
        if entries and not resume:
            raise JournalError(f"{self.place} holds a report; go on with it (--resume), or choose another folder.")
        schema.require_journal(entries, str(self.journal.path))
        begun = next((entry for entry in entries if entry["kind"] == "begin"), None)
        if begun is not None:
            other = report_folder.changed(begun, {"run": self.run, "environment": self.where})
            for word, values in other.items():
                before, now = map(report_folder.shown, values)
                raise JournalError(
                    f"{self.place} was begun with another {word}: {before}, not {now}; choose another folder."
                )
        self._before = _without_interrupted(entries, self.run)
        self._read = len(entries)
        self._causes = _causes(self._before)
        self.earlier = [entry for entry in self._before if entry["kind"] == "case"]
        self.finished = {entry["case"] for entry in self.earlier}
        self._promised: Set[str] = {case for entry in entries if entry["kind"] == "plan" for case in entry["cases"]}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Count what an earlier run has executed."""
        tally = self.config.stash[TALLY]
        for entry in self.earlier:
            skipped = entry["outcome"] == SKIPPED
            tally.count(entry["case"], skipped=skipped, why=entry.get("sentence", ""))

    def _begin(self) -> None:
        """Write where the run takes place: from here on the folder is not sealed until its end."""
        self._begun = True
        (self.place / report_folder.MANIFEST).unlink(missing_ok=True)
        self._write({"kind": "begin", "at": _now(), "run": self.run, "environment": self.where})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write down what is to run, where cases run in this process."""
        self.plan(item.nodeid for item in session.items if item.get_closest_marker("ipu") is not None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what could not be collected, and why."""
        if report.failed:
            why = (report.longreprtext.strip().splitlines() or ["no reason is given"])[-1]
            self._not_collected.append(f"{report.nodeid} could not be collected ({re.sub('^E +', '', why)})")

    def pytest_internalerror(self, excrepr: Any) -> None:
        """Keep why pytest broke off."""
        crash = getattr(excrepr, "reprcrash", None)
        self._broken = str(getattr(crash, "message", excrepr)).strip().partition("\n")[0]

    def plan(self, nodeids: Iterable[str]) -> None:
        """Write down which cases are to run; those of a run that is gone on with must be the rest of it."""
        self._planned = {nodeid: id_of_nodeid(nodeid, path_of(nodeid, self.config)) for nodeid in nodeids}
        cases = set(self._planned.values())
        if self._promised and cases != self._promised - self.finished:
            self._refused = True
            other = sorted(cases ^ (self._promised - self.finished))[0]
            raise pytest.UsageError(f"{self.place} was begun with other cases, such as {other}; choose another folder.")
        self._begin()
        if not self._promised:
            self._write({"kind": "plan", "at": _now(), "cases": sorted(cases)})

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write a case's line with the report of its last phase, or of its worker's crash."""
        case = self._planned.get(report.nodeid)
        if case is None:
            return
        self._take_over()
        if report.when == "repeats":
            self._write_repeats(case, report.ipu_repeats, report.ipu_repeats_left)
            return
        if _is_lost(report) and self._causes.get(case, CRASH) != CRASH:
            # The case had failed, and a device on which it was repeated took the process with it.
            self._write_repeats(case, {JOINED.join(report.longrepr.lost.devices): [FAILED]}, 0)
            return
        phases = self._phases.setdefault(report.nodeid, [])
        phases.append(report)
        if report.when in ("setup", "call") and not _is_lost(report):
            return
        del self._phases[report.nodeid]
        if case not in self._causes:
            result = _result(case, phases)
            if result.cause == CRASH:
                result = replace(result, program=self._program_of_lost(result))
            self._causes[case] = result.cause
            self._write(result.entry())

    def _program_of_lost(self, result: Result) -> str:
        """The program of a case that could not tell it itself; where many are lost, the first have one."""
        from ipu_conformance.report.alone import lost

        self._lost += 1
        if (
            not result.command
            or self._lost > MOST_LOST
            or not in_suite(suite_folder() / result.case.partition("::")[0])
        ):
            return ""
        targets = {name: row["target"] for name, row in self.run["frameworks"].items()}
        return lost.program(result.case, self.run["target"], targets)

    def _write_repeats(self, case: str, outcomes: Mapping[str, Sequence[str]], left: int) -> None:
        """Write what became of a case on some devices, unless it is said again by a process that goes on.

        ``left`` is how many times it is still to be repeated on others.
        """
        known = repeats_of(self.journal.entries).get(case, {})
        new = {group: each for group, each in outcomes.items() if group and group not in known}
        if new:
            self._write({"kind": "repeats", "at": _now(), "case": case, "devices": new, "left": left})

    def _take_over(self) -> None:
        """Go on where a process of this run was lost: what it has written is reported again, and not written again."""
        if os.getpid() != self._process:
            self._process = os.getpid()
            self.journal.reload()
            self._causes = _causes([*self._before, *self.journal.entries[self._read :]])

    def _write(self, entry: Mapping[str, Any]) -> None:
        try:
            self.journal.append(entry)
        except JournalError as error:
            self.problem = str(error)
            pytest.exit(str(error), returncode=pytest.ExitCode.INTERNAL_ERROR)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the last line and the folder; one that this run has no business with stays as it is."""
        if self._refused:
            return
        if self.listening is not None and self.listening.whole:
            self.whole, self.left_out = self.listening.whole, self.listening.left_out
        try:
            if not self.problem:
                if not self._begun:  # nothing could be collected
                    self._begin()
                left_out = {**self._above_the_level(), **self.left_out}
                end = {"why": self._why_ended(session), "whole": self.whole, "left_out": left_out}
                self.journal.append({"kind": "end", "at": _now(), **end})
            self.verdict = report_folder.write(self.place, self.journal.entries)
        except ConformanceError as error:
            self.problem = self.problem or str(error)
        except OSError as error:
            self.problem = self.problem or (
                f"{self.place} cannot be written: {error.strerror}; make room, then go on with --resume."
            )
        if self.problem and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def _above_the_level(self) -> Dict[str, str]:
        """Why mandatory cases are not collected at all: files may ask for the level themselves."""
        selection = self.config.stash[SELECTION]
        level_of = levels.shipped().of
        planned = self._promised | set(self._planned.values())
        listed = mandatory.of_frameworks(self.run["mandatory"]["cases"], selection.frameworks)
        return {
            case: f"they need level {level_of(case)}"
            for case in listed - planned
            if not selection.has_level(level_of(case))
        }

    def _why_ended(self, session: pytest.Session) -> str:
        """Why planned cases were not run; empty if all were."""
        if self._not_collected:
            return self._not_collected[0]
        done = {entry["case"] for entry in self.journal.entries if entry["kind"] == "case"}
        if (self._promised or self._planned) and not (self._promised | set(self._planned.values())) - done:
            return ""
        if self._broken:
            return f"pytest broke off ({self._broken})"
        stopped = session.shouldfail or session.shouldstop
        return f"the run stopped ({stopped})" if stopped else "the run was interrupted"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say the verdict and where the report is."""
        terminalreporter.section("IPU report")
        if self.problem:
            terminalreporter.line(f"FAILED: {self.problem}", red=True)
        if self.verdict is not None:
            for line in report_folder.spoken(self.verdict, self.place):
                terminalreporter.line(line)

    def close(self) -> None:
        """Let others use the folder."""
        self.journal.close()


class _XdistHooks:
    """What only pytest-xdist calls."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._collected = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker what is finished; all learn the same, also one that replaces another."""
        node.workerinput[FINISHED] = sorted(self.recorder.finished)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Write down what is to run; every worker collects the same cases."""
        if self._collected:
            return
        self._collected = True
        config = self.recorder.config
        only_cases = matches_cases_only(config.getoption("markexpr") or "")
        self.recorder.plan(nodeid for nodeid in ids if only_cases or in_suite(path_of(nodeid, config)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Take what a worker hands in."""
        output = getattr(node, "workeroutput", {})
        if WHOLE in output:
            self.recorder.whole, self.recorder.left_out = output[WHOLE], output[LEFT_OUT]


def _result(case: str, phases: Sequence[Any]) -> Result:
    """What became of a case, from the reports of its phases."""
    told: Dict[str, Any] = {}
    for report in phases:
        told.update(getattr(report, "ipu_notes", {}))
    failed = next((report for report in phases if report.failed), None)
    skipped = next((report for report in phases if report.skipped), None)
    outcome, sentence, cause, details = PASSED, "", "", ""
    devices = told.get("devices", ())
    if failed is not None:
        outcome, details = FAILED, str(failed.longreprtext)[-MOST_DETAILS:]
        default = (ERROR, str(failed.longrepr).strip().splitlines()[-1])
        devices = getattr(getattr(failed.longrepr, "lost", None), "devices", devices)
        if _is_lost(failed) or failed.when not in ("setup", "call", "teardown"):
            default = (CRASH, str(getattr(failed.longrepr, "lost", "the process that ran the case died")))
        cause, sentence = getattr(failed, "ipu_failure", default)
        if cause != CRASH and failed.when != "call":
            sentence = f"in {'set-up' if failed.when == 'setup' else 'tear-down'}: {sentence}"
    elif skipped is not None:
        outcome, sentence = SKIPPED, why_skipped(skipped)
    return Result(
        case=case,
        outcome=outcome,
        seconds=round(sum(float(getattr(report, "duration", 0.0)) for report in phases), 4),
        sentence=sentence,
        cause=cause,
        details=details,
        margin=told.get("margin"),
        curves=tuple(told.get("curves", ())),
        timelines=tuple(told.get("timelines", ())),
        graphs=tuple(told.get("graphs", ())),
        program=told.get("program", ""),
        devices=tuple(devices),
        at=_now(),
        worker=_worker(phases[-1]),
    )


def _causes(entries: Sequence[Mapping[str, Any]]) -> Dict[str, str]:
    """Why each case failed that a journal has, by case; empty for one that did not."""
    return {entry["case"]: entry.get("cause", "") for entry in entries if entry["kind"] == "case"}


def _without_interrupted(entries: Sequence[Mapping[str, Any]], run: Mapping[str, Any]) -> List[Mapping[str, Any]]:
    """The entries without those of failed cases that were still to be repeated on devices: they were under way."""
    targets = discover()
    pinned = {
        name for name, row in run["frameworks"].items() if row["target"] in targets and targets[row["target"]].pins
    }
    repeated = {entry["case"] for entry in entries if entry["kind"] == "repeats" and not entry["left"]}
    interrupted = {
        entry["case"]
        for entry in entries
        if entry["kind"] == "case"
        and entry["outcome"] == FAILED
        and entry.get("cause") != CRASH
        and entry.get("devices")
        and (pinned if result_of(entry).framework == NEUTRAL else result_of(entry).framework in pinned)
        and entry["case"] not in repeated
    }
    return [entry for entry in entries if entry.get("case") not in interrupted]


def _is_lost(report: Any) -> bool:
    """Whether the case took its process with it, so that no other report of it comes."""
    return getattr(report.longrepr, "lost", None) is not None


def _worker(report: Any) -> str:
    node = getattr(report, "node", None)
    return str(getattr(getattr(node, "gateway", None), "id", ""))


def _now() -> str:
    return datetime.datetime.fromtimestamp(time.time(), datetime.timezone.utc).isoformat(timespec="seconds")
