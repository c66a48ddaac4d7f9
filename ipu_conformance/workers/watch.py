"""Ends a process whose case hangs in native code, and says how a case ended that took its process with it.

A signal interrupts Python only: pytest-timeout never reaches a device that waits in C for ever, with or without the
interpreter's lock. The thread that faulthandler starts runs no Python. Past the limit it writes the stacks of all
threads and ends the process, and whoever started the process notices.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path
from typing import IO, Any, NamedTuple, Optional

import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr

GRACE = 0.1
"""The part of its limit that a case has for its end, once pytest-timeout has interrupted it."""
LEAST_GRACE = 1.0
LIMIT = pytest.StashKey[float]()


def patience(limit: float) -> float:
    """Seconds after which a case with this limit hangs."""
    return limit + max(LEAST_GRACE, GRACE * limit)


class Watch:
    """Watches the conformance cases of this process; a plug-in of its own. Stacks go to a file that others read."""

    def __init__(self, stacks: IO[str]) -> None:
        self._file = stacks

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        """Begin to watch a case that has a limit, beside pytest-timeout."""
        if item.get_closest_marker("ipu") is not None:
            item.stash[LIMIT] = settings.timeout
            self._begin(item)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self, item: pytest.Item) -> None:
        """Stop watching: the case has ended, has failed, or a debugger was called."""
        faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Watch the end of a case as well, whether or not it has failed."""
        self._begin(item)

    def _begin(self, item: pytest.Item) -> None:
        limit = item.stash.get(LIMIT, None)
        if limit is not None:
            faulthandler.dump_traceback_later(patience(limit), exit=True, file=self._file)


def opened(stacks: Path) -> IO[str]:
    """The file for stacks; a worker on another machine has no such folder, and ends without them."""
    try:
        return stacks.open("w")
    except OSError:
        return open(os.devnull, "w")


def content(file: IO[str]) -> str:
    """All that a file holds, by this process or by children that share it; it is at its end afterwards."""
    file.flush()
    file.seek(0)
    return file.read()


class Loss(NamedTuple):
    """How a case ended that took its process with it: one word, a sentence, and the stacks of all threads."""

    word: str
    sentence: str
    stacks: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.sentence}"


def loss(stacks: str, code: Optional[int]) -> Loss:
    """What the stacks and the exit code that a process left say, where a signal's number is negative."""
    if stacks:
        return Loss("hang", "the case did not end within its time limit, nor when it was interrupted", stacks)
    if code is None:
        return Loss("crash", "the process of the case ended")
    if code < 0:
        return Loss("crash", f"signal {-code} ({signal_name(-code)}) ended the process of the case")
    return Loss("exit", f"the case ended its process with exit code {code}")


def signal_name(number: int) -> str:
    """The name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


class LossReport(TerminalRepr):
    """What pytest shows of a lost case: the sentence, also in the summary, the stacks, and how to run it alone."""

    def __init__(self, path: str, lost: Loss, command: str = "") -> None:
        self.lost, self.command = lost, command
        self.reprcrash = ReprFileLocation(path, 0, str(lost))

    def __str__(self) -> str:
        reproduce = f"reproduce: {self.command}" if self.command else ""
        return "\n".join(filter(None, (str(self.lost), self.lost.stacks.rstrip(), reproduce)))

    def toterminal(self, tw: Any) -> None:
        """Write all of it."""
        tw.line(str(self))
