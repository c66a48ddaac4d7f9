"""Each fault of the execution is noticed by a case: plans, streams, reduction, updates, weights, arithmetic, chance."""

from __future__ import annotations

from .. import killing

POINTS = (
    "plan.slots",
    "streams.split",
    "streams.join",
    "execute.boundary",
    "reduce.gradients",
    "update.step",
    "weights.to_host",
    "weights.to_device",
    "numerics.round",
    "numerics.partials",
    "numerics.narrow",
    "draw.seed",
    "draw.dropout",
)
TRACE = "test_trace_ipu.py::test_training_executes_its_plan[pipelined-3]"
WHOLE = "test_equivalence_ipu.py::test_a_net_trains_as_specified[mlp]"
PIPELINE = "test_equivalence_ipu.py::test_a_cut_net_trains_as_specified[mlp-pipelined-3]"
ORDER = "test_equivalence_ipu.py::test_losses_come_back_in_the_order_of_the_feed[pipelined]"
REPLICAS = "test_replication_ipu.py::test_replicas_hold_identical_weights[mlp-D1-G2-R3]"
DROPOUT = "test_dropout_ipu.py::"
PRECISION = "test_precision_ipu.py::"

KILLING = {
    "micro-batch-repeated": TRACE,
    "micro-batches-out-of-order": TRACE,
    "last-backward-left-out": PIPELINE,
    "last-slot-dropped": TRACE,
    "last-ticks-swapped": TRACE,
    "all-stages-on-ipu-zero": "test_program_ipu.py::test_the_trace_of_the_program_is_its_plan[1]",
    "micro-batch-zero-always": ORDER,
    "replica-order-swapped": ORDER,
    "device-iterations-transposed": ORDER,
    "accumulation-and-replicas-transposed": ORDER,
    "last-micro-batch-lost": ORDER,
    "outputs-in-reverse-iterations": ORDER,
    "outputs-of-replica-zero-only": ORDER,
    "first-accumulated-output-only": ORDER,
    "boundary-stale-by-one": PIPELINE,
    "boundary-halved": "test_equivalence_ipu.py::test_a_cut_changes_no_bit[mlp-sharded-3]",
    "last-replica-not-reduced": "test_replication_ipu.py::test_replicas_are_worth_accumulation[mlp-D1-G2-R3]",
    "first-replica-only": WHOLE,
    "sum-instead-of-mean": "test_replication_ipu.py::test_gradients_are_reduced_as_asked[mlp-mean-single]",
    "gradient-sign-flipped": WHOLE,
    "update-skipped-on-odd-steps": WHOLE,
    "update-skipped-on-last-replica": REPLICAS,
    "update-halved": WHOLE,
    "weights-not-synced-to-host": WHOLE,
    "last-weight-not-synced-to-host": WHOLE,
    "weights-not-sent-to-device": "test_evaluation_ipu.py::test_what_was_learned_is_evaluated[mlp-single]",
    "weights-sent-in-float16": "test_evaluation_ipu.py::test_what_was_learned_is_evaluated[mlp-single]",
    "round-toward-zero": "test_floating_point_ipu.py::test_stochastic_rounding_reaches_both_neighbours[True]",
    "stochastic-rounding-off": PRECISION + "test_stochastic_rounding_follows_the_seed",
    "float16-subnormals-flushed": PRECISION + "test_small_values_survive_stochastic_rounding",
    "float32-instead-of-float16": PRECISION + "test_small_values_survive_stochastic_rounding",
    "float16-partials": "test_floating_point_ipu.py::test_partial_sums_in_float16_lose_low_bits",
    "int64-not-narrowed": PRECISION + "test_wide_types_are_narrowed_on_the_device[int64-int32]",
    "float64-not-narrowed": PRECISION + "test_wide_types_are_narrowed_on_the_device[float64-float32]",
    "seed-ignored": DROPOUT + "test_seeds_give_independent_masks",
    "masks-never-repeat": DROPOUT + "test_a_seed_decides_every_mask[1]",
    "masks-same-in-every-run": DROPOUT + "test_no_two_masks_know_of_each_other[single]",
    "masks-same-on-every-replica": DROPOUT + "test_dropout_drops_at_its_rate[0.5]",
    "masks-same-for-every-micro-batch": DROPOUT + "test_dropout_drops_at_its_rate[0.5]",
    "dropout-not-scaled": DROPOUT + "test_dropout_drops_at_its_rate[0.5]",
    "dropout-keeps-more": DROPOUT + "test_dropout_drops_at_its_rate[0.5]",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the execution."""
    assert {fault.name for fault in killing.registered("poptorch") if fault.point in POINTS} == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    killing.assert_all_killed(KILLING, "poptorch")
