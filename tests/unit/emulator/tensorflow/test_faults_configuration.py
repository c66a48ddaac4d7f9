"""Each fault of the configuration, devices, the environment, strategies and reports is noticed by a case."""

from __future__ import annotations

from ipu_conformance.emulator.faults.decisions import tensorflow_system
from tests.unit.emulator.killing import assert_all_killed, registered

CONFIG, UTILS, ENVIRONMENT = "test_config_ipu.py", "test_utils_ipu.py", "test_environment_ipu.py"
STRATEGY, REPORTS = "test_strategy_ipu.py", "test_reports_ipu.py"
KILLING = {
    "config-types-unchecked": f"{CONFIG}::test_a_wrong_type_is_refused[allow_recompute]",
    "config-true-not-stored": f"{CONFIG}::test_an_attribute_can_be_set[allow_recompute]",
    "config-deprecation-silent": f"{CONFIG}::test_fast_math_has_a_deprecated_name[True]",
    "config-deprecated-name-dead": f"{CONFIG}::test_fast_math_has_a_deprecated_name[True]",
    "config-no-name-offered": f"{CONFIG}::test_an_unknown_attribute_names_the_nearest"
    "[inv-floating_point_behaviour.inv-get]",
    "config-category-assignable": f"{CONFIG}::test_a_category_cannot_be_assigned[io_tiles]",
    "config-dictionary-incomplete": f"{CONFIG}::test_nothing_is_left_out",
    "config-copy-shares-values": f"{CONFIG}::test_a_deep_copy_is_independent[allow_recompute]",
    "config-two-selections": f"{UTILS}::test_ipus_are_selected_in_one_way",
    "config-model-ids": f"{UTILS}::test_the_ipu_model_has_no_ids",
    "config-set-all-ignored": f"{UTILS}::test_floating_point_behaviour_is_set_all_at_once",
    "config-devices-merged": f"{UTILS}::test_auto_select_makes_devices[[4, 1, 2]-[4, 1, 2]]",
    "config-devices-of-one-ipu": f"{UTILS}::test_auto_select_makes_devices[4-[4]]",
    "config-any-number-of-ipus": f"{UTILS}::test_more_than_there_is_cannot_be_selected[auto_select_ipus-65]",
    "config-first-stays": f"{UTILS}::test_another_configuration_replaces_the_first[auto_select_ipus-4]",
    "config-always-changed": f"{UTILS}::test_the_same_configuration_again_says_nothing",
    "config-replaced-silently": f"{UTILS}::test_another_configuration_replaces_the_first[auto_select_ipus-4]",
    "config-replaced-unasked": f"{UTILS}::test_without_a_reset_another_configuration_is_refused",
    "config-seed-ignored": f"{UTILS}::test_a_seed_repeats_random_numbers",
    "config-initializers-stay": f"{UTILS}::test_variables_are_initialised_on_the_host",
    "devices-not-listed": f"{UTILS}::test_tensorflow_lists_ipu_devices[3-list_physical_devices]",
    "sessions-place-hard": f"{UTILS}::test_sessions_run_on_an_ipu_device[False]",
    "environment-flags-ignored": f"{ENVIRONMENT}::test_synthetic_data_stand_for_several_categories",
    "environment-flags-read-once": f"{ENVIRONMENT}::test_flags_are_read_when_they_are_needed",
    "environment-synthetic-ignored": f"{ENVIRONMENT}::test_synthetic_data_stand_for_everything[Infeed]",
    "environment-model-ignored": f"{ENVIRONMENT}::test_the_ipu_model_is_asked_for[--use_ipu_model]",
    "environment-infeed-real": f"{ENVIRONMENT}::test_synthetic_data_are_not_taken_from_the_host"
    "[--use_synthetic_data-1]",
    "strategy-eager-accepted": f"{STRATEGY}::test_eager_functions_are_refused[function]",
    "strategy-one-replica": f"{STRATEGY}::test_replicas_take_neighbouring_elements[3-2]",
    "strategy-last-result": f"{STRATEGY}::test_the_result_is_that_of_the_first_replica[2]",
    "strategy-elements-reversed": f"{STRATEGY}::test_replicas_have_variables_of_their_own",
    "strategy-functions-shared": f"{STRATEGY}::test_functions_called_by_replicas_see_their_variables",
    "memory-endless": "test_memory_ipu.py::test_a_program_that_no_ipu_holds_is_refused[fit]",
    "report-not-written": f"{REPORTS}::test_the_directory_is_made",
    "report-written-again": f"{REPORTS}::test_a_program_that_is_compiled_once_leaves_one_report",
    "report-folder-misnamed": f"{REPORTS}::test_reports_go_to_the_current_folder",
    "report-replicas-lost": f"{REPORTS}::test_the_profile_tells_of_the_program[2]",
    "report-trace-always": f"{REPORTS}::test_parts_of_a_report_can_be_asked_for[graph]",
    "config-never-reset": f"{UTILS}::test_a_reset_forgets_the_configuration",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of these decisions."""
    own = {fault.name for fault in registered("tensorflow") if fault.point == tensorflow_system.point}

    assert own == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    assert_all_killed(KILLING, "tensorflow")
