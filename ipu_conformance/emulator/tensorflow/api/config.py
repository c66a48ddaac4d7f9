"""The configuration of the IPU system: set, applied, read, forgotten."""

from ipu_conformance.emulator.tensorflow.config.attributes import (
    DeviceConnectionType,
    ExecutionProfileType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from ipu_conformance.emulator.tensorflow.config.ipu_config import (
    IPUConfig,
    IpuOptions,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from ipu_conformance.emulator.tensorflow.config.tree import AttributeMetadata

__all__ = [
    "AttributeMetadata",
    "DeviceConnectionType",
    "ExecutionProfileType",
    "IPUConfig",
    "IpuOptions",
    "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm",
    "SelectionOrder",
    "StochasticRoundingBehaviour",
    "configure_ipu_system",
    "get_ipu_config",
    "reset_ipu_configuration",
]
