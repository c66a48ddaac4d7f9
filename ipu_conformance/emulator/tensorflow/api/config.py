"""The configuration of the IPU system: set, applied, read, forgotten."""

from ipu_conformance.emulator.tensorflow.config import environment as _environment
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
    "running_on_ipu_model",
]


def running_on_ipu_model() -> bool:
    """Whether IPUs are those of the model, by TF_POPLAR_FLAGS."""
    return bool(_environment.flags().use_ipu_model)
