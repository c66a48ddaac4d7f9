"""Gives a reader input after input, and counts what it must not do: raise the undeclared, stall, take memory."""

from __future__ import annotations

import random
import resource
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple, Optional

from tests.unit.attack.corpus import CONSTRUCTED
from tests.unit.attack.mutations import mutated
from tests.unit.attack.readers import READERS

SLOW = 5.0
"""Seconds of processor time after which an input has stalled its reader."""
MOST_MEMORY = 1 << 30


class Stalled(BaseException):
    """An input took too long; no reader catches it."""


class Finding(NamedTuple):
    """An input that a reader did not take as it should."""

    reader: str
    input: str
    what: str


class Attack:
    """The inputs of one reader, each by its number: the constructed files first, then mutations."""

    def __init__(self, name: str, folder: Path, seed: int = 0) -> None:
        self.name, self._seed = name, seed
        self._originals, self._read, self._declared = READERS[name].make(folder)
        self._constructed = [(what, make) for what, (reader, make) in CONSTRUCTED.items() if reader == name]

    def input(self, number: int) -> bytes:
        """The input with a number, the same every time."""
        if number < len(self._constructed):
            return self._constructed[number][1]()
        return mutated(random.Random(f"{self._seed} {self.name} {number}"), self._originals)

    def describe(self, number: int) -> str:
        """What an input is called."""
        return self._constructed[number][0] if number < len(self._constructed) else f"{number} of seed {self._seed}"

    def try_input(self, data: bytes) -> Optional[str]:
        """What a reader does wrong with an input, None if it reads or refuses it."""
        begun = time.process_time()
        try:
            with _limited(SLOW):
                self._read(data)
        except self._declared as error:
            if "\n" in str(error).strip():
                return f"refused it in more than one line: {str(error)[:200]!r}"
        except Stalled:
            return f"took more than {SLOW:g} s"
        except Exception as error:
            return f"raised {type(error).__name__}: {str(error)[:200]}"
        taken = time.process_time() - begun
        if taken > SLOW:
            return f"took {taken:.1f} s"
        return None


def memory() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise Stalled

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run(name: str, seed: int, first: int, seconds: float, report: Callable[[int, Optional[str]], None]) -> None:
    """Try the inputs from a number on for a time, and report each."""
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        attack = Attack(name, Path(folder), seed)
        number, until = first, time.monotonic() + seconds
        while time.monotonic() < until:
            wrong = attack.try_input(attack.input(number))
            if wrong is None and memory() > MOST_MEMORY:
                wrong = f"took {memory() >> 20} MB"
            report(number, wrong)
            if memory() > MOST_MEMORY:
                return
            number += 1
