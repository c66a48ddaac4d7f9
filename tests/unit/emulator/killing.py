"""Shows that cases of the suite notice faults, and writes the table of which case notices which.

``python -m tests.unit.emulator.killing`` prints docs/faults.md: for every front end it collects the table ``KILLING``
of each ``test_faults_*.py`` in the folder of that name beside this file, whose tests show that each row is true. A file
may also have a table ``SPARED``: faults of the core that the front end cannot have, each with the reason.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from ipu_conformance.emulator import faults

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
DOCUMENT = ROOT / "docs" / "faults.md"

FRONT_ENDS: Mapping[str, str] = {"poptorch": "PopTorch", "paddle": "Paddle", "tensorflow": "TensorFlow"}
"""The front ends by the names of their folders, and how they are called."""

# One process collects the cases once and runs everything: first all cases on the right device, then each case once for
# its fault. After every run all fixtures end, those of the session too, so that no case shares what it ran before.
_RUN = """
import json, sys
import pytest
from _pytest.runner import runtestprotocol
from ipu_conformance.emulator import faults

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
            return "broken" if "FaultError" in report.longreprtext else "failed"
    return next((report.outcome for report in reports if report.when == "call"), "skipped")

class Loop:
    def pytest_runtestloop(self, session):
        cases = {item.nodeid: item for item in session.items}
        for case, item in cases.items():
            verdicts["right"][case] = outcome(item)
        faults.load(sys.argv[2])
        for fault, case in table.items():
            if case in cases:
                with faults.inject(fault):
                    verdicts["wrong"][fault][case] = outcome(cases[case])
        return True

options = ["-q", "--tb=line", "--assert=plain", "-p", "no:cacheprovider"]
target = ["--ipu-target", "emulator", "--ipu-level", "qualify"]
pytest.main([*options, *target, *sorted(set(table.values()))], plugins=[Loop()])
print("VERDICTS", json.dumps(verdicts))
"""


def assert_all_killed(table: Mapping[str, str], framework: str) -> None:
    """Every case passes on the right device and fails under its fault; ids are those of pytest."""
    cases = {fault: _whole(case, framework) for fault, case in table.items()}
    made = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(cases), framework],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != faults.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in made.stdout.splitlines() if line.startswith("VERDICTS")]
    assert lines, made.stdout + made.stderr
    verdicts = json.loads(lines[-1].split(" ", 1)[1])
    # A case that was not found has no outcome, and counts as neither passed nor failed.
    unsound = sorted({case for case in cases.values() if verdicts["right"].get(case) != "passed"})
    survived = sorted(
        f"{fault}: {case}" for fault, case in cases.items() if verdicts["wrong"][fault].get(case) != "failed"
    )

    assert not unsound, "fail on the right device:\n" + "\n".join(unsound) + "\n" + made.stdout
    assert not survived, "pass, or are not found, under the fault:\n" + "\n".join(survived) + "\n" + made.stdout


def _whole(case: str, framework: str) -> str:
    suite = f"tests/ipu/{framework}/"
    return case if case.startswith(suite) else suite + case


def registered(framework: str) -> Tuple[faults.Fault, ...]:
    """Every fault of the core and of one front end, whichever others this process has imported."""
    faults.load(framework)
    # In the order of the modules' names, whichever a process has imported first.
    owners = {module: place for place, module in enumerate((faults.CORE, *faults.modules(framework)))}
    own = [fault for fault in faults.table() if fault.wrong.__module__ in owners]
    return tuple(sorted(own, key=lambda fault: (faults.AREAS.index(fault.area), owners[fault.wrong.__module__])))


@functools.lru_cache(maxsize=None)
def _tables(framework: str) -> Tuple[Any, ...]:
    """The modules of a front end's tests that show kills."""
    files = sorted((HERE / framework).glob("test_faults_*.py"))
    return tuple(importlib.import_module(f"{__package__}.{framework}.{file.stem}") for file in files)


def killing_cases(framework: str) -> Dict[str, str]:
    """The killing case of every fault that a table of a front end names, as the suite's command takes it."""
    return {
        fault: _whole(case, framework)[len("tests/ipu/") :]
        for module in _tables(framework)
        for fault, case in module.KILLING.items()
    }


def spared(framework: str) -> Dict[str, str]:
    """The faults that a front end cannot have, each with the reason."""
    return {fault: why for module in _tables(framework) for fault, why in getattr(module, "SPARED", {}).items()}


def without_a_case(framework: str) -> List[str]:
    """The faults of the core and of a front end that no table kills or spares."""
    settled = {**killing_cases(framework), **spared(framework)}
    return [fault.name for fault in registered(framework) if fault.name not in settled]


def document() -> str:
    """The published matrix, in Markdown."""
    lines = [
        "# Faults and the cases that kill them",
        "",
        "Each row is a way for a device to be wrong. The case passes on the right device and fails under the fault;",
        "the tests of `tests/unit/emulator/<front end>/test_faults_*.py` show it for every row. To see one by hand:",
        "",
        "    IPU_CONFORMANCE_FAULT=update-halved pytest --ipu-target emulator tests/ipu/poptorch -k equivalence",
        "",
        "This page is written by `python -m tests.unit.emulator.killing > docs/faults.md`.",
    ]
    for framework, name in FRONT_ENDS.items():
        if _tables(framework):
            lines += ["", f"## {name}", *_section(framework)]
    return "\n".join(lines) + "\n"


def _section(framework: str) -> List[str]:
    cases, reasons = killing_cases(framework), spared(framework)
    lines, area = [], ""
    for fault in registered(framework):
        if fault.area != area:
            area = fault.area
            lines += ["", f"### {area}", "", "| fault | what the device does | killed by |", "|---|---|---|"]
        killer = f"`{cases[fault.name]}`" if fault.name in cases else reasons.get(fault.name, "no case")
        lines.append(f"| {fault.name} | {fault.what} | {killer} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write(document())
