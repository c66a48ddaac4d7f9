"""From a forward graph to the program of the device: gradients, updates, copies and marks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Tuple

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.popart import copies
from ipu_conformance.emulator.popart.gradients import backward
from ipu_conformance.emulator.popart.program import RECOMPUTE, Place, Program
from ipu_conformance.emulator.popart.updates import Training, updates
from ipu_conformance.ir.graph import Graph, Op

STEPS = ("forward", "backward", "update", "copies")
"""What a lowered program holds; each step adds to the one before."""

PHASE = "__execution_phase"


@dataclass(frozen=True)
class Execution:
    """How the stages of a forward pass are executed."""

    stages: int = 1
    pipelined: bool = False
    """Whether ops carry their stage, and values pass from stage to stage."""
    recompute: bool = False
    """Whether the backward pass computes forward values again, in all stages but the last."""
    phases: Optional[Tuple[int, ...]] = None
    """The phase of every forward stage, where there are phases."""

    def behind(self, place: Place) -> Place:
        """The place that computes the gradients of a forward place; the last stage computes its own."""
        if place.stage is None:
            return place
        return place._replace(stage=2 * (self.stages - 1) - place.stage)

    def phase(self, stage: int) -> int:
        """The phase of a stage of either pass; that of a backward stage mirrors that of its forward stage."""
        phases = self.phases or (0,)
        return phases[stage] if stage < self.stages else 2 * max(phases) - phases[2 * (self.stages - 1) - stage]


def lower(forward: Graph, execution: Execution, training: Optional[Training] = None, *, upto: str = STEPS[-1]) -> Graph:
    """The program of one replica for one micro-batch and, when training, one update, as far as a step.

    Ops of the forward graph are placed. One that has the attribute ``recompute`` already keeps it.
    """
    program = Program.of(forward)
    wanted = STEPS[: STEPS.index(upto) + 1]
    ends: List[str] = []
    if training is not None and "backward" in wanted:
        weights = tuple(training.optimizers)
        gradients = backward(program, training.loss, weights, execution.behind, training.loss_scale)
        ends = [gradient for gradient, _ in gradients.values()]
        if "update" in wanted:
            ends = updates(program, gradients, training)
    if "copies" in wanted:
        copies.copy(program, pipelined=execution.pipelined)
    program.ops = [_marked(op, execution) for op in program.ops]
    return faults.at("ir.graph", program.graph([*forward.outputs, *ends]))


def _marked(op: Op, execution: Execution) -> Op:
    """The op with the marks of recomputation and of phases, and in its stage if there is a pipeline."""
    before_last = op.stage is not None and op.stage < execution.stages - 1
    again = execution.recompute and before_last and op.type != copies.TYPE
    attributes: Dict[str, Any] = {RECOMPUTE: "YES" if again else "NO", **op.attributes}
    if execution.phases is not None and op.stage is not None:
        attributes[PHASE] = execution.phase(op.stage)
    return replace(op, attributes=attributes, stage=op.stage if execution.pipelined else None)
