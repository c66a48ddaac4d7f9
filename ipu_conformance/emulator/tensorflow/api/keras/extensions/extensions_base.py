"""What all models have on the IPU."""

from ipu_conformance.emulator.tensorflow.keras.extension import ModelExtension as KerasExtensionBase
from ipu_conformance.emulator.tensorflow.keras.options import ReplicatedMetricReductionMethod

__all__ = ["KerasExtensionBase", "ReplicatedMetricReductionMethod"]
