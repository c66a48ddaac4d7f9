"""Each fault of options is noticed by a case."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults.poptorch import options

FILE = "tests/ipu/poptorch/test_options_ipu.py"
KILLING = {
    "options-never-freeze": f"{FILE}::test_options_in_use_cannot_be_changed[deviceIterations]",
    "options-unchecked": f"{FILE}::test_a_wrong_value_is_refused[deviceIterations]",
    "options-clone-stays-frozen": f"{FILE}::test_a_clone_of_options_in_use_can_be_changed[deviceIterations]",
    "options-clone-shares-values": f"{FILE}::test_a_clone_of_options_in_use_can_be_changed[deviceIterations]",
    "options-period-lost": f"{FILE}::test_every_n_takes_its_period[2]",
    "options-seed-only-device": f"{FILE}::test_random_seed_seeds_torch",
    "options-file-last-line-ignored": (
        "tests/ipu/poptorch/test_options_files_ipu.py::test_a_file_may_use_enumerations"
    ),
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of options."""
    own = {fault.name for fault in faults.table() if fault.point in options.POINTS}

    assert own == set(KILLING)


RUN_EACH = """
import sys
import pytest
from ipu_conformance.emulator import faults, poptorch

for pair in sys.argv[1:]:
    fault, case = pair.split("=", 1)
    options = ["-q", "--assert=plain", "-p", "no:cacheprovider", "--ipu-target", "emulator", case]
    right = pytest.main(options)
    with faults.inject(fault):
        wrong = pytest.main(options)
    print("VERDICT", fault, int(right), int(wrong))
"""


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault; one process runs them all."""
    made = subprocess.run(
        [sys.executable, "-c", RUN_EACH, *(f"{fault}={case}" for fault, case in KILLING.items())],
        cwd=Path(__file__).parents[4],
        env={name: value for name, value in os.environ.items() if name != faults.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = [line.split()[1:] for line in made.stdout.splitlines() if line.startswith("VERDICT")]

    assert verdicts == [[fault, "0", "1"] for fault in KILLING], made.stdout + made.stderr
