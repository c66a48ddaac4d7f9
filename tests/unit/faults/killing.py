"""Shows that cases of the suite notice faults, and prints the table of which case notices which.

``<front end>.ini`` beside this file holds the kills: a section for each area, a line ``fault = case`` for each kill. A
case's path begins in the front end's folder of the suite, or with a slash in the suite's own.
The section ``spared`` holds the faults that the front end cannot have, each with the reason. ``core.ini`` does the same
for the core without a framework. ``python -m tests.unit.faults.killing`` prints docs/faults.md.
"""

from __future__ import annotations

import configparser
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Mapping, Tuple

from ipu_conformance.emulator.faults import catalogue

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
DOCUMENT = ROOT / "docs" / "faults.md"
CORE = "core"
SPARED = "spared"
AGAIN = ("workloads", "models", "convergence")
"""The areas whose cases kill what a case of another area kills, too."""

FRONT_ENDS: Mapping[str, str] = {"poptorch": "PopTorch", "paddle": "Paddle", "tensorflow": "TensorFlow"}
"""The front ends by the names of their folders, and how they are called."""

# One process collects the cases once and runs everything: first all cases on the right device, then each case once for
# its fault. After every run all fixtures end, those of the session too, so that no case shares what it ran before.
_RUN = """
import json, sys
import pytest
from _pytest.runner import runtestprotocol
from ipu_conformance.emulator.faults import catalogue

table = json.loads(sys.argv[1])
verdicts = {"right": {}, "wrong": {fault: {} for fault in table}}

def outcome(item):
    if hasattr(item, "_initrequest"):
        item._initrequest()
    reports = runtestprotocol(item, log=False, nextitem=None)
    for report in reports:
        if report.failed:
            print(report.nodeid, report.when, report.longreprtext)
            # A fault that cannot be applied breaks the device, which tells nothing about the case.
            crash = getattr(report.longrepr, "reprcrash", None)
            place = f"{crash and crash.path} {report.longreprtext}"
            return "broken" if "FaultError" in place or "/emulator/faults/" in place else "failed"
    return next((report.outcome for report in reports if report.when == "call"), "skipped")

class Loop:
    def pytest_runtestloop(self, session):
        cases = {item.nodeid: item for item in session.items}
        for case, item in cases.items():
            verdicts["right"][case] = outcome(item)
        catalogue.load(sys.argv[2])
        for fault, case in table.items():
            if case in cases:
                with catalogue.inject(fault):
                    verdicts["wrong"][fault][case] = outcome(cases[case])
        return True

options = ["-q", "--tb=line", "--assert=plain", "-p", "no:cacheprovider"]
target = ["--ipu-target", "emulator", "--ipu-level", "qualify"]
pytest.main([*options, *target, *sorted(set(table.values()))], plugins=[Loop()])
print("VERDICTS", json.dumps(verdicts))
"""


def assert_all_killed(front_end: str, area: str) -> None:
    """Every case of an area passes on the right device and fails under its fault."""
    folder = "tests/unit/emulator/core/" if front_end == CORE else "tests/ipu/"
    cases = {fault: folder + named(front_end, case) for fault, case in kills(front_end)[area].items()}
    process = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(cases), front_end],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != catalogue.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in process.stdout.splitlines() if line.startswith("VERDICTS")]
    assert lines, process.stdout + process.stderr
    verdicts = json.loads(lines[-1].split(" ", 1)[1])
    # A case that was not collected has no outcome, and counts as neither passed nor failed.
    unsound = sorted({case for case in cases.values() if verdicts["right"].get(case) != "passed"})
    survived = sorted(
        f"{fault}: {case}" for fault, case in cases.items() if verdicts["wrong"][fault].get(case) != "failed"
    )

    assert not unsound, "fail on the right device:\n" + "\n".join(unsound) + "\n" + process.stdout
    assert not survived, "pass, or are not found, under the fault:\n" + "\n".join(survived) + "\n" + process.stdout


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


def spared(front_end: str) -> Mapping[str, str]:
    """The faults that a front end cannot have, each with the reason."""
    return _table(front_end).get(SPARED, {})


def registered(front_end: str) -> Tuple[catalogue.Fault, ...]:
    """Every fault of the core and of one front end, whichever others this process has imported."""
    catalogue.load(front_end)
    # In the order of the modules' names, whichever a process has imported first.
    owners = {module: place for place, module in enumerate((catalogue.CORE, *catalogue.modules(front_end)))}
    rows = [fault for fault in catalogue.table() if fault.module in owners]
    return tuple(sorted(rows, key=lambda fault: (catalogue.AREAS.index(fault.area), owners[fault.module])))


def document() -> str:
    """The published matrix, in Markdown."""
    lines = [
        "# Faults and the cases that kill them",
        "",
        "Each row is a way for a device to be wrong. The case passes on the right device and fails under the fault;",
        "`tests/unit/faults` shows it for every row. To see one by hand:",
        "",
        "    IPU_CONFORMANCE_FAULT=update-halved pytest --ipu-target emulator tests/ipu/poptorch -k equivalence",
        "",
        "This page is written by `python -m tests.unit.faults.killing > docs/faults.md`.",
    ]
    for front_end, name in FRONT_ENDS.items():
        lines += ["", f"## {name}", *_section(front_end)]
    return "\n".join(lines) + "\n"


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
    sys.stdout.write(document())
