"""Each fault of the executor is noticed by a case: wrapping, moving weights, calling, reducing, returning."""

from __future__ import annotations

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults.decisions import poptorch_executor
from ipu_conformance.emulator.poptorch import api

from .. import killing

WEIGHTS, LIFECYCLE = "test_weights_ipu.py::test_", "test_lifecycle_ipu.py::test_"
INPUTS, OUTPUTS = "test_inputs_ipu.py::test_", "test_output_modes_ipu.py::test_"

KILLING = {
    "touch-unnoticed": WEIGHTS + "touching_a_weight_copies_once[attribute]",
    "touch-copies-each-time": WEIGHTS + "touching_a_weight_copies_once[state_dict]",
    "upload-reads-back-first": WEIGHTS + "sending_weights_drops_what_the_device_has",
    "host-weights-used": WEIGHTS + "training_on_the_host_is_not_seen_by_the_device",
    "inference-stays-behind": WEIGHTS + "inference_follows_its_training_model",
    "inference-uploads-each-time": WEIGHTS + "inference_uploads_only_when_weights_changed",
    "inference-buffers-come-home": WEIGHTS + "buffers_of_inference_stay_on_the_device",
    "loaded-state-stays-on-host": WEIGHTS + "loading_a_state_reaches_the_device[attached]",
    "named-buffers-bring-all": "test_buffers_ipu.py::test_named_buffers_can_be_sent_alone",
    "groups-share-weights": WEIGHTS + "groups_of_replicas_have_weights_of_their_own[NoGrouping]",
    "wrapping-twice-accepted": LIFECYCLE + "wrapping_twice_is_refused",
    "destroy-leaves-wrapped": LIFECYCLE + "destroying_brings_weights_home_and_gives_classes_back",
    "destroy-loses-weights": LIFECYCLE + "destroying_brings_weights_home_and_gives_classes_back",
    "attach-keeps-old-weights": LIFECYCLE + "weights_changed_while_detached_are_uploaded",
    "detached-can-be-detached": LIFECYCLE + "detaching_twice_is_refused",
    "attached-can-be-attached": LIFECYCLE + "attaching_twice_is_refused",
    "detach-forgets-chance": "test_seed_ipu.py::test_the_random_state_survives_detaching",
    "state-of-chance-ignored": "test_seed_ipu.py::test_a_random_state_can_be_restored",
    "offline-model-runs": LIFECYCLE + "a_model_without_device_compiles_and_does_not_run[connectionType]",
    "compiling-attaches-always": LIFECYCLE + "a_model_on_demand_attaches_when_it_runs",
    "compiles-again": LIFECYCLE + "compiling_again_warns_and_is_ignored",
    "changed-arguments-accepted": INPUTS + "a_compiled_model_takes_only_what_it_was_compiled_for[dtype]",
    "changed-constants-accepted": INPUTS + "a_number_is_a_constant_of_the_program",
    "uneven-batch-cut": "test_batching_ipu.py::test_a_batch_that_does_not_divide_is_refused[13]",
    "group-gets-own-input": "test_batching_ipu.py::test_a_group_of_replicas_shares_its_input[3-Consecutive]",
    "training-returns-all": OUTPUTS + "the_default_is_final_for_training[D2-G3-R1]",
    "inference-returns-final": OUTPUTS + "the_default_is_all_for_inference",
    "every-nth-is-the-first": OUTPUTS + "every_nth_micro_batch_is_the_last_of_its_n[D6-G1-R2-2]",
    "sum-over-replicas": OUTPUTS + "a_mode_of_inference_returns_its_micro_batches[D3-G1-R2-Sum]",
    "single-value-is-vector": OUTPUTS + "a_mode_of_training_returns_its_micro_batches[D2-G3-R1-Final]",
    "structure-flattened": OUTPUTS + "the_structure_of_the_output_is_kept[named-tuple]",
    "backward-accepted": OUTPUTS + "backward_of_an_output_is_an_error[training]",
    "anchors-follow-the-model": OUTPUTS + "the_gradient_of_a_weight_can_be_anchored[All-D2-G3-R1]",
    "training-without-loss": "test_loss_ipu.py::test_training_without_a_loss_is_refused",
    "first-of-two-losses": "test_loss_ipu.py::test_two_losses_are_refused",
    "loss-inside-wins": "test_loss_ipu.py::test_a_sum_of_losses_is_marked",
    "accumulators-not-cleared": "test_reduction_ipu.py::test_accumulators_begin_anew_after_an_update",
    "running-mean-is-sum": "test_reduction_ipu.py::test_a_running_mean_does_not_overflow[Running-True]",
    "shared-buffer-updated": "test_buffers_ipu.py::test_replicas_may_not_update_a_shared_buffer[training-add_]",
    "zero-sized-accepted": INPUTS + "tensors_without_elements_are_refused[inside]",
    "other-executable-accepted": LIFECYCLE + "the_executable_of_another_model_is_refused[another model]",
    "cache-never-used": LIFECYCLE + "the_cache_holds_one_file_for_each_program",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the executor."""
    assert api.Options
    assert {fault.name for fault in faults.table() if fault.point == poptorch_executor.point} == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    killing.assert_all_killed(KILLING, "poptorch")
