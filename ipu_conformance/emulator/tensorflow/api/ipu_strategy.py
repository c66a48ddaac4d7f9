"""The strategies of one IPU device."""

from ipu_conformance.emulator.tensorflow.run.strategy import IPUExtendedV1, IPUStrategy, IPUStrategyV1

__all__ = ["IPUExtendedV1", "IPUStrategy", "IPUStrategyV1"]
