"""Running an executable file inside TensorFlow, which needs the vendor's runtime."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class
from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

_WHY = "executables run in the vendor's runtime only"
_FUNCTIONS = {
    "embedded_runtime_start": "executable_file, inputs, name, timeout=None",
    "embedded_runtime_call": "inputs, context",
    "embedded_runtime_start_and_call": "executable_file, startup_inputs, call_inputs, name",
    "embedded_runtime_stop": "context",
}
globals().update({name: _unavailable_function(name, _WHY, parameters) for name, parameters in _FUNCTIONS.items()})
RuntimeContext = _unavailable_class(
    "RuntimeContext",
    _WHY,
    "name, executable_file, executable_proto, start_output",
    dict.fromkeys(("name", "output_types", "signature", "start_output"), ""),
)

__all__ = ["RuntimeContext", *_FUNCTIONS]
