"""Each fault of the lowered program is noticed by a case."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults.poptorch import ir

from .. import killing
from .test_faults_options import RUN_EACH

FILE = "tests/ipu/poptorch/test_ir_ipu.py"
KILLING = {
    "poptorch-ir-no-copies": f"{FILE}::test_a_border_is_crossed_both_ways",
    "poptorch-ir-no-all-reduce": f"{FILE}::test_every_parameter_is_reduced_once",
    "poptorch-ir-update-lost": f"{FILE}::test_an_optimizer_has_its_ops_for_every_parameter[sgd]",
    "poptorch-ir-stages-mirrored": f"{FILE}::test_training_doubles_the_stages_but_one[pipelined-2]",
    "poptorch-ir-scopes-lost": f"{FILE}::test_an_op_is_named_after_its_module[MatMul-layer2/0/MatMul]",
    "poptorch-ir-optimizer-is-sgd": f"{FILE}::test_an_optimizer_has_its_ops_for_every_parameter[adam]",
    "poptorch-ir-not-accumulated": f"{FILE}::test_gradients_accumulate_before_they_are_reduced",
    "poptorch-ir-labels-wide": f"{FILE}::test_integers_of_64_bits_are_narrowed",
    "poptorch-ir-all-recomputed": f"{FILE}::test_nothing_is_recomputed_by_default",
    "poptorch-ir-dropout-lost": f"{FILE}::test_dropout_is_gone_in_inference",
    "poptorch-cycles-of-one-iteration": (
        "tests/ipu/poptorch/test_cycles_ipu.py::test_device_iterations_add_cycles[training]"
    ),
    "ir-drop-op": f"{FILE}::test_the_workload_has_its_golden_graph[poptorch_mnist_single]",
    "ir-wrong-stage": f"{FILE}::test_the_workload_has_its_golden_graph[poptorch_mnist_pipelined_2]",
    "ir-wrong-ipu": f"{FILE}::test_the_ipus_are_those_of_the_blocks[pipelined-2]",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the lowered program."""
    points = ("ir.graph", ir.CYCLES)

    assert {fault.name for fault in killing.registered("poptorch") if fault.point in points} == set(KILLING)


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
