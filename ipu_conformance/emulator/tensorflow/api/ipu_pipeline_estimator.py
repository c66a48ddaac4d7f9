"""The estimator that runs the stages of a model as a pipeline on several IPUs."""

from ipu_conformance.emulator.tensorflow.estimator.pipeline import IPUPipelineEstimator
from ipu_conformance.emulator.tensorflow.estimator.specs import IPUPipelineEstimatorSpec

__all__ = ["IPUPipelineEstimator", "IPUPipelineEstimatorSpec"]
