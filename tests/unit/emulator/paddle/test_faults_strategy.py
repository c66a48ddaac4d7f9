"""Each fault of strategies, places, sessions and the environment is noticed by a case."""

from __future__ import annotations

from ipu_conformance.emulator.faults.decisions import paddle_strategy
from tests.unit.emulator import killing

OPTIONS, STRATEGY = "test_ipu_options_ipu.py", "test_ipu_strategy_ipu.py"
SHARD, DEVICE = "test_ipu_shard_api_ipu.py", "test_set_device_ipu.py"
COMPILED = "test_ipu_compiled_program_ipu.py"
ENVIRONMENT, LAUNCH = "test_environment_ipu.py", "distributed/test_dist_launch_ipu.py"

KILLING = {
    "paddle-option-forgotten": f"{OPTIONS}::test_an_option_gives_what_was_set_last[num_ipus]",
    "paddle-default-of-another": f"{OPTIONS}::test_an_option_has_its_default_until_it_is_set[num_buffers]",
    "paddle-flags-default-to-the-opposite": f"{OPTIONS}::test_an_option_has_its_default_until_it_is_set[is_training]",
    "paddle-types-unchecked": f"{OPTIONS}::test_a_value_of_another_type_is_refused[loss_scaling-int]",
    "paddle-value-types-unchecked": f"{OPTIONS}::test_a_value_of_no_type_of_options_is_refused[tuple]",
    "paddle-range-unchecked": f"{OPTIONS}::test_an_enumeration_has_a_range[auto_recomputation]",
    "paddle-signs-wrap": f"{OPTIONS}::test_whole_numbers_have_64_bits_and_no_sign[minus one]",
    "paddle-options-all-or-none": f"{OPTIONS}::test_options_are_set_in_order_up_to_the_first_refusal",
    "paddle-options-shared": f"{OPTIONS}::test_strategies_are_independent",
    "paddle-vectors-replaced": f"{OPTIONS}::test_maps_grow[engine_options]",
    "paddle-entries-unchecked": f"{OPTIONS}::test_entries_are_text_or_numbers[dot_checks]",
    "paddle-manual-shard-apart": f"{OPTIONS}::test_manual_sharding_is_a_virtual_graph_mode",
    "paddle-set-only-readable": f"{OPTIONS}::test_some_options_can_only_be_set[custom_op]",
    "paddle-custom-op-keys-unchecked": f"{STRATEGY}::test_a_custom_op_has_four_keys",
    "paddle-locations-unchecked": f"{STRATEGY}::test_tensor_locations_have_known_names[location_weight]",
    "paddle-pattern-stuck": f"{STRATEGY}::test_patterns_are_enabled_and_disabled[InPlace]",
    "paddle-cpu-build": f"{SHARD}::test_guards_nest_to_any_depth",
    "paddle-no-ipus": f"{LAUNCH}::test_poprun_is_run_as_it_was_printed[0]",
    "paddle-device-named-cpu": f"{DEVICE}::test_the_ipu_is_set_as_the_device[ipu]",
    "paddle-place-prints-cpu": f"{DEVICE}::test_places_can_be_made[paddle.base]",
    "paddle-places-equal": f"{DEVICE}::test_a_place_of_the_host_is_no_ipu_place",
    "paddle-feeds-by-name-only": f"{COMPILED}::test_feeds_and_fetches_are_compiled_by_name_or_as_variables[feeds]",
    "paddle-counts-unchecked": f"{ENVIRONMENT}::test_there_is_at_least_one_of_everything[micro_batch_size]",
    "paddle-proportion-unchecked": f"{ENVIRONMENT}::test_a_proportion_of_memory_is_between_0_and_1[7.0]",
    "paddle-attaches-beyond": f"{ENVIRONMENT}::test_only_ipus_that_exist_are_attached[65-128]",
    "paddle-model-ignored": f"{ENVIRONMENT}::test_the_ipu_model_is_one_device[1]",
    "paddle-compile-only-runs": f"{ENVIRONMENT}::test_compiling_only_runs_nothing",
    "paddle-dump-path-of-the-option": f"{ENVIRONMENT}::test_the_dump_of_the_variable_beats_that_of_the_option",
    "paddle-cache-path-ignored": f"{ENVIRONMENT}::test_the_cache_is_written_where_the_variable_says",
    "paddle-cache-of-one": f"{ENVIRONMENT}::test_another_program_has_another_executable",
    "paddle-cache-never-hit": f"{ENVIRONMENT}::test_the_same_program_is_found_again",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the rules that strategies and places follow."""
    own = {fault.name for fault in killing.registered("paddle") if fault.point == paddle_strategy.point}

    assert own == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    killing.assert_all_killed(KILLING, "paddle")
