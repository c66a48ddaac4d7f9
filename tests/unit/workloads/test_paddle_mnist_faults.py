"""The conformance cases of the Paddle digits workload notice devices that are wrong."""

import importlib.util

import pytest

from tests.unit.emulator import killing

pytestmark = pytest.mark.skipif(importlib.util.find_spec("paddle") is None, reason="needs paddle")

WORKLOAD = "test_mnist_ipu.py::"
NOTICED = {
    "update-halved": WORKLOAD + "test_the_device_trains_as_its_native_twin[one IPU]",
    "micro-batch-zero-always": WORKLOAD + "test_the_device_trains_as_its_native_twin[pipeline]",
    "paddle-gradients-carried-over": WORKLOAD + "test_the_device_classifies_as_its_native_twin[pipeline]",
    "weights-not-synced-to-host": WORKLOAD + "test_validations_see_the_weights_of_the_device",
    "paddle-last-replica-comes-home": WORKLOAD + "test_the_device_classifies_as_its_native_twin[replicas]",
}


def test_wrong_devices_are_noticed() -> None:
    """Each case passes on the right device and fails under its fault."""
    killing.assert_all_killed(NOTICED, "paddle")
