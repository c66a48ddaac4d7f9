"""What was really executed and when: recorded slot by slot, compared with the plan, written for Perfetto."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np

from ipu_conformance.atomic_write import replacing
from ipu_conformance.emulator.core.plan import COLUMNS, Kind, Plan, Slot

EVENTS = np.dtype([("replica", np.int32), *COLUMNS.descr, ("start", np.int64), ("duration", np.int64)])
"""One row an executed slot; times are nanoseconds."""

Row = Tuple[int, int, int, int, int, int, int, int, int]
"""An event in the order of ``EVENTS``."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The slots that were executed, replica by replica, each in the order of execution."""

    events: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(self.events)

    def replica(self, replica: int) -> np.ndarray:
        """The events of one replica in the order of execution."""
        return self.events[self.events["replica"] == replica]

    def slots(self, replica: int = 0) -> Iterator[Slot]:
        """The slots of one replica in the order of execution."""
        for event in self.replica(replica):
            yield _slot(event)


class Recorder:
    """Collects events while an engine runs; each replica writes to its own list, so threads share nothing."""

    def __init__(self, replicas: int) -> None:
        self.events: List[List[Row]] = [[] for _ in range(replicas)]

    def trace(self) -> Trace:
        """The events recorded so far."""
        rows = [event for events in self.events for event in events]
        return Trace(np.array(rows, dtype=EVENTS))


def from_plan(plan: Plan, nanoseconds_per_tick: int = 1000) -> Trace:
    """The trace of a device that executes the plan with all ticks equally long; a picture of the plan in Perfetto."""
    one = np.empty(len(plan.columns), EVENTS)
    for name in COLUMNS.names or ():
        one[name] = plan.columns[name]
    one["start"] = plan.columns["tick"] * nanoseconds_per_tick
    one["duration"] = nanoseconds_per_tick
    events = np.tile(one, plan.replicas)
    events["replica"] = np.repeat(np.arange(plan.replicas), len(one))
    return Trace(events)


def compare(plan: Plan, trace: Trace) -> Optional[str]:
    """One sentence about the first slot where the trace differs from the plan, None where they agree.

    The first replica that differs is named; a replica executes its slots in the order of the plan's columns.
    """
    unplanned = np.setdiff1d(trace.events["replica"], np.arange(plan.replicas))
    if len(unplanned):
        return f"replica {unplanned[0]} was executed, but the plan has {plan.replicas} replicas."
    for replica in range(plan.replicas):
        events = trace.replica(replica)
        common = min(len(events), len(plan.columns))
        differs = np.zeros(common, dtype=bool)
        for name in COLUMNS.names or ():
            differs |= events[name][:common] != plan.columns[name][:common]
        if differs.any():
            at = int(np.argmax(differs))
            return f"slot {at}: the plan has {plan.slot(at, replica)}, but {_slot(events[at])} was executed."
        if len(events) < len(plan.columns):
            return f"slot {common}: the plan has {plan.slot(common, replica)}, but nothing more was executed."
        if len(events) > len(plan.columns):
            return f"slot {common}: the plan has ended, but {_slot(events[common])} was executed."
    return None


def chrome(trace: Trace) -> Dict[str, Any]:
    """The trace in the Trace Event Format, which Perfetto and chrome://tracing open.

    A replica is a process and an IPU a thread; time starts at the first event.
    """
    events: List[Dict[str, Any]] = []
    threads = np.unique(trace.events[["replica", "ipu"]]).tolist()
    for replica in sorted({replica for replica, _ in threads}):
        events.append(_metadata("process_name", f"replica {replica}", replica, 0))
        events.append({"ph": "M", "name": "process_sort_index", "pid": replica, "args": {"sort_index": replica}})
    for replica, ipu in threads:
        events.append(_metadata("thread_name", f"IPU {ipu}", replica, ipu))
    origin = int(trace.events["start"].min()) if len(trace) else 0
    for replica, tick, ipu, stage, micro_batch, iteration, kind, start, duration in trace.events.tolist():
        label = "" if micro_batch < 0 else f" micro-batch {micro_batch}"
        arguments = {"tick": tick, "stage": stage, "micro_batch": micro_batch, "iteration": iteration}
        events.append(
            {
                "ph": "X",
                "name": f"{Kind(kind)} {stage}{label}",
                "cat": str(Kind(kind)),
                "ts": (start - origin) / 1000,
                "dur": duration / 1000,
                "pid": replica,
                "tid": ipu,
                "args": arguments,
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def write(trace: Trace, path: Union[str, os.PathLike[str]]) -> Path:
    """Write the trace as JSON for ui.perfetto.dev; the file appears whole or not at all."""
    target = Path(path)
    with replacing(target) as part, part.open("w", encoding="utf-8") as file:
        json.dump(chrome(trace), file, separators=(",", ":"))
    return target


def _metadata(name: str, value: str, replica: int, ipu: int) -> Dict[str, Any]:
    return {"ph": "M", "name": name, "pid": replica, "tid": ipu, "args": {"name": value}}


def _slot(event: np.ndarray) -> Slot:
    replica, tick, ipu, stage, micro_batch, iteration, kind, _, _ = event.item()
    return Slot(tick, replica, ipu, stage, micro_batch, iteration, Kind(kind))
