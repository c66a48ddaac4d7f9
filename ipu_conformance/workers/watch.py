"""Ends a process whose case hangs in native code, and says how a case ended that took its process with it.

A signal interrupts Python only: pytest-timeout never reaches a device that waits in C for ever, with or without the
interpreter's lock. The thread that faulthandler starts runs no Python. Past the limit it writes the stacks of all
threads and ends the process, and whoever started the process notices.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from pathlib import Path
from typing import IO, Any, Generator, NamedTuple, Optional, Sequence, Tuple

import pytest
from _pytest._code.code import ReprFileLocation, TerminalRepr

from ipu_conformance.workers.leases import JOINED

GRACE = 0.1
"""The part of its limit that a case has for its end, once pytest-timeout has interrupted it."""
LEAST_GRACE = 3.0
LATER = 0.02
"""Seconds until an interruption that came between two phases of a case is tried again."""
LIMIT = pytest.StashKey[float]()


def patience(limit: float) -> float:
    """Seconds after which a case with this limit hangs."""
    return limit + max(LEAST_GRACE, GRACE * limit)


WATCH = "ipu_conformance_watch"
"""The name of the plug-in."""


class Watch:
    """Watches the conformance cases of this process; a plug-in of its own. Stacks go to a file that others read.

    So do the devices that a case holds: who outlives the case says on which ones it was lost.
    """

    def __init__(self, stacks: IO[str], devices: IO[str]) -> None:
        self._file, self._devices = stacks, devices
        self._inside = False

    def note_devices(self, devices: Sequence[str]) -> None:
        """Write down which devices the case under way holds; none at its end."""
        with contextlib.suppress(OSError):  # nowhere to write to: a lost case then names no devices
            self._devices.seek(0)
            self._devices.truncate()
            self._devices.write("\n".join(devices))
            self._devices.flush()

    @pytest.hookimpl(optionalhook=True, wrapper=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> Generator[None, Any, Any]:
        """Begin to watch a case that has a limit, beside pytest-timeout."""
        if item.get_closest_marker("ipu") is not None:
            item.stash[LIMIT] = settings.timeout
            self._begin(item)
        answer = yield
        self._interrupt_phases_only()
        return answer

    def _interrupt_phases_only(self) -> None:
        """Let the signal of pytest-timeout wait for a phase of the case: elsewhere it would end the whole run."""
        interrupt = signal.getsignal(signal.SIGALRM)
        if not callable(interrupt):
            return  # another method than the signal

        def wait(number: int, frame: Any) -> None:
            if self._inside:
                interrupt(number, frame)
            else:
                signal.setitimer(signal.ITIMER_REAL, LATER)

        signal.signal(signal.SIGALRM, wait)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        """A phase."""
        return (yield from self._phase())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        """A phase."""
        return (yield from self._phase())

    def _phase(self) -> Generator[None, Any, Any]:
        self._inside = True
        try:
            return (yield)
        finally:
            self._inside = False

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self, item: pytest.Item) -> None:
        """Stop watching: the case has ended, has failed, or a debugger was called."""
        faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Watch the end of a case as well, whether or not it has failed."""
        self._begin(item)
        return (yield from self._phase())

    def _begin(self, item: pytest.Item) -> None:
        limit = item.stash.get(LIMIT, None)
        if limit is not None:
            faulthandler.dump_traceback_later(patience(limit), exit=True, file=self._file)


def opened(path: Path) -> IO[str]:
    """A file for who outlives this process; a worker on another machine has no such folder, and ends without it."""
    try:
        return path.open("w")
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
    devices: Tuple[str, ...] = ()
    """The devices that it held."""

    def __str__(self) -> str:
        return f"{self.word}: {self.sentence}{f' (on {JOINED.join(self.devices)})' if self.devices else ''}"


def loss(stacks: str, code: Optional[int], devices: str = "") -> Loss:
    """What a process has left: stacks, its exit code, where a signal's number is negative, and devices."""
    held = tuple(devices.split())
    if stacks:
        said = "the case did not end within its time limit, nor when it was interrupted"
        return Loss("hang", said, stacks, held)
    if code is None:
        return Loss("crash", "the process of the case ended", devices=held)
    if code < 0:
        said = f"signal {-code} ({signal_name(-code)}) ended the process of the case"
        return Loss("crash", said, devices=held)
    return Loss("exit", f"the case ended its process with exit code {code}", devices=held)


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
