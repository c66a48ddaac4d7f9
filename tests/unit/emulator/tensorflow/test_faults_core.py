"""Each fault of the core is noticed by a case of TensorFlow: plans, streams, reduction and updates.

What the core does wrong is built into a graph when it is traced. Cases build anew, as nothing of a run is kept between
them when their fixtures have ended.
"""

from __future__ import annotations

from ipu_conformance.emulator import faults
from tests.unit.emulator import killing

PIPELINE = "test_equivalence_ipu.py::test_gradients_are_reduced_as_asked[mean]"
ORDER = "test_equivalence_ipu.py::test_losses_come_back_in_the_order_of_the_feed[single]"
STATISTICS = "test_equivalence_ipu.py::test_a_cut_net_trains_as_specified[bn_convnet-interleaved-2-D3-G4-R1]"
LARGE = "test_equivalence_ipu.py::test_stock_keras_trains_the_same_on_one_large_batch[mlp-replicated]"
WHOLE = "test_equivalence_ipu.py::test_a_net_trains_as_specified[linear]"

KILLING = {
    "micro-batch-repeated": PIPELINE,
    "micro-batches-out-of-order": STATISTICS,
    "last-backward-left-out": PIPELINE,
    "last-slot-dropped": PIPELINE,
    "last-ticks-swapped": PIPELINE,
    "micro-batch-zero-always": ORDER,
    "replica-order-swapped": ORDER,
    "accumulation-and-replicas-transposed": ORDER,
    "last-micro-batch-lost": ORDER,
    "outputs-of-replica-zero-only": ORDER,
    "first-accumulated-output-only": ORDER,
    "boundary-stale-by-one": PIPELINE,
    "boundary-halved": PIPELINE,
    "last-replica-not-reduced": LARGE,
    "first-replica-only": LARGE,
    "sum-instead-of-mean": PIPELINE,
    "gradient-sign-flipped": WHOLE,
    "update-skipped-on-last-replica": "test_equivalence_ipu.py::test_replicas_hold_identical_weights[single]",
    "update-halved": WHOLE,
}

_UNROLLED = "one run of a plan is unrolled into a graph, whose device iterations are turns of a loop around it"
_OWN_KERNELS = "floating-point numbers are those of TensorFlow's own kernels"
_ONE_PLACE = "variables are in one place, which the host reads and writes: nothing is copied"
_READ = "graphs are read from functions and files of TensorFlow: the device writes none"

SPARED = {
    "all-stages-on-ipu-zero": "slots become one graph, in which the IPU of a slot changes no number",
    "device-iterations-transposed": _UNROLLED,
    "outputs-in-reverse-iterations": _UNROLLED,
    "update-skipped-on-odd-steps": _UNROLLED,
    "round-toward-zero": _OWN_KERNELS,
    "stochastic-rounding-off": _OWN_KERNELS,
    "float16-subnormals-flushed": _OWN_KERNELS,
    "float32-instead-of-float16": _OWN_KERNELS,
    "float16-partials": _OWN_KERNELS,
    "int64-not-narrowed": "integers of 64 bits are not narrowed by this front end",
    "float64-not-narrowed": "Keras models narrow their data by a rule of their own, with the fault keras-float64-kept",
    "weights-not-synced-to-host": _ONE_PLACE,
    "last-weight-not-synced-to-host": _ONE_PLACE,
    "weights-not-sent-to-device": _ONE_PLACE,
    "weights-sent-in-float16": _ONE_PLACE,
    "ir-drop-op": _READ,
    "ir-wrong-stage": _READ,
    "ir-wrong-ipu": _READ,
}


def test_every_fault_has_a_case() -> None:
    """The table names a killing case for each fault of the core, or why there can be none."""
    core = {fault.name for fault in killing.registered("tensorflow") if fault.wrong.__module__ == faults.__name__}

    assert core == {*KILLING, *SPARED}


def test_every_fault_is_killed_by_its_case() -> None:
    """The named case passes on the right device and fails under the fault."""
    killing.assert_all_killed(KILLING, "tensorflow")
