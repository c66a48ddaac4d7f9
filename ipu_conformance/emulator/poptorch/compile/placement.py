"""Places every operation of a captured model: its block gives its IPU, and changes of IPU give the stages."""

from __future__ import annotations

import functools
import logging
import operator
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from torch.fx import Node

from ipu_conformance.emulator.core import limits, topology
from ipu_conformance.emulator.poptorch.compile import blocks
from ipu_conformance.emulator.poptorch.compile.capture import Captured, called
from ipu_conformance.emulator.poptorch.ops import multiconv, printing
from ipu_conformance.emulator.poptorch.options.diagnostics import Error, logger
from ipu_conformance.emulator.poptorch.options.enums import AutoStage
from ipu_conformance.emulator.poptorch.options.strategies import ParallelPhasedExecution, SerialPhasedExecution
from ipu_conformance.emulator.poptorch.refusals import placement as refusals

_HIDDEN = frozenset({operator.getitem})
"""What picks one of an operation's results; it is where the operation is."""


@dataclass(frozen=True)
class Spot:
    """Where a block runs: its IPU inside a replica, and its phase if there are phases."""

    ipu: int
    phase: int = 0


@dataclass(frozen=True)
class Placement:
    """Where the operations of a model run, and in which order the device works through the stages."""

    stage_of: Mapping[Node, int]
    """The forward stage of every operation; inputs and weights have none."""
    topology: topology.Topology
    """The IPU of every stage. Pipelines count from IPU 0, so their first stage may be empty."""
    schedule: str
    """The name of the core's schedule: popart for a pipeline, sequential otherwise."""
    mode: str
    """Pipelined, Sharded, SerialPhased or ParallelPhased."""
    ipus: int
    """The IPUs that all replicas together reserve."""
    phases: Tuple[int, ...]
    """The phase of every stage; all 0 without phases."""

    @property
    def pipelined(self) -> bool:
        """Whether the stages work on different micro-batches at a time."""
        return self.mode == "Pipelined"


def block_of(node: Node) -> Optional[blocks.Mark]:
    """The block that an operation was called in; None for an operation that the tracer added."""
    mark: Optional[blocks.Mark] = blocks.tag_of(node, blocks.BLOCK)
    return mark


def place(captured: Captured, options: Any, training: bool) -> Placement:
    """Place a captured model by its blocks and the execution strategy of its options.

    Raises Error for an operation outside a closed block, blocks that the strategy does not know, a number of IPUs that
    cannot be reserved, and too few micro-batches to fill the pipeline.
    """
    strategy = options._execution_strategy
    computed = [node for node in captured.module.graph.nodes if node.op in ("call_function", "call_module")]
    if training:
        _refuse_inference_only(computed)
    multiconv.check(computed)
    computed = [node for node in computed if not _is_unused_print(node)]
    where = _spots(computed, strategy, options.source_location_excludes)
    spots, stage_of = _number(computed, where, from_ipu_zero=strategy.mode == "Pipelined")
    replicas = options.replication_factor
    try:
        ipus = topology.poptorch_ipus(
            [spot.ipu for spot in spots],
            replicas,
            auto_round=options.auto_round_num_ipus,
            hardware=not options.use_model,
        )
        limits.check_poptorch(
            len(spots),
            device_iterations=options.device_iterations,
            accumulation=options.Training.gradient_accumulation,
            training=training,
            pipelined=strategy.mode == "Pipelined" and len(spots) > 1,
        )
    except (topology.TopologyError, limits.LimitError) as error:
        raise Error(str(error)) from error
    placement = Placement(
        stage_of=stage_of,
        topology=topology.Topology(tuple(spot.ipu for spot in spots), replicas),
        schedule="popart" if strategy.mode == "Pipelined" else "sequential",
        mode=strategy.mode,
        ipus=ipus,
        phases=tuple(spot.phase for spot in spots),
    )
    _log(placement, options.source_location_excludes)
    return placement


def _is_unused_print(node: Node) -> bool:
    """Whether the compiler drops an operation: a print whose result is unused."""
    return node.target is printing.PRINT and not node.users


def _refuse_inference_only(computed: Sequence[Node]) -> None:
    for node in computed:
        refusals.INFERENCE_ONLY(name=node.name, region=blocks.tag_of(node, blocks.REGION))


