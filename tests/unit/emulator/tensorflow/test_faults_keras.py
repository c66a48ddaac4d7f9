"""Each fault of Keras models is noticed by a case."""

from __future__ import annotations

from ..killing import assert_all_killed, registered

FIT, ERRORS = "test_keras_fit_ipu.py::test_", "test_keras_errors_ipu.py::test_"
REPLICATION, ACCUMULATION = "test_keras_replication_ipu.py::test_", "test_keras_accumulation_ipu.py::test_"
PIPELINING, STAGES = "test_keras_pipelining_ipu.py::test_", "test_keras_stages_ipu.py::test_"
CALLBACKS, EVALUATE = "test_keras_callbacks_ipu.py::test_", "test_keras_evaluate_ipu.py::test_"
SAVING = "test_keras_saving_ipu.py::test_"

KILLING = {
    "keras-step-lost": FIT + "a_net_trains_as_specified[linear]",
    "keras-any-execution": FIT + "an_execution_divides_the_steps[2]",
    "keras-long-execution-refused": FIT + "a_longer_execution_is_cut_with_a_warning[4]",
    "keras-remainder-silent": EVALUATE + "batches_that_fill_no_step_are_dropped",
    "keras-remainder-kept": REPLICATION + "arrays_drop_the_remainder_of_every_epoch",
    "keras-any-accumulation": ACCUMULATION + "an_execution_holds_whole_accumulations[4-3]",
    "keras-generators-accepted": ERRORS + "generators_are_refused[predict]",
    "keras-partial-batch-accepted": ERRORS + "partial_batches_of_arrays_are_refused[5-2-predict]",
    "keras-shapes-unchecked": ERRORS + "a_shape_is_fully_defined[predict]",
    "keras-float64-kept": FIT + "float64_becomes_float32[predict]",
    "keras-size-unknown": ERRORS + "the_size_of_the_data_is_known[predict]",
    "keras-one-replica": REPLICATION + "every_kind_of_model_is_replicated[functional]",
    "keras-half-a-replica": PIPELINING + "a_device_holds_whole_replicas[3-2]",
    "keras-any-count": PIPELINING + "a_count_that_the_schedule_cannot_repeat_is_refused[grouped-2-2]",
    "keras-interleaved-shared": PIPELINING + "the_interleaved_schedule_needs_an_ipu_for_each_stage",
    "keras-count-guessed": PIPELINING + "a_pipeline_needs_a_count_to_train",
    "keras-eager-accepted": ERRORS + "eager_execution_is_refused[predict]",
    "keras-batch-on-one-replica": FIT + "single_batches_run_on_one_replica[predict_on_batch-2]",
    "keras-first-options-stay": ACCUMULATION + "accumulation_can_be_changed_between_fits",
    "keras-own-step-ignored": ERRORS + "a_pipeline_has_no_step_of_its_own",
    "keras-statistics-apart": EVALUATE + "replicas_evaluate_with_the_statistics_of_the_first",
    "keras-reserved-accepted": ACCUMULATION + "reserved_options_are_refused[opt]",
    "keras-reduction-unchecked": ACCUMULATION + "an_unknown_reduction_method_is_refused[median]",
    "keras-always-sum": ACCUMULATION + "accumulation_trains_as_specified[2-mean]",
    "keras-metrics-otherwise": REPLICATION + "metrics_are_reduced_as_asked[LIST]",
    "keras-accumulated-logs-added": PIPELINING + "an_accumulated_outfeed_returns_the_mean_of_a_run[accumulated]",
    "keras-logs-of-first-step": CALLBACKS + "synchronous_callbacks_get_the_last_step[accumulating]",
    "keras-extended-everywhere": FIT + "models_of_a_scope_have_the_methods[sequential-set_pipelining_options]",
    "keras-stage-without-scope": STAGES + "a_stage_needs_a_scope",
    "keras-stages-nest": STAGES + "stages_do_not_nest",
    "keras-stage-of-call-lost": STAGES + "scopes_assign_the_layers_called_inside[functional]",
    "keras-layer-without-stage": STAGES + "every_layer_of_a_pipeline_has_a_stage",
    "keras-stages-backwards": STAGES + "stages_follow_the_data[backwards-sequential]",
    "keras-stages-with-gaps": STAGES + "stages_follow_the_data[gap-sequential]",
    "keras-assignment-ignored": STAGES + "an_assignment_that_is_set_is_returned[functional]",
    "keras-reset-ignored": STAGES + "a_reset_takes_the_pipeline_back[functional]",
    "keras-summary-without-stages": STAGES + "a_summary_names_layers_and_stages[sequential]",
    "keras-stages-not-regularised": FIT + "regularisation_is_part_of_the_loss[pipelined]",
    "keras-last-step-called-only": CALLBACKS + "asynchronous_callbacks_fire_for_every_step[2]",
    "keras-steps-called-backwards": CALLBACKS + "asynchronous_callbacks_fire_for_every_step[2]",
    "keras-epoch-hurries": CALLBACKS + "an_epoch_ends_after_its_steps",
    "keras-callback-error-lost": CALLBACKS + "an_error_in_an_asynchronous_callback_reaches_fit",
    "keras-host-writes-to-one": SAVING + "what_the_host_writes_reaches_every_replica[assign]",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of Keras models."""
    own = {fault.name for fault in registered("tensorflow") if fault.name.startswith("keras-")}

    assert own == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    assert_all_killed(KILLING, "tensorflow")
