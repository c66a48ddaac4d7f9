"""Shows that cases of the suite notice faults, and prints the table of which case notices which.

``<front end>.ini`` beside this file holds the kills: a section for each area, a line ``fault = case`` for each kill. A
case's path begins in the front end's folder of the suite, or with a slash in the suite's own.
The section ``spared`` holds the faults that the front end cannot have, each with the reason. ``core.ini`` does the same
for the core without a framework. ``python -m tests.unit.faults.killing`` writes docs/kills.md and docs/refusals.md.
"""

from __future__ import annotations

import configparser
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ipu_conformance.emulator.faults import catalogue, refusals
from ipu_conformance.workers import scheduling

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
KILLS, REFUSALS = ROOT / "docs" / "kills.md", ROOT / "docs" / "refusals.md"
CORE = "core"
SPARED = "spared"
AGAIN = ("workloads", "models", "convergence")
"""The areas whose cases kill what a case of another area kills, too: they train whole networks."""

ALL = os.environ.get("FAULTS") == "all"
"""Whether a run takes every fault (ten minutes of processor time)."""
SHARE, CHEAP = 10, 100.0
"""Otherwise it takes one fault in so many, always the same, at least one of each area, and no area whose cases kill
again. A fault is taken the less often the more of so many milliseconds its case takes."""
SHARED, SECONDS = "/test_collectives_ipu.py", 2000.0
"""The file whose cases share a few long runs, and the milliseconds of a case that makes one for itself."""

FRONT_ENDS: Mapping[str, str] = {"poptorch": "PopTorch", "paddle": "Paddle", "tensorflow": "TensorFlow"}
"""The front ends by the names of their folders, and how they are called."""


class Device:
    """A process that runs a front end's cases, with and without faults, an area at a time."""

    def __init__(self, front_end: str) -> None:
        self.front_end = front_end
        self._said = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115  a pipe that nobody reads would fill up
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.case_runner", front_end],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != catalogue.ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def verdicts(self, cases: Mapping[str, str]) -> Dict[str, Any]:
        """The outcome of each case on the right device and under its fault, and what the failures said."""
        return self._answer(dict(cases))

    def turned_on(self) -> List[str]:
        """The faults that are on in a process whose environment names all of the front end's."""
        return self._answer(None)

    def _answer(self, request: Optional[Dict[str, str]]) -> Any:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._said.seek(0)
            raise AssertionError(f"the process that runs the cases ended with {self.returncode}: {self._said.read()}")
        return json.loads(answer)

    @property
    def returncode(self) -> Optional[int]:
        """None while the process answers."""
        return self._process.poll()

    def kill(self) -> None:
        """End the process in the middle of a case."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Ask for nothing more, and wait for the end of the process."""
        self._process.communicate()
        self._said.close()


class Devices:
    """The process of the front end that was asked for last; one at a time, each holds a whole framework."""

    def __init__(self) -> None:
        self._current: Optional[Device] = None

    def of(self, front_end: str) -> Device:
        """The front end's process, started if there is none."""
        if self._current is None or self._current.front_end != front_end or self._current.returncode is not None:
            self.close()
            self._current = Device(front_end)
        return self._current

    def close(self) -> None:
        """Leave no process behind."""
        if self._current is not None:
            self._current.close()
            self._current = None


def assert_all_killed(device: Device, area: str) -> None:
    """Every case of an area passes on the right device and fails under its fault."""
    cases = located(device.front_end)[area]
    try:
        verdicts = device.verdicts(cases)
    except BaseException:  # a time limit, too: the process is in the middle of a case, and cannot be asked again
        device.kill()
        raise
    said = "\n".join(verdicts["said"])
    # A case that was not collected has no outcome, and counts as neither passed nor failed.
    unsound = sorted({case for case in cases.values() if verdicts["right"].get(case) != "passed"})
    survived = sorted(f"{fault}: {case}" for fault, case in cases.items() if verdicts["wrong"].get(fault) != "killed")

    assert not unsound, "fail on the right device:\n" + "\n".join(unsound) + "\n" + said
    assert not survived, "pass, or are not found, under the fault:\n" + "\n".join(survived) + "\n" + said


@functools.lru_cache(maxsize=None)
def _table(front_end: str) -> Mapping[str, Mapping[str, str]]:
    parser = configparser.ConfigParser(delimiters=(" = ",), interpolation=None)
    parser.read_string((HERE / f"{front_end}.ini").read_text(encoding="utf-8"))
    return {section: dict(parser[section]) for section in parser.sections()}


def kills(front_end: str) -> Dict[str, Mapping[str, str]]:
    """The killing case of each fault, by area."""
    return {area: rows for area, rows in _table(front_end).items() if area != SPARED}


def named(front_end: str, case: str) -> str:
    """The path of a case from the suite's folder: a slash begins there, other cases are in the front end's folder."""
    if front_end == CORE:
        return case
    return case[1:] if case.startswith("/") else f"{front_end}/{case}"


def located(front_end: str) -> Dict[str, Dict[str, str]]:
    """The killing case of each fault of a run, by area, as pytest finds it from the checkout's folder."""
    folder = "tests/unit/emulator/core/" if front_end == CORE else "tests/ipu/"
    return {
        area: _taken(area, {fault: folder + named(front_end, case) for fault, case in rows.items()})
        for area, rows in kills(front_end).items()
        if ALL or area not in AGAIN
    }


