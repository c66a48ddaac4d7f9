"""The IPU devices that TensorFlow sees: one for each group of IPUs that the configuration in force selects."""

from __future__ import annotations

from typing import Any, List, Tuple

from ipu_conformance.emulator.faults.decisions import tensorflow_system as decide
from ipu_conformance.emulator.tensorflow.config import system

TYPE = "IPU"


def names() -> Tuple[str, ...]:
    """The devices of the configuration in force, in order; none before a configuration."""
    return tuple(f"/device:{TYPE}:{index}" for index in range(decide("devices-listed", len(system.devices()))))


def physical() -> List[Any]:
    """As ``tf.config.list_physical_devices`` gives them."""
    from tensorflow.python.eager import context

    return [
        context.PhysicalDevice(name=f"/physical_device:{TYPE}:{index}", device_type=TYPE)
        for index in range(decide("devices-listed", len(system.devices())))
    ]


def logical() -> List[Any]:
    """As ``tf.config.list_logical_devices`` gives them."""
    from tensorflow.python.eager import context

    return [context.LogicalDevice(name=name, device_type=TYPE) for name in names()]


def of_session() -> List[Any]:
    """As a session's ``list_devices`` gives them, with the memory of their IPUs."""
    from tensorflow.python.client import session

    return [
        session._DeviceAttributes(
            f"/job:localhost/replica:0/task:0/device:{TYPE}:{index}", TYPE, ipus * system.chip().memory, index
        )
        for index, ipus in enumerate(system.devices())
    ]
