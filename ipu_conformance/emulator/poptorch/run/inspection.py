"""What a program may ask of a model on the device: names, anchored tensors, times, cycles, trace, the program."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from ipu_conformance.emulator.core import trace
from ipu_conformance.emulator.poptorch.compile import compiled as compiling
from ipu_conformance.emulator.poptorch.ir import lowering
from ipu_conformance.emulator.poptorch.options import Options
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.refusals import models as refusals

NOT_COMPILED = "Model has not been compiled or has been destroyed."


class RunTimes:
    """The moments of the last run: begin, inputs on the device, computed, outputs on the host."""

    def __init__(self) -> None:
        self.last: Optional[Tuple[Sequence[float], int, int, int]] = None

    def add(self, times: Sequence[float], inputs: int, outputs: int, steps: int = 1) -> None:
        """Remember a run of so many micro-batches."""
        self.last = times, inputs, outputs, steps

    def latency(self, first: int, last: int) -> Tuple[float, float, float]:
        """The least, largest and mean seconds between two moments of the last run, whose micro-batches pass as one."""
        if self.last is None:
            return 0.0, 0.0, 0.0
        duration = self.last[0][last] - self.last[0][first]
        return duration, duration, duration

    def counters(self) -> Dict[str, List[List[float]]]:
        """For every input and output tensor a list with a moment for each micro-batch of the last run."""
        times, inputs, outputs, steps = self.last or ((), 0, 0, 0)

        def moments(place: int, tensors: int) -> List[List[float]]:
            return [[times[place]] * steps for _ in range(tensors)] or [[]]

        return {
            "input": moments(0, inputs),
            "input_complete": moments(1, inputs),
            "output": moments(2, outputs),
            "output_complete": moments(3, outputs),
        }


class Inspection:
    """The part of an executor that only looks."""

    _user_model: torch.nn.Module
    _options: Options
    _run_times: RunTimes
    _compiled: Optional[compiling.Compiled]
    _attached: bool

    @property
    def model(self) -> torch.nn.Module:
        """The user's model."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The options, which are frozen."""
        return self._options

    def isCompiled(self) -> bool:
        """Whether the model has been compiled and not destroyed."""
        return self._compiled is not None

    def isAttachedToDevice(self) -> bool:
        """Whether the model is on the device."""
        return self._attached

    @property
    def compilationTime(self) -> Optional[timedelta]:
        """How long compiling took, None before."""
        return None if self._compiled is None else timedelta(seconds=self._compiled.seconds)

    @property
    def compiled(self) -> compiling.Compiled:
        """The compiled model; Error before compiling and after destroy."""
        if self._compiled is None:
            raise Error(NOT_COMPILED)
        return self._compiled

    def getTensorNames(self) -> List[str]:
        """The names of the tensors that can be anchored."""
        ready = self._compiled
        if ready is None:
            raise AssertionError("Model must be compiled before calling getTensorNames")
        return list(compiling.tensor_names(ready.captured, ready.weights))

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """An anchored tensor of the last run, by the short name that anchorTensor gave it."""
        anchored = {} if self._compiled is None else self._compiled.anchored
        if short_name not in anchored:
            raise AssertionError(f"No tensor with name {short_name} found: use Options.anchorTensor and run the model")
        return anchored[short_name]

    def getPerfCounters(self) -> Dict[str, List[List[float]]]:
        """When each input and output of the last run was handed over, in seconds; all of a run are at once."""
        return self._run_times.counters()

    def getHostIpuLatency(self) -> Tuple[float, float, float]:
        """The least, largest and mean seconds that inputs took to the device."""
        return self._run_times.latency(0, 1)

    def getComputeLatency(self) -> Tuple[float, float, float]:
        """The least, largest and mean seconds that the device computed."""
        return self._run_times.latency(1, 2)

    def getIpuHostLatency(self) -> Tuple[float, float, float]:
        """The least, largest and mean seconds that outputs took to the host."""
        return self._run_times.latency(2, 3)

    def getLatency(self) -> Tuple[float, float, float]:
        """The least, largest and mean seconds of a whole call."""
        return self._run_times.latency(0, 3)

    def cycleCount(self) -> int:
        """The cycles of the last run, by the emulator's estimate; needs the option logCycleCount."""
        refusals.CYCLES_NOT_LOGGED(logged=self._options.log_cycle_count)
        if self._compiled is None or self._run_times.last is None:
            raise Error("Please run the model at least once before obtaining cycle count.")
        return lowering.cycles(self._compiled, self._options)

    def _debugGetPopartIR(self) -> str:
        """The program of the device in the JSON of PopART."""
        return lowering.popart_ir(self.compiled, self._options)


def write_trace(recorded: trace.Trace, options: Any) -> Path:
    """Write the slots of the last run for Perfetto into the folder of reports."""
    folder = Path(options.profile_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return trace.write(recorded, folder / f"{options.model_name or 'model'}.trace.json")