def _log(placement: Placement, excludes: Sequence[str]) -> None:
    if not logger.isEnabledFor(logging.DEBUG):
        return  # finding locations takes a while
    for node, stage in placement.stage_of.items():
        ipu = placement.topology.placement[stage]
        logger.debug("%s mode(%s), ipu(%d), stage(%d)", called(node, excludes), placement.mode, ipu, stage)


def _spots(computed: Sequence[Node], strategy: Any, excludes: Sequence[str]) -> Dict[Node, Spot]:
    """The spot of every operation that carries a block."""
    locate = _locator(strategy)
    known: Dict[blocks.Mark, Spot] = {blocks.BEFORE: Spot(0)}
    spots = {}
    for node in computed:
        mark = block_of(node)
        if mark is None or node.target in _HIDDEN:
            continue
        outside = mark == blocks.OUTSIDE
        refusals.OUTSIDE_BLOCKS(outside=outside, called=functools.partial(called, node, excludes))
        if outside:
            continue
        if mark not in known:
            known[mark] = locate(mark)
        spots[node] = known[mark]
    return spots


def _locator(strategy: Any) -> Callable[[blocks.Mark], Spot]:
    """The function from blocks, in order of execution, to where they run."""
    if isinstance(strategy, (SerialPhasedExecution, ParallelPhasedExecution)):
        return lambda mark: _phased(strategy, mark)
    if strategy.auto_stage is None:
        return lambda mark: _staged(strategy, mark)
    return _AutoStages(strategy.auto_stage)


class _AutoStages:
    """A stage for every block: that of its IPU, or the next one. Blocks of one id are one block."""

    def __init__(self, rule: AutoStage) -> None:
        self.rule = rule
        self.known: Dict[str, Spot] = {}
        self.next_stage = 1

    def __call__(self, mark: blocks.Mark) -> Spot:
        known = self.known.get(mark.user_id) if mark.user_id is not None else None
        if known is not None:
            refusals.BLOCK_ON_TWO_IPUS(user_id=mark.user_id, first=known.ipu, second=mark.ipu_id)
            return known
        number = self._count() if self.rule == AutoStage.AutoIncrement else 0
        spot = Spot(number if mark.ipu_id is None else mark.ipu_id)
        if mark.user_id is not None:
            self.known[mark.user_id] = spot
        return spot

    def _count(self) -> int:
        """The number of a new stage."""
        self.next_stage += 1
        return self.next_stage - 1


def _staged(strategy: Any, mark: blocks.Mark) -> Spot:
    """A block of a row of stages: on the IPU of its stage, else its own, else the one with its stage's number."""
    _require_id(mark, strategy)
    stage = strategy.stage(mark.user_id)
    if stage.ipu_id is not None:
        return Spot(stage.ipu_id)
    return Spot(mark.ipu_id if mark.ipu_id is not None else strategy.stages.index(stage))


def _phased(strategy: Any, mark: blocks.Mark) -> Spot:
    """A block of a row of phases."""
    _require_id(mark, strategy)
    phase, place_in_phase = strategy.locate(mark.user_id)
    chosen = strategy.phase(phase).stage(place_in_phase).ipu_id
    ipu = strategy.default_ipu(phase, place_in_phase) if chosen is None else chosen
    if isinstance(strategy, ParallelPhasedExecution):
        refusals.PHASE_PARITY(block=mark.user_id, phase=phase, ipu=ipu)
    return Spot(ipu, phase)


def _require_id(mark: blocks.Mark, strategy: Any) -> None:
    refusals.BLOCK_WITHOUT_ID(user_id=mark.user_id, strategy=type(strategy).__name__)


def _number(
    computed: Sequence[Node], where: Mapping[Node, Spot], *, from_ipu_zero: bool
) -> Tuple[List[Spot], Dict[Node, int]]:
    """The spot of every stage and the stage of every operation.

    An operation that the tracer added, or that only picks a result, is in the latest stage of its inputs.
    """
    spots: List[Spot] = [Spot(0)] if from_ipu_zero else []
    stage_of: Dict[Node, int] = {}
    for node in computed:
        spot = where.get(node)
        if spot is None:
            stage_of[node] = max((stage_of[source] for source in node.all_input_nodes if source in stage_of), default=0)
            continue
        if not spots or spot != spots[-1]:
            refusals.PHASE_ORDER(name=node.name, phase=spot.phase, before=spots[-1].phase if spots else 0)
            spots.append(spot)
        stage_of[node] = len(spots) - 1
    return spots or [Spot(0)], stage_of
