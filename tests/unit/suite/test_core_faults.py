"""Every fault of the core's execution is killed by a case of the suite."""

import importlib

import pytest

from ipu_conformance.check import CheckFailure
from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core.engine import ExecutionError
from ipu_conformance.frameworks import core

cases = importlib.import_module("ipu_conformance.suite.test_core_training")

PIPELINE = (cases.test_a_pipeline_trains_as_specified, {"name": "mlp", "schedule": "grouped", "recompute": False})
WHOLE = (cases.test_a_net_trains_as_specified, {"name": "mlp"})
ORDER = (cases.test_losses_come_back_in_the_order_of_the_feed, {})
TRACE = (cases.test_what_is_executed_is_what_was_planned, {"schedule": "grouped", "recompute": False})
REPLICAS = (cases.test_replicas_hold_identical_weights, {"replicas": 3})

KILLED_BY = {
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
    "boundary-halved": PIPELINE,
    "last-replica-not-reduced": WHOLE,
    "first-replica-only": WHOLE,
    "sum-instead-of-mean": WHOLE,
    "gradient-sign-flipped": WHOLE,
    "update-skipped-on-odd-steps": WHOLE,
    "update-skipped-on-last-replica": REPLICAS,
    "update-halved": WHOLE,
}


def test_every_fault_of_the_execution_is_in_the_table():
    """A fault that is added to the core without a case that kills it is noticed here."""
    executed = {"plan.slots", "streams.split", "streams.join", "execute.boundary", "reduce.gradients", "update.step"}

    core = [fault for fault in faults.table() if fault.wrong.__module__ == faults.__name__]

    assert {fault.name for fault in core if fault.point in executed} == set(KILLED_BY)


@pytest.mark.parametrize("name", KILLED_BY)
def test_the_case_fails_under_the_fault(name):
    """The same case passes on the right device and fails on the wrong one."""
    case, parameters = KILLED_BY[name]
    case(core, **parameters)

    with faults.inject(name), pytest.raises((CheckFailure, ExecutionError)):
        case(core, **parameters)
