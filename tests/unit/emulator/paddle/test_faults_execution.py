"""Each fault of Paddle's execution is noticed by a case: placement, feeds, reduction, updates, weights."""

from __future__ import annotations

from ipu_conformance.emulator.faults.decisions import paddle_execution
from tests.unit.emulator import killing

FEEDS = "test_feed_fetch_ipu.py::"
BATCHES = "test_batches_per_step_ipu.py::"
PIPELINE = "test_model_pipeline_ipu.py::"
SYNC = "test_weights_sync_ipu.py::"
EVALUATION = "test_eval_model_ipu.py::"
COMPILING = "test_compile_ipu.py::"
STATISTICS = "test_batch_norm_statistics_ipu.py::"

KILLING = {
    "paddle-factor-without-switch": PIPELINE + "test_a_factor_needs_its_switch[accumulation_factor]",
    "paddle-pipeline-on-one-ipu": PIPELINE + "test_pipelining_needs_more_than_one_ipu",
    "paddle-uneven-replicas": PIPELINE + "test_replicas_share_the_ipus_evenly[3-2]",
    "paddle-stages-backwards": PIPELINE + "test_a_stage_that_reads_from_a_later_one_is_refused",
    "paddle-shallow-pipeline": PIPELINE + "test_a_pipeline_that_is_too_shallow_is_refused[3-training-accumulation]",
    "paddle-stages-by-index": PIPELINE + "test_a_stage_on_some_ops_only_is_refused[1]",
    "paddle-shards-without-switch": PIPELINE + "test_shards_by_hand_count_only_when_enabled",
    "paddle-always-pipelined": PIPELINE + "test_shards_need_no_depth[2]",
    "paddle-batches-accumulated": "test_equivalence_ipu.py::"
    "test_a_pipeline_without_accumulation_updates_with_every_micro_batch[mlp-2-B5-R3]",
    "paddle-update-per-micro-batch": BATCHES + "test_a_batch_meets_the_weights_of_the_batch_before[B3-G2-R1]",
    "paddle-loss-scale-stays": BATCHES + "test_loss_scaling_cancels[B1-G1-R1-4.0]",
    "paddle-accumulation-not-in-mean": BATCHES + "test_every_batch_of_a_step_updates_once[B3-G4-R2]",
    "paddle-reduction-type-ignored": BATCHES + "test_a_sum_is_not_divided[B3-G2-R1]",
    "paddle-running-mean-is-sum": BATCHES + "test_a_running_mean_is_the_mean[B1-G2-R1]",
    "paddle-gradients-carried-over": BATCHES + "test_every_batch_of_a_step_updates_once[B3-G2-R1]",
    "paddle-first-use-only": "test_weight_sharing_ipu.py::test_a_shared_weight_trains_as_specified[apart-momentum]",
    "paddle-norm-of-one-stage": "test_gradient_clip_ipu.py::test_the_norm_spans_all_stages[mlp-2-pipelined]",
    "paddle-rate-of-compilation": "test_lr_scheduler_ipu.py::test_every_stage_gets_the_rate[step-pipelined]",
    "paddle-evaluation-trains": EVALUATION + "test_evaluation_moves_no_weight[sgd]",
    "paddle-evaluation-decays": EVALUATION + "test_decay_is_not_part_of_the_moments_in_evaluation",
    "paddle-power-comes-home": SYNC + "test_the_power_of_beta1_counts_steps[Adam]",
    "paddle-host-follows": SYNC + "test_host_weights_stay_stale[1]",
    "paddle-inference-comes-home": SYNC + "test_inference_brings_nothing_home",
    "paddle-last-replica-comes-home": STATISTICS + "test_statistics_move_with_every_micro_batch_of_a_replica[B2-G4-R3]",
    "paddle-detach-loses-weights": SYNC + "test_weights_come_home[1-detach]",
    "paddle-reset-loses-weights": SYNC + "test_weights_come_home[1-reset]",
    "paddle-scope-loses-weights": SYNC + "test_weights_come_home[1-set_scope]",
    "paddle-strategy-loses-weights": SYNC + "test_weights_come_home[1-set_ipu_strategy]",
    "paddle-saving-loses-weights": SYNC + "test_saving_the_model_brings_weights_home",
    "paddle-replaced-program-runs": COMPILING + "test_the_device_holds_the_last_program_only",
    "paddle-detached-runs": COMPILING + "test_a_detached_device_runs_nothing",
    "paddle-any-feed": FEEDS + "test_a_feed_of_another_size_is_refused[one-less-B2-G4-R3]",
    "paddle-other-fetch": FEEDS + "test_what_was_not_compiled_cannot_be_fetched",
    "paddle-fetches-sorted": FEEDS + "test_a_run_may_fetch_less_and_in_another_order[out-loss-out]",
    "paddle-shape-in-slot-order": FEEDS + "test_fetches_have_the_reported_shape[B2-G4-R3-training]",
    "paddle-one-batch-reported": FEEDS + "test_fetches_have_the_reported_shape[B1-G4-R2-inference]",
    "paddle-scalar-without-dimension": FEEDS + "test_fetches_have_the_reported_shape[B3-G1-R1-inference]",
    "paddle-never-traps": "test_floating_point_ipu.py::test_a_check_stops_the_run[invalid]",
    "paddle-memory-without-end": "test_memory_ipu.py::test_what_does_not_fit_is_refused[weights]",
    "paddle-drops-without-seed": "test_dropout_ipu.py::test_a_seed_decides_what_is_dropped",
    "paddle-drops-same-for-every-micro-batch": "test_dropout_ipu.py::test_equal_micro_batches_are_dropped_differently",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the execution."""
    assert {fault.name for fault in killing.registered("paddle") if fault.point == paddle_execution.point} == set(
        KILLING
    )


def test_every_fault_is_killed_by_its_case() -> None:
    """Each case passes on the right device and fails under its fault."""
    killing.assert_all_killed(KILLING, "paddle")
