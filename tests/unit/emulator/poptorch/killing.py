"""Shows that cases of the suite notice faults, and writes the table of which case notices which.

``python -m tests.unit.emulator.poptorch.killing`` prints docs/faults.md: it collects the table ``KILLING`` of every
``test_faults_*.py`` of this folder, whose tests show that each row is true.
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

ROOT = Path(__file__).parents[4]
SUITE = "tests/ipu/poptorch/"
DOCUMENT = ROOT / "docs" / "faults.md"

# One process runs everything: first all cases on the right device, then each case once for its fault. A session of its
# own for each fault keeps cases from sharing what they ran under another.
_RUN = """
import json, sys
import pytest
from ipu_conformance.emulator import faults, poptorch

class Outcomes:
    def __init__(self):
        self.of = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.failed:
            self.of[report.nodeid] = report.outcome

def run(*cases):
    noted = Outcomes()
    options = ["-q", "--tb=line", "--assert=plain", "-p", "no:cacheprovider", "--ipu-target", "emulator"]
    pytest.main([*options, *cases], plugins=[noted])
    return noted.of

table = json.loads(sys.argv[1])
verdicts = {"right": run(*sorted(set(table.values()))), "wrong": {}}
for fault, case in table.items():
    with faults.inject(fault):
        verdicts["wrong"][fault] = run(case)
print("VERDICTS", json.dumps(verdicts))
"""


def assert_killed(fault: str, case_id: str) -> None:
    """The case passes on the right device and fails under the fault."""
    assert_all_killed({fault: case_id})


def assert_all_killed(table: Mapping[str, str]) -> None:
    """Every case passes on the right device and fails under its fault; ids are those of pytest."""
    cases = {fault: _whole(case) for fault, case in table.items()}
    made = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(cases)],
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


def _whole(case: str) -> str:
    return case if case.startswith(SUITE) else SUITE + case


def registered() -> Tuple[faults.Fault, ...]:
    """Every fault of the core and of the front end, which registers its own when it is imported."""
    importlib.import_module("ipu_conformance.emulator.poptorch")
    return faults.table()


@functools.lru_cache(maxsize=1)
def tables() -> Tuple[Tuple[str, Mapping[str, str]], ...]:
    """The name and the table of every file of this folder that shows kills."""
    here = Path(__file__).parent
    found: List[Tuple[str, Mapping[str, str]]] = []
    for file in sorted(here.glob("test_faults_*.py")):
        module: Any = importlib.import_module(f"{__package__}.{file.stem}")
        found.append((file.stem, module.KILLING))
    return tuple(found)


def killing_cases() -> Dict[str, str]:
    """The killing case of every fault that a table of this folder names, as the suite's command takes it."""
    return {fault: _whole(case)[len("tests/ipu/") :] for _, table in tables() for fault, case in table.items()}


def document() -> str:
    """The published matrix, in Markdown."""
    cases = killing_cases()
    lines = [
        "# Faults of the emulated PopTorch and the cases that kill them",
        "",
        "Each row is a way for a device to be wrong. The case passes on the right device and fails under the fault;",
        "the tests of `tests/unit/emulator/poptorch/test_faults_*.py` show it for every row. To see one by hand:",
        "",
        "    IPU_CONFORMANCE_FAULT=update-halved pytest --ipu-target emulator tests/ipu/poptorch -k equivalence",
        "",
        "This page is written by `python -m tests.unit.emulator.poptorch.killing > docs/faults.md`.",
    ]
    area = ""
    for fault in registered():
        if fault.area != area:
            area = fault.area
            lines += ["", f"## {area}", "", "| fault | what the device does | killed by |", "|---|---|---|"]
        killer = f"`{cases[fault.name]}`" if fault.name in cases else "no case"
        lines.append(f"| {fault.name} | {fault.what} | {killer} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
