"""Each fault of wrappers of Keras optimizers, of strategies for several processes and of data sets is noticed."""

from __future__ import annotations

from ipu_conformance.emulator.faults.tensorflow import wrappers
from tests.unit.emulator.killing import assert_all_killed, registered

OPTIMIZERS, DISTRIBUTED, DATASETS = (f"test_{name}_ipu.py" for name in ("keras_optimizers", "distributed", "datasets"))
KILLING = {
    "loss-not-scaled": f"{OPTIMIZERS}::test_a_wrapper_outside_sees_gradients_of_the_scaled_loss",
    "gradients-stay-scaled": f"{OPTIMIZERS}::test_a_scaled_loss_leaves_the_same_weights[1-stages0]",
    "buffers-not-whole": f"{DATASETS}::test_a_buffered_data_set_has_whole_groups[one]",
    "strategy-never-reduces": f"{DISTRIBUTED}::test_optimizers_add_up_gradients_of_replicas[SGD]",
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each of these faults."""
    own = {fault.name for fault in registered("tensorflow") if fault.wrong.__module__ == wrappers.__name__}

    assert own == set(KILLING)


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    assert_all_killed(KILLING, "tensorflow")
