"""What a program may ask of a model on the device: names, anchored tensors, times, cycles, the program itself."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch

from ipu_conformance.emulator.poptorch.compile import compiled as compiling
from ipu_conformance.emulator.poptorch.exceptions import Error
from ipu_conformance.emulator.poptorch.ir import lowering
from ipu_conformance.emulator.poptorch.run import measurements

NOT_COMPILED = "Model has not been compiled or has been destroyed."


class Inspection:
    """The part of an executor that only looks."""

    _options: Any
    _measured: measurements.Measured
    _compiled: Optional[compiling.Compiled]

    @property
    def compiled(self) -> compiling.Compiled:
        """What compiling made; Error before that and after destroy."""
        if self._compiled is None:
            raise Error(NOT_COMPILED)
        return self._compiled

    def getTensorNames(self) -> List[str]:
        """The names of the tensors that can be anchored."""
        ready = self.compiled
        return list(compiling.tensor_names(ready.captured, ready.weights))

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """An anchored tensor of the last run, by the short name that anchorTensor gave it."""
        ready = self.compiled
        if short_name not in self._options.anchored_tensors:
            raise Error(f"No tensor was anchored as {short_name}: use poptorch.Options().anchorTensor")
        if short_name not in ready.anchored:
            raise Error(f"{short_name} has no value yet: run the model first")
        return ready.anchored[short_name]

    def getPerfCounters(self) -> Dict[str, List[List[float]]]:
        """When each input and output was handed over in the last runs, in seconds."""
        return self._measured.counters()

    def getHostIpuLatency(self) -> Tuple[float, float, float]:
        """The least, largest and mean seconds that inputs took to the device."""
        return self._measured.latency(0, 1)

    def getComputeLatency(self) -> Tuple[float, float, float]:
        """The least, largest and mean seconds that the device computed."""
        return self._measured.latency(1, 2)

    def getIpuHostLatency(self) -> Tuple[float, float, float]:
        """The least, largest and mean seconds that outputs took to the host."""
        return self._measured.latency(2, 3)

    def getLatency(self) -> Tuple[float, float, float]:
        """The least, largest and mean seconds of a whole call."""
        return self._measured.latency(0, 3)

    def cycleCount(self) -> int:
        """The cycles of the last run, by the emulator's estimate; needs the option logCycleCount."""
        if not self._options.log_cycle_count:
            raise Error("Cycle count logging is disabled. Please set option logCycleCount to True to enable.")
        if self._compiled is None or not self._measured.runs:
            raise Error("Please run the model at least once before obtaining cycle count.")
        return lowering.cycles(self._compiled, self._options)

    def _debugGetPopartIR(self) -> str:
        """The program of the device in the JSON of PopART."""
        return lowering.popart_ir(self.compiled, self._options)
