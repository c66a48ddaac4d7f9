"""The strategy of several processes."""

from ipu_conformance.emulator.tensorflow.run.process_strategies import PopDistExtendedV1, PopDistStrategy

__all__ = ["PopDistExtendedV1", "PopDistStrategy"]
