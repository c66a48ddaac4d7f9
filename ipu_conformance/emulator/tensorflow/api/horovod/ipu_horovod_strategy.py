"""The strategy for several processes that meet over the host's network, of which there is one."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.api.distributed.popdist_strategy import PopDistStrategy

__all__ = ["IPUHorovodStrategy", "IPUHorovodStrategyV1"]


class IPUHorovodStrategyV1(PopDistStrategy):
    """An IPU strategy whose optimizers add up gradients over all replicas."""


IPUHorovodStrategy = IPUHorovodStrategyV1
