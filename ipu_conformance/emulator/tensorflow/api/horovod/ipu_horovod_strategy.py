"""The strategy of several processes that meet over the host's network."""

from ipu_conformance.emulator.tensorflow.run.process_strategies import IPUHorovodStrategy, IPUHorovodStrategyV1

__all__ = ["IPUHorovodStrategy", "IPUHorovodStrategyV1"]
