"""How fast a data set gives its elements to the host, measured."""

from ipu_conformance.emulator.tensorflow.run.dataset_benchmark import dataset_benchmark, infeed_benchmark

__all__ = ["dataset_benchmark", "infeed_benchmark"]
