"""Each fault of float16, dynamic-to-static, predictors, the model runtime and custom ops is noticed by a case."""

from __future__ import annotations

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults.decisions import paddle_host
from ipu_conformance.emulator.faults.paddle import host

from .. import killing

HALF, DYNAMIC = "test_fp16_support_ipu.py::test_", "test_dy2static_ipu.py::test_"
PREDICTOR, SERVED = "inference/test_predictor_ipu.py::test_", "test_model_runtime_ipu.py::test_"
CUSTOM = "custom_ops/test_custom_ops_ipu.py::test_"

KILLING = {
    "half-program-runs-in-float32": HALF + "sums_are_rounded_to_nearest_even[float32]",
    "half-feed-not-rounded": HALF + "float32_arrays_are_rounded_on_their_way",
    "half-arrives-as-float32": HALF + "a_step_rounds_forwards_backwards_and_in_the_update[before]",
    "stochastic-rounding-ignored": HALF + "stochastic_rounding_goes_both_ways",
    "half-weights-become-float32": "test_dy2static_fp16_ipu.py::test_a_call_is_a_step_in_float16[1]",
    "master-weight-left-behind": "test_mixed_precision_ipu.py::test_a_master_weight_keeps_small_steps[master]",
    "unscaled-gradient-rounded": HALF + "loss_scaling_saves_small_gradients[256.0-before]",
    "call-outputs-reversed": DYNAMIC + "a_call_is_a_step[mean-wrapped]",
    "model-cut-into-programs": DYNAMIC + "a_call_is_a_step[sum-wrapped]",
    "host-differentiates-again": DYNAMIC + "outputs_cannot_be_differentiated",
    "predictor-ignores-batches": PREDICTOR + "batches_per_step[5]",
    "predictor-ignores-replicas": PREDICTOR + "replicas_share_a_step[3]",
    "predictor-ignores-float16": "test_fp16_inference_ipu.py::test_every_op_is_rounded[3]",
    "predictor-shares-inputs": PREDICTOR + "each_run_takes_what_the_handle_holds_then",
    "predictor-always-on-ipu": PREDICTOR + "without_enable_ipu_predictors_are_the_hosts",
    "timeout-ignored": SERVED + "a_smaller_batch_is_completed[3]",
    "timeout-always": SERVED + "without_a_timeout_the_batch_must_be_full[3]",
    "request-not-cut": SERVED + "a_smaller_batch_is_completed[1]",
    "requests-may-disagree": SERVED + "a_timeout_does_not_make_everything_fit[unequal]",
    "training-is-served": SERVED + "the_model_runtime_is_for_inference",
    "unknown-custom-op-accepted": CUSTOM + "an_op_that_nobody_made_is_refused",
    "sdk-sources-accepted": CUSTOM + "sources_against_the_sdk_need_the_sdk[popart/op.hpp]",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the host's side."""
    assert host.__name__
    assert {fault.name for fault in faults.table() if fault.point == paddle_host.point} == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    killing.assert_all_killed(KILLING, "paddle")
