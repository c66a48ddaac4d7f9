"""Each fault of optimizers is noticed by a case."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults.poptorch import optim

UPDATES = "test_optim_ipu.py::test_updates_are_the_oracles"
KILLING = {
    "momentum-forgotten": f"{UPDATES}[torch-SGD-momentum]",
    "dampening-ignored": f"{UPDATES}[torch-SGD-dampened]",
    "nesterov-ignored": f"{UPDATES}[torch-SGD-nesterov]",
    "weight-decay-ignored": f"{UPDATES}[torch-SGD-decay]",
    "bias-correction-missing": f"{UPDATES}[torch-Adam]",
    "betas-at-default": f"{UPDATES}[torch-Adam-betas]",
    "variance-not-centered": f"{UPDATES}[torch-RMSprop-centered]",
    "rmsprop-variant-ignored": f"{UPDATES}[poptorch-RMSprop-tf]",
    "weight-norm-unlimited": f"{UPDATES}[poptorch-LAMB-limited]",
    "first-group-for-all": "test_optim_ipu.py::test_every_group_has_its_own_learning_rate[SGD-torch]",
    "ascent-ignored": "test_optim_ipu.py::test_maximising_climbs[SGD-torch]",
    "loss-scale-not-removed": "test_loss_scaling_ipu.py::test_powers_of_two_cancel_exactly[SGD-2.0]",
    "optimizer-count-stuck": f"{UPDATES}[torch-Adam]",
    "gradients-not-clipped": "test_optim_ipu.py::test_gradients_are_clipped_by_the_norm_of_all[SGD]",
    "half-accumulator-in-float32": "test_loss_scaling_ipu.py::test_half_accumulators_lose_what_they_cannot_hold",
    "half-state-in-float32": "test_loss_scaling_ipu.py::test_half_state_is_held_in_half[SGD-velocity_accum_type]",
    "adamw-taken-for-adam": f"{UPDATES}[torch-AdamW-decay]",
    "unknown-optimizer-is-sgd": "test_optim_ipu.py::test_an_optimizer_without_counterpart_is_refused[Adagrad]",
    "set-optimizer-ignored": "test_set_optimizer_ipu.py::test_a_new_optimizer_takes_over",
    "constants-not-compared": (
        "test_set_optimizer_ipu.py::test_constants_of_torchs_optimizers_cannot_change[SGD-momentum]"
    ),
    "optimizer-arguments-unchecked": "test_optim_ipu.py::test_amsgrad_is_refused[Adam-torch]",
    "all-attributes-constant": "test_variable_attributes_ipu.py::test_what_is_passed_is_variable[SGD-momentum]",
    "optimizer-warnings-missing": "test_set_optimizer_ipu.py::test_a_subclass_is_reported",
    "optimizer-warnings-repeated": "test_set_optimizer_ipu.py::test_unexpected_attributes_are_not_reported_twice",
    "optimizer-warnings-for-all": "test_set_optimizer_ipu.py::test_ordinary_optimizers_say_nothing[torch-AdamW]",
    "optimizer-checks-not-relaxed": "test_set_optimizer_ipu.py::test_relaxed_checks_report_nothing",
    "optimizer-state-saved-as-zero": (
        "test_optimizer_state_ipu.py::test_after_a_call_there_is_a_state_for_every_weight[Adam]"
    ),
    "optimizer-state-without-program": "test_optimizer_state_ipu.py::test_before_compiling_there_is_no_state[SGD]",
    "optimizer-state-lost-on-detach": "test_optimizer_state_ipu.py::test_detaching_brings_the_state_to_the_host[SGD]",
    "optimizer-groups-not-restored": "test_optimizer_state_ipu.py::test_hyper_parameters_are_restored_too",
    "extra-arguments-dropped": "test_variable_attributes_ipu.py::test_extra_attributes_can_be_read_and_set[LAMB]",
    "optimizer-state-not-restored": (
        "test_optimizer_state_ipu.py::test_a_restored_run_has_the_bits_of_one_without_a_break[Adam]"
    ),
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of optimizers."""
    own = {fault.name for fault in faults.table() if fault.point in optim.POINTS}

    assert own == set(KILLING)


RUN_ALL = """
import sys
import pytest
from ipu_conformance.emulator import faults, poptorch

options = ["-q", "--assert=plain", "-p", "no:cacheprovider", "--ipu-target", "emulator"]
pairs = [pair.split("=", 1) for pair in sys.argv[1:]]
print("VERDICT right", int(pytest.main([*options, *sorted({case for _, case in pairs})])))
for fault, case in pairs:
    with faults.inject(fault):
        print("VERDICT", fault, int(pytest.main([*options, case])))
"""


def test_every_fault_is_killed_by_its_case() -> None:
    """The named cases pass on the right device, and each fails under its fault; one process runs them all."""
    made = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *(f"{fault}=tests/ipu/poptorch/{case}" for fault, case in KILLING.items())],
        cwd=Path(__file__).parents[4],
        env={name: value for name, value in os.environ.items() if name != faults.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = [line.split()[1:] for line in made.stdout.splitlines() if line.startswith("VERDICT")]

    assert verdicts == [["right", "0"], *([fault, "1"] for fault in KILLING)], made.stdout + made.stderr
