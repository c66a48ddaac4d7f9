"""Ends a run in order when the system asks for it: tests, fixtures, workers, and whatever they have started.

SIGTERM and SIGHUP end a run as Control-C does. Processes that a worker has started outlive it where it is killed, so
they are noted when the signal comes, and those that are still there at the end of the run are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

import pytest

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
Process = Tuple[int, str]
"""The number of a process and the time of its start, which no later process of that number has."""

_NOTED: Set[Process] = set()


def install(config: pytest.Config) -> None:
    """End this run in order at these signals, unless somebody else sees to them; nohup ignores SIGHUP, and so do we."""
    if threading.current_thread() is not threading.main_thread():
        return
    taken = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)

    def forget() -> None:
        kill(_NOTED)
        _NOTED.clear()
        for number in taken:
            signal.signal(number, signal.SIG_DFL)

    if taken:
        config.add_cleanup(forget)


def _end(number: int, frame: Any) -> None:
    """Tests and fixtures end, then the workers; a second signal changes nothing."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    _NOTED.update(descendants(os.getpid()))
    pytest.exit("terminated", returncode=128 + number)


def descendants(ancestor: int) -> List[Process]:
    """The processes that a process has started, and those that they have; none where there is no /proc."""
    children: Dict[int, List[Process]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):  # a process that ends meanwhile
            words = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(words[1]), []).append((int(stat.parent.name), words[19]))
    found: List[Process] = []
    waiting = [ancestor]
    while waiting:
        started = children.pop(waiting.pop(), [])
        found += started
        waiting += [number for number, _ in started]
    return found


def kill(processes: Set[Process]) -> None:
    """Kill the processes that are still there."""
    for number, start in processes:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19] == start:
                os.kill(number, signal.SIGKILL)
