"""Each fault of placement and of PopTorch's operations is noticed by a case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults.poptorch import ops, placement


def _case(area: str, name: str) -> str:
    return f"tests/ipu/poptorch/test_{area}_ipu.py::test_{name}"


KILLING = {
    "block-ipu-ignored": _case("blocks", "every_spelling_places_the_layers[with]"),
    "closed-block-goes-on": _case("blocks", "operations_outside_a_closed_block_are_refused[_after_with]"),
    "operations-outside-blocks-accepted": _case("blocks", "operations_outside_a_closed_block_are_refused[_between]"),
    "started-block-ends-with-the-next-scope": _case("blocks", "a_block_inside_a_block_ends_with_its_own"),
    "automatic-ids-from-one": _case("pipelining", "auto_ids_count_blocks_without_an_id"),
    "automatic-stages-from-zero": _case("pipelining", "auto_increment_numbers_blocks_from_one"),
    "pipeline-limit-unchecked": _case(
        "pipelining", "training_needs_an_accumulation_of_twice_the_stages_less_one[(0, 1)-2]"
    ),
    "pipeline-limit-one-too-high": _case("pipelining", "an_accumulation_of_twice_the_stages_less_one_trains[(0, 1)-3]"),
    "skipped-ipus-not-counted": _case("ipu_count", "a_number_that_is_no_power_of_two_is_refused[ipus3-1-3]"),
    "any-number-of-ipus-reserved": _case("ipu_count", "a_number_that_is_no_power_of_two_is_refused[ipus0-1-3]"),
    "model-needs-a-power-of-two": _case("ipu_count", "the_model_of_an_ipu_takes_any_number[ipus0-1]"),
    "rounding-up-ignored": _case("ipu_count", "auto_rounding_reserves_a_power_of_two[ipus0-1-3]"),
    "phase-parity-unchecked": _case("phased", "the_parity_of_parallel_phases_is_checked[0-ipus0]"),
    "phase-order-unchecked": _case("phased", "phases_run_in_order"),
    "control-flow-trains": _case("for_loop", "a_loop_does_not_train"),
    "unused-print-runs": _case("ops", "a_print_that_nobody_uses_is_optimized_away"),
    "loss-mean-is-sum": _case("ops", "identity_loss_sends_ones_back[mean-0.125]"),
    "print-is-silent": _case("ops", "a_tensor_is_printed_when_it_is_computed"),
    "gradient-is-not-printed": _case("ops", "the_gradient_is_printed_too[True]"),
    "loop-runs-once-more": _case("for_loop", "a_loop_runs_its_body_that_often[2]"),
    "condition-is-inverted": _case("for_loop", "a_condition_chooses_a_body[True]"),
    "both-branches-have-effects": _case("for_loop", "only_the_chosen_body_has_effects[True]"),
    "slice-starts-one-late": _case("ops", "a_slice_begins_where_the_device_says[1-2-1-0]"),
    "slice-does-not-wrap": _case("ops", "a_slice_wraps_round"),
    "update-starts-one-late": _case("ops", "an_update_replaces_a_slice[2]"),
    "last-piece-of-product-lost": _case("ops", "a_product_in_pieces_is_the_product[2-ReducingDim]"),
    "pieces-lose-precision": _case("ops", "parts_of_a_half_precision_sum_keep_their_precision"),
    "host-is-called-at-compile-time-only": _case("cpu_op", "the_host_computes_in_the_middle"),
    "ctc-repeats-are-kept": _case("ctc", "repeated_labels_merge_unless_a_blank_is_between"),
    "ctc-lengths-ignored": _case("ctc", "steps_beyond_a_length_do_not_count"),
    "nearest-point-sampled": _case("ops", "fps_takes_the_farthest_points"),
    "nearest-across-batches": _case("ops", "nearest_stays_within_the_batch"),
    "group-settings-unchecked": _case(
        "multiconv", "there_is_one_value_for_each_convolution[availableMemoryProportions-value0]"
    ),
    "name-scope-lost": _case("name_scope", "a_scope_comes_before_the_name"),
    "attributes-lost": _case("name_scope", "an_attribute_reaches_the_operation"),
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of placement and of operations."""
    points = (placement.POINT, ops.POINT)

    assert {fault.name for fault in faults.table() if fault.point in points} == set(KILLING)


RUN = """
import json, sys
import pytest
from ipu_conformance.emulator import faults, poptorch


class Injecting:
    # Runs every case under its fault, if it has one, and notes what came of it.
    def __init__(self, fault_of):
        self.fault_of = fault_of
        self.outcomes = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        with faults.inject(*self.fault_of.get(item.nodeid, ())):
            yield

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            self.outcomes[report.nodeid] = report.outcome


for fault_of in json.loads(sys.argv[1]):
    plugin = Injecting(fault_of)
    options = ["-q", "--assert=plain", "-p", "no:cacheprovider", "--tb=line", "--ipu-target", "emulator"]
    pytest.main([*options, *fault_of], plugins=[plugin])
    print("OUTCOMES", json.dumps(plugin.outcomes))
"""


def _rounds() -> List[Dict[str, List[str]]]:
    """First every case without a fault; then all faults, in as few rounds as give each a case of its own."""
    rounds: List[Dict[str, List[str]]] = [{case: [] for case in KILLING.values()}]
    for fault, case in KILLING.items():
        free = next((one for one in rounds[1:] if case not in one), None)
        if free is None:
            free = {}
            rounds.append(free)
        free[case] = [fault]
    return rounds


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault; one process runs them all."""
    rounds = _rounds()
    made = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(rounds)],
        cwd=Path(__file__).parents[4],
        env={name: value for name, value in os.environ.items() if name != faults.ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes = [json.loads(line.split(" ", 1)[1]) for line in made.stdout.splitlines() if line.startswith("OUTCOMES")]
    expected = [dict.fromkeys(one, "failed" if number else "passed") for number, one in enumerate(rounds)]

    assert outcomes == expected, made.stdout + made.stderr
