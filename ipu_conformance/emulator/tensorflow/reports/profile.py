"""The profile of a compiled program as data: the program, and the estimates of its memory and its time by IPU."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any, Callable, Dict, Mapping, Optional

import numpy as np

from ipu_conformance.emulator.core import cost, memory
from ipu_conformance.emulator.core.plan import Kind, Plan
from ipu_conformance.emulator.core.trace import Trace, from_plan
from ipu_conformance.errors import ConformanceError
from ipu_conformance.ir.graph import Graph

FORMAT = "ipu-conformance-profile"
VERSION = 1
EQUAL_TICK = 1000
"""Nanoseconds of a slot whose cycles are not estimated."""


def profile(name: str, plan: Plan, graph: Optional[Callable[[], Graph]], optimizer: str) -> Dict[str, Any]:
    """What is known of a program; a part that cannot be estimated holds the reason instead."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "program": _program(name, plan, optimizer),
        "device": {**asdict(plan.topology.device), "memory": plan.topology.device.memory},
        **_estimates(plan, graph, optimizer),
    }


def _program(name: str, plan: Plan, optimizer: str) -> Dict[str, Any]:
    return {
        "name": name,
        "training": plan.training,
        "optimizer": optimizer if plan.training else None,
        "schedule": plan.schedule.name,
        "stages": plan.stages,
        "placement": list(plan.topology.placement),
        "replicas": plan.replicas,
        "ipus_per_replica": plan.ipus,
        "micro_batches": plan.micro_batches,
        "device_iterations": plan.device_iterations,
        "updates": plan.updates,
        "recompute": plan.recompute,
        "ticks": plan.ticks,
        "slots": {str(kind): int((plan.columns["kind"] == kind).sum()) for kind in Kind},
    }


def _estimates(plan: Plan, graph: Optional[Callable[[], Graph]], optimizer: str) -> Dict[str, Any]:
    parts = ("ops", "memory", "cost")
    if graph is None:
        return {part: {"not_estimated": "the program's graph was not kept"} for part in parts}
    try:
        read = graph()
    except ConformanceError as error:
        return {part: {"not_estimated": str(error)} for part in parts}
    estimates: Dict[str, Any] = {"ops": dict(sorted(Counter(op.type for op in read.ops).items()))}
    known = optimizer if optimizer in memory.STATE_SLOTS else "sgd"
    for part, make in (("memory", _memory), ("cost", _cost)):
        try:
            estimates[part] = make(plan, read, known)
        except ConformanceError as error:
            estimates[part] = {"not_estimated": str(error)}
    return estimates


def _memory(plan: Plan, graph: Graph, optimizer: str) -> Dict[str, Any]:
    estimate = memory.estimate(plan, graph, optimizer=optimizer)
    return {
        "capacity": plan.topology.device.memory,
        "peak": estimate.peak,
        "fits": estimate.peak <= plan.topology.device.memory,
        "state_of": optimizer,
        "ipus": [_ipu(ipu) for ipu in estimate.ipus],
    }


def _ipu(ipu: memory.IpuMemory) -> Dict[str, Any]:
    return {
        "ipu": ipu.ipu,
        **{part: int(getattr(ipu, part)) for part in (*memory.PERSISTENT, *memory.VARYING)},
        "persistent": ipu.persistent,
        "peak": ipu.peak,
        "peak_tick": ipu.peak_tick,
        "over_time": {
            "ticks": ipu.over_time.ticks.tolist(),
            "nbytes": (ipu.over_time.nbytes.sum(axis=1) + ipu.persistent).tolist(),
        },
        "largest": [
            {"name": held.name, "nbytes": held.nbytes, "copies": held.copies, "part": held.part} for held in ipu.largest
        ],
    }


def _cost(plan: Plan, graph: Graph, optimizer: str) -> Dict[str, Any]:
    estimate = cost.estimate(plan, graph, optimizer=optimizer)
    return {
        "cycles": estimate.cycles,
        "seconds": estimate.seconds,
        "utilisation": list(estimate.utilisation),
        "bubble": estimate.bubble,
        "cycles_by_kind": dict(estimate.by_kind),
        "macs": estimate.macs,
        "taken_for_element_wise": list(estimate.assumed),
    }


def timeline(plan: Plan, of_profile: Mapping[str, Any]) -> Trace:
    """The plan as a trace: a slot lasts the estimated mean of its kind, and a tick as long as its longest slot."""
    made = from_plan(plan, EQUAL_TICK)
    estimate = of_profile["cost"]
    if "cycles_by_kind" not in estimate:
        return made
    nanoseconds = np.zeros(len(Kind))
    for kind in Kind:
        slots = int((plan.columns["kind"] == kind).sum())
        if slots:
            cycles = estimate["cycles_by_kind"].get(str(kind), 0.0) / slots
            nanoseconds[kind] = max(1.0, cycles / plan.topology.device.clock_hz * 1e9)
    events = made.events.copy()
    events["duration"] = np.rint(nanoseconds[events["kind"]])
    lengths = np.zeros(plan.ticks, np.int64)
    np.maximum.at(lengths, plan.columns["tick"], np.rint(nanoseconds[plan.columns["kind"]]).astype(np.int64))
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    events["start"] = starts[events["tick"]]
    return Trace(events)