def _taken(area: str, cases: Mapping[str, str]) -> Dict[str, str]:
    """The faults of an area that a run takes, with their cases."""
    if ALL:
        return dict(cases)
    times = {fault: SECONDS if SHARED in case else scheduling.cost(case) for fault, case in cases.items()}
    costs = {fault: max(1.0, time / CHEAP) for fault, time in times.items()}
    numbers = {fault: zlib.crc32(f"{area} {fault}".encode()) for fault in cases}
    taken = [fault for fault in cases if numbers[fault] % round(SHARE * costs[fault]) == 0]
    return {fault: cases[fault] for fault in taken or [min(cases, key=lambda fault: (costs[fault], numbers[fault]))]}


def spared(front_end: str) -> Mapping[str, str]:
    """The faults that a front end cannot have, each with the reason."""
    return _table(front_end).get(SPARED, {})


def registered(front_end: str) -> Tuple[catalogue.Fault, ...]:
    """Every fault of the core and of one front end, whichever others this process has imported."""
    catalogue.load(front_end)
    rows = [fault for fault in catalogue.table() if fault.front_end in (CORE, front_end)]
    # In the order of the modules' names, whichever a process has imported first; refusals by their rules.
    order = {area: number for number, area in enumerate(catalogue.AREAS)}
    return tuple(
        sorted(rows, key=lambda fault: (order[fault.area], fault.module, fault.name if fault.area == "refusal" else ""))
    )


def list_of_kills() -> str:
    """docs/kills.md: every fault and the case that kills it."""
    lines = [
        "# Faults and the cases that kill them",
        "",
        "Each row is a way for a device to be wrong ([faults](faults.md)). The case passes on the right device, and an",
        "assertion of it fails under the fault; `tests/unit/faults` shows it. This page is written by",
        "`python -m tests.unit.faults.killing`.",
    ]
    lines += ["", "## Dumps that are executed", *_dumps()]
    for front_end, name in FRONT_ENDS.items():
        lines += ["", f"## {name}", *_section(front_end)]
    return "\n".join(lines) + "\n"


def list_of_refusals() -> str:
    """docs/refusals.md: what each front end refuses, with which error and sentence."""
    lines = [
        "# What raises",
        "",
        "What a device must refuse, and the emulator does. Words in braces are facts of the call. The fault",
        "`off:<rule>` leaves a check out. `python -m tests.unit.faults.killing` writes this page.",
    ]
    for front_end, name in FRONT_ENDS.items():
        catalogue.load(front_end)
        lines += ["", f"## {name}", "", "| rule | raises | sentence |", "|---|---|---|"]
        for rule, row in sorted(refusals.rows(front_end).items()):
            kind = row.error.rpartition(".")[2] if isinstance(row.error, str) else row.error.__name__
            sentence = row.sentence if isinstance(row.sentence, str) else "depends on what was given"
            words = " ".join(sentence.split()).replace("|", "\\|")
            lines.append(f"| {rule.partition('.')[2]} | `{kind}` | {words} |")
    return "\n".join(lines) + "\n"


DUMPS = (
    "all-reduce-lost", "all-reduce-twice", "wrong-stage", "cast-lost", "bias-lost", "sub-swapped", "wrong-axis",
    "accumulation-lost", "weight-stale", "loss-not-scaled", "momentum-halved", "wrong-gradient", "copy-lost",
)  # fmt: skip
"""What a dump can tell wrongly on any front end."""
NO_DUMP_FAULT = {
    ("paddle", "cast-lost"): "its trained nets have no casts",
    ("tensorflow", "wrong-stage"): "a function has no stages",
    ("tensorflow", "loss-not-scaled"): "its runs scale no loss",
    ("tensorflow", "copy-lost"): "a function has no copies",
}


def _dumps() -> List[str]:
    """Every fault of dumps on each front end, with the case that executes the dump."""
    names = list(FRONT_ENDS)
    lines = ["", f"| the dump | {' | '.join(FRONT_ENDS.values())} |", "|---|" + "---|" * len(names)]
    killers = {front_end: kills(front_end)["dumps"] for front_end in names}
    for fault in DUMPS:
        cells = [
            NO_DUMP_FAULT[front_end, fault]
            if (front_end, fault) in NO_DUMP_FAULT
            else f"`{named(front_end, killers[front_end][f'{front_end}-dump-{fault}'])}`"
            for front_end in names
        ]
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    return lines


def _section(front_end: str) -> List[str]:
    killers: Dict[str, str] = dict(spared(front_end))
    for rows in kills(front_end).values():
        for name, case in rows.items():
            killers.setdefault(name, f"`{named(front_end, case)}`")
    lines: List[str] = []
    area = ""
    for fault in registered(front_end):
        if fault.area != area:
            area = fault.area
            lines += ["", f"### {area}", "", "| fault | what the device does | killed by |", "|---|---|---|"]
        lines.append(f"| {fault.name} | {fault.what} | {killers.get(fault.name, 'no case')} |")
    return lines


if __name__ == "__main__":
    KILLS.write_text(list_of_kills(), encoding="utf-8")
    REFUSALS.write_text(list_of_refusals(), encoding="utf-8")
