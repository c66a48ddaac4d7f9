"""The options of the emulated PopTorch."""

from ipu_conformance.emulator.poptorch.exceptions import ConfigFileError
from ipu_conformance.emulator.poptorch.options.distributed import _DistributedOptions
from ipu_conformance.emulator.poptorch.options.locations import TensorLocationSettings, _TensorLocationOptions
from ipu_conformance.emulator.poptorch.options.main import Options
from ipu_conformance.emulator.poptorch.options.popart import _JitOptions, _PopartOptions
from ipu_conformance.emulator.poptorch.options.precision import _PrecisionOptions
from ipu_conformance.emulator.poptorch.options.training import _TrainingOptions

__all__ = [
    "ConfigFileError",
    "Options",
    "TensorLocationSettings",
    "_DistributedOptions",
    "_JitOptions",
    "_PopartOptions",
    "_PrecisionOptions",
    "_TensorLocationOptions",
    "_TrainingOptions",
]
