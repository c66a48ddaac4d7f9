"""Strategies for the emulator's core: topologies, plans and layouts of combined batches."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ipu_conformance.emulator.core.plan import Plan, plan
from ipu_conformance.emulator.core.schedules import SCHEDULES
from ipu_conformance.emulator.core.streams import Layout
from ipu_conformance.emulator.core.topology import Topology

schedule_names = st.sampled_from(sorted(SCHEDULES))


@st.composite
def topologies(draw: Any, *, shared: bool = True, replicas: int = 3) -> Topology:
    """Stages on IPUs in any order; with ``shared``, some of them may share an IPU."""
    stages = draw(st.integers(1, 6), label="stages")
    if shared:
        placement = draw(st.lists(st.integers(0, 4), min_size=stages, max_size=stages), label="placement")
    else:
        placement = draw(st.permutations(range(stages)), label="placement")
    return Topology(tuple(placement), draw(st.integers(1, replicas), label="replicas"))


@st.composite
def plans(draw: Any, *, names: Any = schedule_names, training: Any = None, shared: Any = None) -> Plan:
    """Any plan that exists, small enough to look at every slot of it."""
    name = draw(names, label="schedule")
    shares = SCHEDULES[name].shares_devices if shared is None else shared
    topology = draw(topologies(shared=shares), label="topology")
    trains = draw(st.booleans(), label="training") if training is None else training
    return plan(
        topology,
        name,
        draw(st.integers(1, 14), label="micro-batches"),
        training=trains,
        recompute=draw(st.booleans(), label="recompute") if trains else False,
        device_iterations=draw(st.integers(1, 3), label="device iterations"),
        accumulate=draw(st.booleans(), label="accumulate") if trains and name == "popart" else True,
    )


@st.composite
def layouts(draw: Any, *, grouped: bool = True) -> Layout:
    """Pairwise different factors, so that two orders never look the same."""
    factors = draw(st.lists(st.integers(1, 5), min_size=3, max_size=3, unique=True), label="D, G, R")
    iterations, accumulation, replicas = factors
    divisors = [number for number in range(1, replicas + 1) if replicas % number == 0]
    grouping = draw(st.sampled_from(divisors), label="grouping") if grouped else 1
    by = draw(st.sampled_from(["consecutive", "orthogonal"]), label="grouped by")
    return Layout(iterations, accumulation, replicas, grouping, by)
