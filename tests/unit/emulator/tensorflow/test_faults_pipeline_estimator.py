"""Each fault of pipelined estimators is noticed by a case."""

from __future__ import annotations

from ipu_conformance.emulator.faults.tensorflow import pipeline_estimator
from tests.unit.emulator.killing import assert_all_killed, registered

CASES, ERRORS = "test_pipeline_estimator_ipu.py", "test_pipeline_estimator_errors_ipu.py"
NEEDED, TYPES = f"{ERRORS}::test_a_mode_needs_its_settings", f"{ERRORS}::test_wrong_types_are_refused"
WEIGHTS, LOSS = f"{CASES}::test_weights_are_those_of_a_plain_loop", f"{CASES}::test_the_loss_is_the_mean_of_the_loop"
REDUCED = f"{CASES}::test_gradients_are_reduced_as_asked"
KILLING = {
    "pipelined-any-mode": f"{ERRORS}::test_a_mode_is_one_of_three",
    "pipelined-any-stages": f"{TYPES}[computational_stages-function]",
    "pipelined-count-guessed": f"{NEEDED}[train-gradient_accumulation_count]",
    "pipelined-count-converted": f"{TYPES}[gradient_accumulation_count-text]",
    "pipelined-count-not-positive": f"{ERRORS}::test_a_count_is_positive[0]",
    "pipelined-without-optimizer": f"{NEEDED}[train-optimizer_function]",
    "pipelined-without-metrics": f"{NEEDED}[eval-eval_metrics_fn]",
    "pipelined-any-optimizer": f"{TYPES}[optimizer_function-optimizer]",
    "pipelined-any-metrics": f"{TYPES}[eval_metrics_fn-dictionary]",
    "pipelined-options-overridden": f"{ERRORS}::test_options_that_the_estimator_sets_are_refused[infeed_queue]",
    "pipelined-any-hooks": f"{TYPES}[training_hooks-function]",
    "pipelined-hooks-forgotten": f"{CASES}::test_hooks_of_the_specification_see_their_loops[training_hooks]",
    "pipelined-any-arguments": f"{ERRORS}::test_a_model_function_asks_for_what_is_known",
    "pipelined-any-specification": f"{ERRORS}::test_a_model_function_returns_a_pipeline[nothing]",
    "pipelined-partial-loop": f"{ERRORS}::test_a_loop_holds_whole_runs[6-train]",
    "pipelined-run-missing": f"{WEIGHTS}[Grouped-R1]",
    "pipelined-mapping-ignored": f"{WEIGHTS}[last-on-first]",
    "pipelined-options-ignored": f"{REDUCED}[SUM]",
    "pipelined-reduction-ignored": f"{REDUCED}[MEAN]",
    "pipelined-loss-undivided": f"{LOSS}[Grouped-R1]",
    "pipelined-loss-last-run": f"{LOSS}[Grouped-R1]",
    "pipelined-loss-first-replica": f"{LOSS}[Grouped-R2]",
    "pipelined-loss-not-accumulated": f"{LOSS}[Grouped-R1]",
    "pipelined-loss-type-ignored": f"{CASES}::test_losses_are_added_up_in_their_own_type",
    "pipelined-metrics-invented": f"{ERRORS}::test_metrics_hold_the_loss[other]",
    "pipelined-outputs-backwards": f"{CASES}::test_predictions_come_in_the_order_of_the_samples[one-loop]",
    "pipelined-outputs-repeated": f"{CASES}::test_evaluation_sees_every_sample[one-loop]",
    "pipelined-names-lost": f"{CASES}::test_predictions_have_names",
    "pipelined-first-prediction": f"{ERRORS}::test_several_predictions_have_names",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each of these faults."""
    own = {fault.name for fault in registered("tensorflow") if fault.wrong.__module__ == pipeline_estimator.__name__}

    assert own == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    assert_all_killed(KILLING, "tensorflow")
