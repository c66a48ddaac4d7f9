"""Each fault of the core is noticed by a case of Paddle: plans, streams, reduction, updates, weights, arithmetic."""

from __future__ import annotations

from ipu_conformance.emulator import faults
from tests.unit.emulator import killing

TRACE = "test_trace_ipu.py::test_training_executes_its_plan[pipelined-3]"
WHOLE = "test_equivalence_ipu.py::test_a_net_trains_as_specified[mlp]"
PIPELINE = "test_equivalence_ipu.py::test_a_cut_net_trains_as_specified[mlp-pipelined-3-B2-G5-R1]"
ORDER = "test_equivalence_ipu.py::test_losses_come_back_in_the_order_of_the_feed[pipelined]"
REPLICAS = "test_replication_ipu.py::test_replicas_hold_identical_weights[mlp-B1-G2-R3]"
MEAN = "test_replication_ipu.py::test_gradients_are_reduced_as_asked[mlp-mean-single]"
FEEDS = "test_feed_fetch_ipu.py::"
HALF = "test_fp16_support_ipu.py::"

KILLING = {
    "micro-batch-repeated": TRACE,
    "micro-batches-out-of-order": TRACE,
    "last-backward-left-out": PIPELINE,
    "last-slot-dropped": TRACE,
    "last-ticks-swapped": TRACE,
    "all-stages-on-ipu-zero": TRACE,
    "micro-batch-zero-always": ORDER,
    "replica-order-swapped": ORDER,
    "device-iterations-transposed": ORDER,
    "accumulation-and-replicas-transposed": ORDER,
    "last-micro-batch-lost": ORDER,
    "outputs-in-reverse-iterations": ORDER,
    "outputs-of-replica-zero-only": ORDER,
    "first-accumulated-output-only": ORDER,
    "boundary-stale-by-one": PIPELINE,
    "boundary-halved": "test_equivalence_ipu.py::test_a_cut_changes_no_bit[mlp-sharded-3-B2-G5-R1]",
    "last-replica-not-reduced": "test_replication_ipu.py::test_replicas_are_worth_accumulation[mlp-B1-G2-R3]",
    "first-replica-only": WHOLE,
    "sum-instead-of-mean": MEAN,
    "gradient-sign-flipped": WHOLE,
    "update-skipped-on-odd-steps": WHOLE,
    "update-skipped-on-last-replica": REPLICAS,
    "update-halved": WHOLE,
    "weights-not-synced-to-host": WHOLE,
    "last-weight-not-synced-to-host": "test_optimizer_ipu.py::test_the_state_comes_home_with_the_weights[momentum]",
    "weights-not-sent-to-device": WHOLE,
    "weights-sent-in-float16": "test_inference_after_training_ipu.py::test_what_was_learned_is_used[mlp-single]",
    "round-toward-zero": HALF + "test_sums_are_rounded_to_nearest_even[float16]",
    "stochastic-rounding-off": HALF + "test_stochastic_rounding_goes_both_ways",
    "float16-subnormals-flushed": HALF + "test_small_values_lose_bits_gradually",
    "float32-instead-of-float16": HALF + "test_sums_are_rounded_to_nearest_even[float16]",
    "float16-partials": HALF + "test_partial_sums[float]",
    "int64-not-narrowed": FEEDS + "test_large_integers_wrap[4294967301-5]",
    "float64-not-narrowed": FEEDS + "test_a_float64_loses_the_bits_of_a_float32",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the core but of its IR."""
    core = [fault for fault in killing.registered("paddle") if fault.wrong.__module__ == faults.__name__]

    assert {fault.name for fault in core if fault.point != "ir.graph"} == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    killing.assert_all_killed(KILLING, "paddle")
