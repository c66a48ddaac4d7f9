"""The estimator that runs a model function in a loop on the device."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.estimator.base import BaseEstimator
from ipu_conformance.emulator.tensorflow.estimator.loop import LoopProgram
from ipu_conformance.emulator.tensorflow.estimator.program import Call, Program
from ipu_conformance.emulator.tensorflow.estimator.spec import IPUEstimatorSpec

__all__ = ["IPUEstimator", "IPUEstimatorSpec"]


class IPUEstimator(BaseEstimator):
    """Trains, evaluates and predicts with loops of ``iterations_per_loop`` calls of the model function."""

    def _program(self, call: Call) -> Program:
        return LoopProgram(call)
