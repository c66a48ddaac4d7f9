"""What is shown while cases run, read from the journal: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, TextIO, Tuple

from ipu_conformance.report.results import FAILED, SKIPPED, Result, chapter_of, result_of
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.text_table import text_table
from ipu_conformance.workers.scheduling import cost, framework_of

NEUTRAL = "none"
EVERY_SHARE, EVERY_SECONDS = 0.1, 60.0
"""How often a line is printed that no terminal draws over."""
LEAST_SHARE = 0.02
"""The share of a run from which the time left is estimated: the first cases import their frameworks."""
REDRAWN = 0.5
"""Seconds between two pictures of the table."""


class Progress:
    """How far a run is, fed with the entries of its journal."""

    def __init__(self) -> None:
        self.planned: Dict[str, float] = {}
        self.done: Dict[str, Result] = {}
        self.failures: List[Result] = []
        self.repetitions = 0
        """How often a failed case was repeated on a device."""
        self.before = 0.0
        """Seconds that passed before the cases were known: they say nothing about the speed of cases."""
        self._spent = self._here = 0.0

    def feed(self, entry: Mapping[str, Any], *, earlier: bool) -> None:
        """Take one entry; what an earlier run has done says nothing about the speed of this one."""
        if entry["kind"] == "plan":
            self.planned.update({case: cost(f"ipu/{case}") for case in entry["cases"]})
        elif entry["kind"] == "case":
            result = result_of(entry)
            self.done[result.case] = result
            self._spent += self.planned.get(result.case, 0.0)
            self._here += 0.0 if earlier else self.planned.get(result.case, 0.0)
            if result.outcome == FAILED:
                self.failures.append(result)
        elif entry["kind"] == "repeats":
            self.repetitions += sum(map(len, entry["devices"].values()))

    @property
    def share(self) -> float:
        """The share of the cases' expected time that is over."""
        whole = sum(self.planned.values())
        return self._spent / whole if whole else 0.0

    def line(self, seconds: float) -> str:
        """The state in one line; ``seconds`` is how long this run has taken."""
        if not self.planned:
            return f"collecting cases, {_time(seconds)}"
        skipped = sum(result.outcome == SKIPPED for result in self.done.values())
        words = [
            f"{len(self.done):,} of {len(self.planned):,} cases ({self.share:.0%} of the work)",
            f"{len(self.failures)} failed",
        ]
        if skipped:
            words.append(f"{skipped} skipped")
        if self.repetitions:
            words.append(f"{self.repetitions} repetitions on devices")
        words.append(_time(seconds))
        whole = sum(self.planned.values())
        left = whole - self._spent
        if self._here >= LEAST_SHARE * whole and left:
            words.append(f"about {_time((seconds - self.before) * left / self._here)} left")
        return ", ".join(words)

    def table(self) -> List[str]:
        """The chapters by framework: cases done of cases planned, and how many failed; nothing before the plan."""
        if not self.planned:
            return []
        planned: Counter[Tuple[str, str]] = Counter(map(_cell, self.planned))
        done: Counter[Tuple[str, str]] = Counter(map(_cell, self.done))
        failed: Counter[Tuple[str, str]] = Counter(_cell(result.case) for result in self.failures)
        columns = [name for name in (*FRAMEWORKS, NEUTRAL) if any(cell[1] == name for cell in planned)]
        rows = [["", *columns]]
        for chapter in sorted({cell[0] for cell in planned}):
            cells = [(chapter, column) for column in columns]
            rows.append([chapter, *(_words(done[cell], planned[cell], failed[cell]) for cell in cells)])
        return text_table(rows)


class Display:
    """Follows a journal that another process writes."""

    def __init__(self, path: Path, stream: TextIO, *, offset: int = 0) -> None:
        self._path, self._stream = path, stream
        self._earlier, self._offset, self._rest = offset, 0, b""
        self.progress = Progress()
        self._begin = self._last = time.monotonic()
        self._share = 0.0
        self._said: Optional[Tuple[int, int]] = None
        self._named = self._drawn = 0
        self._tall = stream.isatty()

    def update(self, *, last: bool = False) -> None:
        """Read what is new, and show it if it is time."""
        began = not self.progress.planned
        self._read()
        now = time.monotonic()
        if began and self.progress.planned:
            self.progress.before = now - self._begin
        if self._tall:
            if last or now - self._last >= REDRAWN:
                self._last = now
                self._draw(now - self._begin)
            return
        self._say_failures()
        share = self.progress.share
        done = len(self.progress.done), self.progress.repetitions
        if last and done == self._said:
            return
        if last or now - self._last >= EVERY_SECONDS or share - self._share >= EVERY_SHARE:
            self._last, self._share, self._said = now, share, done
            print(self.progress.line(now - self._begin), file=self._stream, flush=True)

    def _read(self) -> None:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        lines = (self._rest + data).split(b"\n")
        position = self._offset - len(self._rest)
        self._offset += len(data)
        self._rest = lines.pop()
        for line in lines:
            position += len(line) + 1
            try:
                self.progress.feed(json.loads(line), earlier=position <= self._earlier)
            except (ValueError, KeyError, TypeError):  # a line that was taken back; the end of the run says so
                continue

    def _say_failures(self) -> None:
        for result in self.progress.failures[self._named :]:
            print(f"FAILED {result.case}: {result.sentence}", file=self._stream, flush=True)
        self._named = len(self.progress.failures)

    def _draw(self, seconds: float) -> None:
        """Replace the table of before by that of now; failures scroll away above it."""
        width, height = shutil.get_terminal_size()
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
        self._say_failures()
        lines = [*self.progress.table(), self.progress.line(seconds)][-(height - 1) :]
        self._stream.write("".join(f"{line[: width - 1]}\n" for line in lines))
        self._stream.flush()
        self._drawn = len(lines)


def _cell(case: str) -> Tuple[str, str]:
    return chapter_of(case), framework_of(case) or NEUTRAL


def _words(done: int, planned: int, failed: int) -> str:
    if not planned:
        return ""
    return f"{done}/{planned}" + (f" ({failed} failed)" if failed else "")


def _time(seconds: float) -> str:
    """A time in minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
