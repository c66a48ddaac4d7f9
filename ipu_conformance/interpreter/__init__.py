"""Executes a dumped graph with something that is not the device: the oracle's functions, or ONNX Runtime."""

from ipu_conformance.interpreter.calls import Call, ExecutionError
from ipu_conformance.interpreter.engines import ENGINES, execute
from ipu_conformance.interpreter.machine import Outcome

__all__ = ["ENGINES", "Call", "ExecutionError", "Outcome", "execute"]
