"""Each fault of the loaders is noticed by a case."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.poptorch import api

from .test_faults_options import RUN_EACH

LOADER = "tests/ipu/poptorch/test_dataloader_ipu.py"
WORKER = "tests/ipu/poptorch/test_asynchronous_ipu.py"
KILLING = {
    "loader-ignores-accumulation": f"{LOADER}::test_a_combined_batch_is_what_one_call_consumes[D1-G3-R1-group1]",
    "loader-ignores-device-iterations": f"{LOADER}::test_a_combined_batch_is_what_one_call_consumes[D5-G1-R1-group1]",
    "loader-ignores-input-groups": f"{LOADER}::test_a_combined_batch_is_what_one_call_consumes[D5-G3-R4-group2]",
    "loader-shares-overlap": f"{LOADER}::test_each_process_has_its_own_samples[in-order]",
    "loader-rebatch-keeps-rest": f"{WORKER}::test_small_elements_are_joined",
    "loader-rebatch-loses-rest": f"{WORKER}::test_a_loader_joins_what_small_batches_bring[kept]",
    "loader-pass-ends-early": f"{WORKER}::test_every_buffer_size_gives_the_same_elements[1]",
    "loader-failure-is-an-end": f"{WORKER}::test_a_failure_in_the_worker_is_raised",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the loaders."""
    assert api.DataLoader
    assert {fault.name for fault in faults.table() if fault.point.startswith("loader.")} == set(KILLING)


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
