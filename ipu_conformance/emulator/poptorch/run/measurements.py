"""What a run took: times that were measured, cycles that are estimated, and the trace of its slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from ipu_conformance.emulator.core import trace
from ipu_conformance.emulator.poptorch.exceptions import Error

KEPT = 1000
"""How many runs are remembered."""


class Measured:
    """The moments of each run: begin, inputs on the device, computed, outputs on the host."""

    def __init__(self) -> None:
        self.runs: List[Tuple[Sequence[float], int, int]] = []

    def add(self, times: Sequence[float], inputs: int, outputs: int) -> None:
        """Remember one run; the oldest is forgotten when there are many."""
        self.runs.append((times, inputs, outputs))
        del self.runs[:-KEPT]

    def latency(self, first: int, last: int) -> Tuple[float, float, float]:
        """The least, largest and mean seconds between two moments of a run."""
        if not self.runs:
            raise Error("Please run the model at least once before asking for its latency.")
        durations = [times[last] - times[first] for times, _, _ in self.runs]
        return min(durations), max(durations), sum(durations) / len(durations)

    def counters(self) -> Dict[str, List[List[float]]]:
        """For every input and output tensor a list with one moment per run."""
        inputs = max((count for _, count, _ in self.runs), default=0)
        outputs = max((count for _, _, count in self.runs), default=0)

        def moments(place: int, tensors: int) -> List[List[float]]:
            return [[times[place] for times, _, _ in self.runs] for _ in range(tensors)]

        return {
            "input": moments(0, inputs),
            "input_complete": moments(1, inputs),
            "output": moments(2, outputs),
            "output_complete": moments(3, outputs),
        }


def write_trace(recorded: trace.Trace, options: Any) -> Path:
    """Write the slots of the last run for Perfetto into the folder of reports."""
    folder = Path(options.profile_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return trace.write(recorded, folder / f"{options.model_name or 'model'}.trace.json")
