"""The emulated ``popdist.poptorch``: options that know which instance of a program they are for."""

from __future__ import annotations

from typing import Optional

from ipu_conformance.emulator.poptorch import options
from ipu_conformance.emulator.poptorch.beside import popdist


class Options(options.Options):
    """PopTorch's options with the process and the replicas of this instance."""

    def __init__(self, ipus_per_replica: Optional[int] = None) -> None:
        super().__init__()
        self.Distributed.configureProcessId(popdist.getInstanceIndex(), popdist.getNumInstances())
        self.replicationFactor(popdist.getNumLocalReplicas())
