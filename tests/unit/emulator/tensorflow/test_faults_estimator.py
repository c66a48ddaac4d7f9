"""Each fault of an estimator is noticed by a case."""

from __future__ import annotations

from ipu_conformance.emulator.faults.tensorflow import estimator
from tests.unit.emulator.killing import assert_all_killed, registered

TRAIN, EVALUATE, PREDICT, ERRORS, CONFIG, REPLICATION, HOOKS, CHECKPOINTS, REPORTS, SERVICES = (
    f"test_estimator_{area}_ipu.py"
    for area in (
        "train", "evaluate", "predict", "errors", "config", "replication", "hooks", "checkpoints", "reports", "services"
    )
)  # fmt: skip
KILLING = {
    "estimator-steps-cut": f"{TRAIN}::test_steps_are_whole_loops[3-2]",
    "estimator-max-steps-down": f"{TRAIN}::test_max_steps_is_rounded_up[3-2-4]",
    "estimator-one-loop-more": f"{TRAIN}::test_max_steps_is_rounded_up[4-2-4]",
    "estimator-steps-are-loops": f"{SERVICES}::test_counting_steps_is_the_estimator_s[4]",
    "estimator-steps-not-counted": f"{SERVICES}::test_counting_steps_is_the_estimator_s[1]",
    "estimator-step-counted-twice": f"{ERRORS}::test_the_global_step_is_not_the_model_function_s[minimize]",
    "estimator-endless-evaluation": f"{EVALUATE}::test_evaluation_names_its_steps",
    "estimator-evaluation-longer": f"{HOOKS}::test_hooks_of_evaluation_are_called_around_loops",
    "estimator-checkpoints-late": f"{CHECKPOINTS}::test_checkpoints_are_written_after_loops[4-written1]",
    "estimator-data-end-hidden": f"{ERRORS}::test_data_that_end_within_a_loop_are_an_error[3-2]",
    "estimator-any-config": f"{ERRORS}::test_the_configuration_is_one_for_ipus[stock]",
    "estimator-any-spec": f"{ERRORS}::test_a_model_function_returns_a_spec[None]",
    "estimator-any-input": f"{ERRORS}::test_an_input_function_returns_a_data_set[train]",
    "estimator-labels-dropped": f"{ERRORS}::test_labels_need_an_argument",
    "estimator-metrics-twice": f"{EVALUATE}::test_metrics_are_on_the_host_or_on_the_device",
    "estimator-any-metrics": f"{ERRORS}::test_metrics_on_the_host_are_a_function_and_tensors['mean']",
    "estimator-any-host-call": f"{HOOKS}::test_a_host_call_is_a_function_and_tensors['function']",
    "estimator-host-call-in-loop": f"{HOOKS}::test_a_host_call_needs_loops_of_one_step",
    "estimator-no-prediction": f"{ERRORS}::test_a_number_of_predictions_is_positive[0]",
    "estimator-loop-of-none": f"{CONFIG}::test_numbers_are_positive[0-iterations_per_loop]",
    "estimator-no-replicas": f"{CONFIG}::test_numbers_are_positive[0-num_replicas]",
    "estimator-no-shards": f"{CONFIG}::test_numbers_are_positive[-1-num_shards]",
    "estimator-any-ipus": f"{CONFIG}::test_ipus_that_are_too_many_or_too_few_are_refused[2-1-1]",
    "estimator-shards-unchecked": f"{ERRORS}::test_a_model_has_no_more_shards_than_were_asked_for",
    "estimator-options-ignored": f"{SERVICES}::test_configuring_follows_each_estimator",
    "estimator-on-the-host": f"{SERVICES}::test_scoping_places_the_model_on_the_device[predict]",
    "estimator-first-device": f"{CONFIG}::test_the_ordinal_names_the_device[1]",
    "estimator-replicas-apart": f"{REPLICATION}::test_replicas_must_meet",
    "estimator-loss-summed": f"{TRAIN}::test_the_loss_of_a_loop_is_the_mean[2]",
    "estimator-loss-of-one-replica": f"{REPLICATION}::test_the_loss_is_the_mean_over_replicas_too[2-2]",
    "estimator-metrics-first-only": f"{EVALUATE}::test_metrics_on_the_host_see_every_element[2]",
    "estimator-device-metrics-lost": f"{EVALUATE}::test_metrics_on_the_device_see_every_element[2]",
    "estimator-host-call-skipped": f"{HOOKS}::test_a_host_call_gets_the_tensors[1]",
    "estimator-host-call-doubled": f"{HOOKS}::test_a_host_call_gets_the_tensors[1]",
    "estimator-predictions-go-on": f"{PREDICT}::test_as_many_predictions_come_as_are_asked_for[1]",
    "estimator-predictions-end": f"{PREDICT}::test_predictions_are_endless",
    "estimator-predictions-reversed": f"{PREDICT}::test_predictions_come_in_the_order_of_the_input[4]",
    "estimator-keys-ignored": f"{PREDICT}::test_predictions_are_chosen_by_their_keys[['input']]",
    "estimator-batches-whole": f"{PREDICT}::test_a_batch_comes_as_single_predictions",
    "estimator-batches-parted": f"{PREDICT}::test_a_batch_may_stay_whole",
    "estimator-predicts-with-labels": f"{PREDICT}::test_the_mode_is_that_of_prediction",
    "estimator-training-hooks-lost": f"{HOOKS}::test_a_model_function_brings_hooks[training]",
    "estimator-evaluation-hooks-lost": f"{HOOKS}::test_a_model_function_brings_hooks[evaluation]",
    "estimator-prediction-hooks-lost": f"{HOOKS}::test_a_model_function_brings_hooks[prediction]",
    "estimator-warm-start-cold": f"{CHECKPOINTS}::test_a_warm_start_takes_weights_from_another_model[folder-chosen0]",
    "estimator-logs-always": f"{HOOKS}::test_not_every_loop_is_logged",
    "estimator-logs-again": f"{HOOKS}::test_a_hook_logs_once_in_a_program",
    "estimator-report-of-inference": f"{REPORTS}::test_the_older_report_is_that_of_training[1]",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each of these faults."""
    own = {fault.name for fault in registered("tensorflow") if fault.wrong.__module__ == estimator.__name__}

    assert own == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    assert_all_killed(KILLING, "tensorflow")
