"""Each fault of the passes, of the lowered program and of the dumps is noticed by a case."""

from __future__ import annotations

from ipu_conformance.emulator.faults.decisions import paddle_ir
from tests.unit.emulator import killing

PASSES, SHARD, DUMP = "test_ir_passes_ipu.py", "test_avg_shard_ipu.py", "test_dump_ipu.py"
OPTIMIZER = "test_optimizer_extract_ipu.py"

KILLING = {
    "paddle-decay-left-out": f"{OPTIMIZER}::test_weight_decay_is_folded[lamb]",
    "paddle-decay-halved": f"{OPTIMIZER}::test_weight_decay_is_folded[sgd]",
    "paddle-clip-norm-left-out": f"{OPTIMIZER}::test_clipping_by_the_global_norm_is_folded[sgd]",
    "paddle-settings-left-out": f"{OPTIMIZER}::test_the_settings_of_an_optimizer_are_folded[adadelta]",
    "paddle-loss-is-the-first-op": f"{OPTIMIZER}::test_an_identity_loss_is_the_loss",
    "paddle-optimizer-unfolded": f"{OPTIMIZER}::test_an_optimizer_is_folded_into_one_op[momentum]",
    "paddle-trains-without-optimizer": f"{OPTIMIZER}::test_training_needs_an_optimizer",
    "paddle-any-optimizer": f"{OPTIMIZER}::test_what_an_ipu_cannot_train_with_is_refused[lars_momentum]",
    "paddle-nesterov-accepted": f"{OPTIMIZER}::test_what_an_ipu_cannot_train_with_is_refused[nesterov]",
    "paddle-clip-by-value-accepted": f"{OPTIMIZER}::test_what_an_ipu_cannot_train_with_is_refused[clipping by value]",
    "paddle-clip-by-norm-accepted": f"{OPTIMIZER}::test_what_an_ipu_cannot_train_with_is_refused[clipping by norm]",
    "paddle-l1-accepted": f"{OPTIMIZER}::test_what_an_ipu_cannot_train_with_is_refused[L1Decay]",
    "paddle-power-not-counted": f"{OPTIMIZER}::test_the_step_counts_what_was_trained_before[4]",
    "paddle-backward-kept": f"{OPTIMIZER}::test_only_the_forward_pass_is_kept[sgd]",
    "paddle-scale-kept": f"{PASSES}::test_chains_of_scales_are_deleted",
    "paddle-every-scale-deleted": f"{PASSES}::test_a_scale_that_changes_nothing_is_deleted[2.0-0.0-True]",
    "paddle-batch-of-one": f"{PASSES}::test_a_leading_unknown_becomes_the_micro_batch[7]",
    "paddle-shapes-not-inferred": f"{PASSES}::test_a_leading_unknown_becomes_the_micro_batch[4]",
    "paddle-types-not-narrowed": f"{PASSES}::test_feeds_have_at_most_32_bits[int64-int32]",
    "paddle-wide-results-kept": f"{PASSES}::test_indices_are_compared_with_labels_that_were_fed[topk]",
    "paddle-never-averaged": f"{SHARD}::test_shards_of_the_user_are_replaced",
    "paddle-always-averaged": f"{SHARD}::test_nothing_is_cut_unasked[4]",
    "paddle-average-of-all-ipus": f"{SHARD}::test_replicas_share_the_ipus[6-2]",
    "paddle-average-one-later": f"{SHARD}::test_the_backward_pass_is_not_counted",
    "paddle-average-rest-first": f"{SHARD}::test_runs_are_equally_long_and_the_last_takes_the_rest[7-3]",
    "paddle-average-without-stages": f"{SHARD}::test_stages_are_the_indices[3]",
    "paddle-unknown-ops-dropped": f"{PASSES}::test_ops_without_a_handler_are_refused[erfinv]",
    "paddle-names-not-canonical": f"{PASSES}::test_a_network_becomes_ops_of_popart",
    "paddle-placement-lost": f"{PASSES}::test_canonical_ops_are_where_their_op_was[given1]",
    "paddle-rename-missing": f"{PASSES}::test_a_value_that_is_written_again_is_renamed",
    "paddle-runtime-beside-ops": f"{PASSES}::test_one_runtime_op_is_left[['x']-1]",
    "paddle-runtime-feeds-reversed": f"{PASSES}::test_one_runtime_op_is_left[['y', 'x']-2]",
    "paddle-runtime-fetches-reversed": f"{PASSES}::test_one_runtime_op_is_left[['x', 'y']-2]",
    "paddle-few-batches-accepted": f"{PASSES}::test_a_predictors_pipeline_has_a_batch_for_each_ipu[3]",
    "paddle-predictor-trains": f"{PASSES}::test_a_predictor_does_not_train",
    "paddle-types-not-transferred": f"{PASSES}::test_an_inference_is_transferred_to_float16[True]",
    "paddle-predictor-feeds-reversed": f"{PASSES}::test_a_predictors_feeds_and_fetches_are_put_back",
    "paddle-copies-missing": f"{DUMP}::test_a_drawing_shows_what_the_program_has_by_then[Final-expected4]",
    "paddle-backward-stages-mirrored": f"{DUMP}::test_backward_stages_follow_forward_stages",
    "paddle-all-reduce-missing": f"{DUMP}::test_gradients_are_reduced_over_replicas[2]",
    "paddle-all-reduce-of-one": f"{DUMP}::test_gradients_are_reduced_over_replicas[1]",
    "paddle-accumulation-missing": f"{DUMP}::test_gradients_are_accumulated[4]",
    "paddle-clip-missing": f"{DUMP}::test_gradients_are_clipped[True]",
    "paddle-dump-without-values": f"{DUMP}::test_the_dumped_model_holds_the_weights",
    "paddle-dot-checks-ignored": f"{DUMP}::test_the_ir_is_drawn_at_a_check[Bwd0]",
    "paddle-any-dot-check": f"{DUMP}::test_an_unknown_check_is_refused",
    "paddle-dot-of-the-forward-pass": f"{DUMP}::test_a_drawing_shows_what_the_program_has_by_then[PreAlias-expected3]",
    "paddle-dot-of-all-ops": f"{DUMP}::test_a_part_of_the_program_is_drawn[2-5-3]",
    "paddle-dot-names-always": f"{DUMP}::test_ops_are_drawn_with_their_names_on_request[False]",
    "ir-drop-op": f"{DUMP}::test_a_part_of_the_program_is_drawn[0-10000-7]",
    "ir-wrong-stage": f"{DUMP}::test_the_dumped_model_is_placed",
    "ir-wrong-ipu": f"{DUMP}::test_without_manual_shards_all_is_on_the_first_ipu",
}


def test_every_fault_is_killed() -> None:
    """Each case passes on the right device and fails under its fault."""
    killing.assert_all_killed(KILLING, "paddle")


def test_no_fault_of_the_passes_is_without_a_case() -> None:
    """Each fault that this area registers has a row."""
    assert [
        fault.name
        for fault in killing.registered("paddle")
        if fault.point == paddle_ir.point and fault.name not in KILLING
    ] == []
