"""Each fault of the configuration, the environment, strategies and reports is noticed by a case."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow import faults_configuration
from tests.unit.emulator.killing import assert_all_killed, registered

CONFIG, UTILS = "test_config_ipu.py", "test_utils_ipu.py"
KILLING = {
    "config-types-unchecked": f"{CONFIG}::test_a_wrong_type_is_refused[allow_recompute]",
    "config-true-not-stored": f"{CONFIG}::test_an_attribute_can_be_set[allow_recompute]",
    "config-dictionary-incomplete": f"{CONFIG}::test_nothing_is_left_out",
    "config-copy-shares-values": f"{CONFIG}::test_a_deep_copy_is_independent[allow_recompute]",
    "config-category-assignable": f"{CONFIG}::test_a_category_cannot_be_assigned[io_tiles]",
    "config-devices-merged": f"{UTILS}::test_auto_select_makes_devices[[4, 1, 2]-[4, 1, 2]]",
    "config-devices-of-one-ipu": f"{UTILS}::test_auto_select_makes_devices[4-[4]]",
    "config-first-stays": f"{UTILS}::test_another_configuration_replaces_the_first[auto_select_ipus-4]",
    "config-always-changed": f"{UTILS}::test_the_same_configuration_again_says_nothing",
    "config-seed-ignored": f"{UTILS}::test_a_seed_repeats_random_numbers",
    "config-initializers-stay": f"{UTILS}::test_variables_are_initialised_on_the_host",
    "environment-flags-ignored": "test_environment_ipu.py::test_the_ipu_model_is_asked_for[--use_ipu_model]",
    "environment-model-stuck": "test_environment_ipu.py::test_flags_are_read_when_they_are_needed",
    "strategy-last-result": "test_strategy_ipu.py::test_the_result_is_that_of_the_first_replica[2]",
    "report-not-written": "test_reports_ipu.py::test_the_directory_is_made",
    "report-folder-misnamed": "test_reports_ipu.py::test_reports_go_to_the_current_folder",
    "report-replicas-lost": "test_reports_ipu.py::test_the_profile_tells_of_the_program[2]",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of these points."""
    own = {fault.name for fault in registered("tensorflow") if fault.point in faults_configuration.POINTS}

    assert own == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    assert_all_killed(KILLING, "tensorflow")
