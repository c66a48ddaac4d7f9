"""How an estimator uses the IPUs."""

from ipu_conformance.emulator.tensorflow.estimator.run_config import IPURunConfig, RunConfig

__all__ = ["IPURunConfig", "RunConfig"]
