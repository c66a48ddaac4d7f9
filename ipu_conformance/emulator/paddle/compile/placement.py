"""Where the ops of a Paddle program run: the stage of each op, and the topology of stages, IPUs and replicas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ipu_conformance.emulator.core import limits, topology
from ipu_conformance.emulator.core import plan as planning
from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.core.streams import Layout
from ipu_conformance.emulator.core.topology import Sharded, Topology
from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import subprograms
from ipu_conformance.emulator.paddle.compile.compilation import CAST, INDEX, RECOMPUTATION_OFF, STAGE
from ipu_conformance.emulator.paddle.compile.passes.forward import changes_nothing
from ipu_conformance.emulator.paddle.errors import PopartError
from ipu_conformance.errors import ConformanceError


@dataclass(frozen=True)
class PlacementOptions:
    """What a strategy says about IPUs and micro-batches."""

    num_ipus: int
    training: bool
    sharded: bool
    pipelined: bool
    accumulating: bool
    replicated: bool
    recompute: bool
    layout: Layout

    @classmethod
    def of(cls, strategy: Any) -> PlacementOptions:
        """The relevant options of a strategy, checked for what contradicts itself."""
        value = strategy.value
        replicated, accumulating = bool(value("enable_replicated_graphs")), bool(value("enable_gradient_accumulation"))
        for name, switch, enabled in (
            ("replicated_graph_count", "enable_replicated_graphs", replicated),
            ("accumulation_factor", "enable_gradient_accumulation", accumulating),
        ):
            refusals.FACTOR(name=name, factor=value(name), switch=switch, enabled=enabled)
        return cls(
            num_ipus=int(value("num_ipus")),
            training=bool(value("is_training")),
            sharded=bool(value("enable_manual_shard")),
            pipelined=bool(value("enable_pipelining")),
            accumulating=accumulating,
            replicated=replicated,
            recompute=int(value("auto_recomputation")) != RECOMPUTATION_OFF,
            layout=Layout(
                int(value("batches_per_step")),
                int(value("accumulation_factor")) if accumulating else 1,
                int(value("replicated_graph_count")) if replicated else 1,
            ),
        )


def beside(place: Sharded, index: Optional[int], stage: Optional[int]) -> Sharded:
    """A place whose IPU and stage, where it names none, are those of what makes its input."""
    return replace(
        place,
        index=index if place.index is None else place.index,
        stage=stage if place.stage is None else place.stage,
    )


@dataclass(frozen=True)
class Placement:
    """The stage of every op in the order of the program, and the topology."""

    stage_of: Tuple[int, ...]
    topology: Topology


def place(ops: Sequence[Any], options: PlacementOptions) -> Placement:
    """Place the ops of a forward program."""
    sharded = _beside_what_they_copy(ops, [_sharded(op, number, options.sharded) for number, op in enumerate(ops)])
    replicas = options.layout.replicas
    try:
        if options.pipelined:
            refusals.PIPELINED_IPUS(ipus=options.num_ipus, replicas=replicas)
            ipus = topology.paddle_stages(sharded, pipelining=True)
            stage_of = _pipeline_stages(sharded)
        else:
            ipus, stage_of = _segments(sharded)
        topology.paddle_ipus(options.num_ipus, max(options.num_ipus // replicas, 1), replicas)
        per_replica = options.num_ipus // replicas
        return Placement(stage_of, Topology(ipus, replicas, ipus_per_replica=max(per_replica, 1)))
    except topology.TopologyError as error:
        raise PopartError(str(error)) from error


def _sharded(op: Any, number: int, sharded: bool) -> Sharded:
    """An op's attributes, which count only where graphs are sharded by hand."""
    name = f"{op.type()}:{number}"
    if not sharded:
        return Sharded(name)
    stage = int(op.attr(STAGE)) if op.has_attr(STAGE) else None
    return Sharded(name, int(op.attr(INDEX)) if op.has_attr(INDEX) else None, stage)


def _beside_what_they_copy(ops: Sequence[Any], sharded: Sequence[Sharded]) -> List[Sharded]:
    """Place ops that the device's compiler deletes, and casts that name no place, where their input is made."""
    makers: Dict[str, Sharded] = {}
    placed = []
    for op, place in zip(ops, sharded):
        if (place.index is None and place.stage is None and changes_nothing(op)) or op.type() == CAST:
            maker = makers.get(op.input("X")[0])
            place = place if maker is None else beside(place, maker.index, maker.stage)
        placed.append(place)
        makers.update((name, place) for name in subprograms.writes(op))
    return placed


def _pipeline_stages(ops: Sequence[Sharded]) -> Tuple[int, ...]:
    """The stage of each op; without stages, that of its IPU."""
    if any(op.stage is not None for op in ops):
        return tuple(op.stage or 0 for op in ops)
    numbers = {index: number for number, index in enumerate(sorted({op.index or 0 for op in ops}))}
    return tuple(numbers[op.index or 0] for op in ops)


def _segments(ops: Sequence[Sharded]) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Without pipelining each change of the IPU begins a new run of ops, and one run follows the other."""
    ipus: List[int] = []
    stage_of = []
    for op in ops:
        if not ipus or ipus[-1] != (op.index or 0):
            ipus.append(op.index or 0)
        stage_of.append(len(ipus) - 1)
    return tuple(ipus or [0]), tuple(stage_of)


def check_order(ops: Sequence[Any], stage_of: Sequence[int]) -> None:
    """Raise PopartError if an op reads what a later stage makes."""
    made_in: Dict[str, int] = {}
    for number, (op, stage) in enumerate(zip(ops, stage_of)):
        for name in subprograms.reads(op):
            refusals.STAGE_ORDER(op=f"{op.type()}:{number}", stage=stage, name=name, made_in=made_in.get(name, 0))
        for name in subprograms.writes(op):
            made_in[name] = stage


def plan(placed: Placement, options: PlacementOptions) -> Plan:
    """The plan of one run; PopART fills and empties the pipeline once for every update."""
    layout, where = options.layout, placed.topology
    try:
        limits.check_paddle(
            where.stages,
            batches_per_step=layout.device_iterations,
            accumulation=layout.accumulation,
            accumulating=options.accumulating,
            training=options.training,
            pipelined=options.pipelined,
        )
        by = "popart" if options.pipelined else "sequential"
        recompute = options.recompute and options.training and options.pipelined and where.stages > 1
        if options.training and options.pipelined and not options.accumulating:
            return planning.plan(where, by, layout.device_iterations, recompute=recompute, accumulate=False)
        if not options.training and not options.accumulating:
            return planning.plan(where, by, layout.device_iterations, training=False)
        return planning.plan(
            where,
            by,
            layout.accumulation,
            device_iterations=layout.device_iterations,
            training=options.training,
            recompute=recompute,
        )
    except ConformanceError as error:
        raise PopartError(str(error)) from error
