"""The strategy of the workers of a cluster."""

from ipu_conformance.emulator.tensorflow.run.process_strategies import IPUMultiWorkerStrategy, IPUMultiWorkerStrategyV1

__all__ = ["IPUMultiWorkerStrategy", "IPUMultiWorkerStrategyV1"]
