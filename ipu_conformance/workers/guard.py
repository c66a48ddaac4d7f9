"""Runs the cases of a run without workers in a child, so that a case which ends its process costs one case.

Without it the exit code of a run would be the case's choice: ``os._exit(0)`` looks like a run that has passed. After
collection the process forks. The child is the run, with all its plug-ins; the parent waits. Where a child ends inside
a case, another child takes its place: it repeats the reports of the finished cases, reports the lost one as failed and
runs the others. The run has ended only when a child has said so.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import warnings
from typing import IO, Any, Dict, Generator, List, NamedTuple, Optional, Set, Tuple

import pytest

from ipu_conformance.cases import command_of
from ipu_conformance.workers import ending
from ipu_conformance.workers.memory_file import memory_file
from ipu_conformance.workers.watch import WATCH, Loss, LossReport, Watch, content, loss

PR_SET_PDEATHSIG = 1
PAUSE = 0.05
PATIENCE = 10.0
"""Seconds that a run has for its end once it is told to end."""


class Progress(NamedTuple):
    """What a child has written: the reports of finished cases, the case it was in, and the exit code of its run."""

    reports: Dict[str, List[Any]]
    inside: Optional[str]
    code: Optional[int]


def progress(file: IO[str]) -> Progress:
    """Read what children have written; the last line of one that was killed may be cut."""
    reports: Dict[str, List[Any]] = {}
    inside, code = None, None
    for line in content(file).splitlines():
        with contextlib.suppress(ValueError):
            kind, value = json.loads(line)
            if kind == "begin":
                inside = value
                reports.pop(value, None)
            elif kind == "report" and inside is not None:
                reports.setdefault(inside, []).append(value)
            elif kind == "end":
                inside = None
            elif kind == "code":
                code = value
    if inside is not None:
        reports.pop(inside, None)
    return Progress(reports, inside, code)


class Child:
    """The plug-in of a child: it runs what is left, and writes down how far it is."""

    def __init__(self, config: pytest.Config, file: IO[str], before: Progress, lost: Dict[str, Loss]) -> None:
        self._config, self._file = config, file
        self._before, self._lost = before, lost

    def _write(self, kind: str, value: Any) -> None:
        with contextlib.suppress(OSError):  # where files are on a full disk, a lost case is the end of the run
            self._file.write(json.dumps([kind, value], default=str) + "\n")
            self._file.flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Optional[bool]:
        """Repeat what is known of a case instead of running it."""
        if item.nodeid in self._lost:
            reports = [lost_report(item, self._lost[item.nodeid])]
        elif item.nodeid in self._before.reports:
            reports = [
                item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
                for data in self._before.reports[item.nodeid]
            ]
        else:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _is_known(self, nodeid: str) -> bool:
        return nodeid in self._lost or nodeid in self._before.reports

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A case begins."""
        if not self._is_known(nodeid):
            self._write("begin", nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a case has ended."""
        if not self._is_known(report.nodeid):
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            self._write("report", data)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A case has ended."""
        if not self._is_known(nodeid):
            self._write("end", nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """The run has ended: nothing of it can change the exit code any more."""
        result = yield
        self._write("code", int(session.exitstatus))
        return result


def lost_report(item: pytest.Item, lost: Loss) -> pytest.TestReport:
    """The report of a case that took its process with it."""
    words = {word: 1 for word in item.keywords if isinstance(word, str)}
    report = LossReport(str(item.path), lost, command_of(item.nodeid, item.path, item.config))
    return pytest.TestReport(item.nodeid, item.location, words, "failed", report, "call")


class Guard:
    """The plug-in of a run that has no workers."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Fork where conformance cases are about to run, and go on in the child."""
        if any(item.get_closest_marker("ipu") is not None for item in session.items) and _asks_for_cases(session):
            ending.install(session.config)
            run_in_children(session.config)


def _asks_for_cases(session: pytest.Session) -> bool:
    option = session.config.option
    stopped = session.testsfailed and not option.continue_on_collection_errors
    return not (option.collectonly or option.setuponly or option.setupplan or option.usepdb or option.trace or stopped)


def is_possible() -> bool:
    """Whether this process is pytest's own, which nothing goes on in after the run, and can fork."""
    callers = []
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "_pytest.config":
            callers.append(frame.f_code.co_name)
        frame = frame.f_back
    return hasattr(os, "fork") and callers.count("main") == 1 and "console_main" in callers


def run_in_children(config: pytest.Config) -> None:
    """Return in a child that has something to run; the parent ends here, with the exit code of the run.

    All that a run does at its end the child has done.
    """
    written, stacks, devices = memory_file(), memory_file(), memory_file()
    lost: Dict[str, Loss] = {}
    while True:
        before = progress(written)
        _flush(config)
        child = _fork()
        if not child:
            _end_with_parent()
            config.pluginmanager.register(Child(config, written, before, lost), "ipu_conformance_child")
            config.pluginmanager.register(Watch(stacks, devices), WATCH)
            return
        code = _wait(child)
        after = progress(written)
        if after.code is not None:
            os._exit(after.code or (128 - code if code < 0 else code))
        ended = loss(content(stacks), code, content(devices))
        for file in (stacks, devices):
            file.seek(0)
            file.truncate()
        if after.inside is None or after.inside in lost:
            _say(config, f"The run ended between two cases, before all of them were finished ({ended}).")
            _flush(config)
            os._exit(code if code > 0 else int(pytest.ExitCode.INTERNAL_ERROR))
        lost[after.inside] = ended
        written.write("\n" + json.dumps(["end", after.inside]) + "\n")
        written.flush()
        _say(config, f"{after.inside} was lost ({ended}); the others go on in another process.")


def _fork() -> int:
    """Fork; the libraries that have threads by now are only imported, and survive it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _end_with_parent() -> None:
    """Let the kernel kill this process with its parent, which forwards every signal that it can still handle."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(child: int) -> int:
    """The exit code of a child. Signals that end a run are for it; past them this process ends as well."""
    received: List[int] = []
    noted: Set[ending.Process] = set()

    def forward(number: int, frame: Any) -> None:
        received.append(number)
        noted.update(ending.descendants(child))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    before: List[Tuple[int, Any]] = []
    for each in ending.SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:
            before.append((each, signal.signal(each, forward)))
    # A terminal sends Control-C to both.
    before.append((signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_IGN if _has_terminal() else forward)))
    try:
        status = _status(child, received)
        ending.kill(noted)
    finally:
        for each, handler in before:
            signal.signal(each, handler)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    if received and code <= 0:
        os._exit(128 + received[0])
    return code


def _status(child: int, received: List[int]) -> int:
    """How a child ended; one that hangs in native code notices no signal, and is killed."""
    patience = PATIENCE
    while True:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return status
        if received:
            patience -= PAUSE
            if patience <= 0:
                os.kill(child, signal.SIGKILL)
        time.sleep(PAUSE)


def _has_terminal() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _flush(config: pytest.Config) -> None:
    """Write what is buffered: a child would write it again."""
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    for stream in (sys.stdout, sys.stderr, *([reporter] if reporter is not None else [])):
        stream.flush()


def _say(config: pytest.Config, sentence: str) -> None:
    """Write a line of the run, below what the child has written."""
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"\n{sentence}", red=True)
