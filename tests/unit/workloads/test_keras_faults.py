"""The conformance cases of the Keras workloads notice devices that are wrong."""

import importlib.util

import pytest

from tests.unit.emulator import killing

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs tensorflow")

DIGITS, PICTURES = "test_mnist_ipu.py::", "test_cifar10_ipu.py::"
NOTICED = {
    "keras-metrics-otherwise": DIGITS + "test_the_loss_of_an_epoch_is_the_mean_over_its_samples[two replicas]",
    "keras-step-lost": DIGITS + "test_the_length_of_an_execution_changes_no_bit",
    "keras-one-replica": DIGITS + "test_the_device_learns_the_weights_of_its_native_twin[four replicas]",
    "update-halved": DIGITS + "test_the_device_learns_the_weights_of_its_native_twin[two replicas]",
    "outputs-of-replica-zero-only": DIGITS + "test_the_device_classifies_as_its_native_twin[two replicas]",
    "last-replica-not-reduced": PICTURES + "test_the_device_trains_as_its_native_twin[strategy, two IPUs]",
    "gradient-sign-flipped": PICTURES + "test_the_device_classifies_as_its_native_twin[strategy, two IPUs]",
    "accumulation-always-sum": PICTURES + "test_the_device_classifies_as_its_native_twin[estimator, two micro-batches]",
    "optimizer-sums-replicas": PICTURES + "test_the_device_classifies_as_its_native_twin[replica, two IPUs]",
    "estimator-loss-summed": PICTURES + "test_the_device_trains_as_its_native_twin[estimator, one IPU]",
    "estimator-loss-of-one-replica": PICTURES + "test_the_device_trains_as_its_native_twin[replica, two IPUs]",
    "pipelined-reduction-ignored": PICTURES + "test_the_device_classifies_as_its_native_twin[pipeline, two IPUs]",
    "pipelined-loss-undivided": PICTURES + "test_the_device_trains_as_its_native_twin[pipeline, two IPUs]",
}


def test_wrong_devices_are_noticed() -> None:
    """Each case passes on the right device and fails under its fault."""
    killing.assert_all_killed(NOTICED, "tensorflow")
