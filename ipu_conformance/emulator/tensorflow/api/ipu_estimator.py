"""The estimator that runs a model function in a loop on the device."""

from ipu_conformance.emulator.tensorflow.estimator.loop import IPUEstimator
from ipu_conformance.emulator.tensorflow.estimator.specs import IPUEstimatorSpec

__all__ = ["IPUEstimator", "IPUEstimatorSpec"]
