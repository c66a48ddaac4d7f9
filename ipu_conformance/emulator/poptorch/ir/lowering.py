"""The program of the device as a graph of PopART ops: forward pass, gradients, updates, copies and all-reduces."""

from __future__ import annotations

from typing import Any, List

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core import cost, memory
from ipu_conformance.emulator.poptorch.ir import gradients as lowering_gradients
from ipu_conformance.emulator.poptorch.ir import updates
from ipu_conformance.emulator.poptorch.ir.forward import Forward
from ipu_conformance.emulator.poptorch.ir.program import Pipeline, Program
from ipu_conformance.ir.formats import popart
from ipu_conformance.ir.graph import Graph

NAME = "maingraph"


def lower(compiled: Any, options: Any, training: bool) -> Graph:
    """The whole program that one replica runs for one micro-batch and, when training, one update."""
    placement = compiled.placement
    phases = placement.phases if "Phased" in placement.mode else None
    program = Program(
        Pipeline(placement.topology.placement, placement.pipelined, phases),
        recompute=compiled.plan.recompute,
        shares=options.available_memory_proportion,
    )
    forward = _forward(program, compiled, options)
    updated: List[str] = []
    if training:
        trainable = [forward.weights[name] for name in compiled.weights.trainable]
        loss = forward.name(compiled.captured.losses[0])
        gradients = lowering_gradients.backward(program, loss, trainable)
        updated = updates.updates(
            program, gradients, compiled.update, options.Training.gradient_accumulation, options.replication_factor
        )
    graph = program.graph(NAME, [*_outputs(forward), *updated])
    return faults.apply("ir.graph", graph) if faults.active else graph


def forward_graph(compiled: Any, options: Any) -> Graph:
    """The forward pass alone with a stage for every op and no copies: what estimates are made from."""
    program = Program(Pipeline(compiled.placement.topology.placement, pipelined=True), copying=False)
    forward = _forward(program, compiled, options)
    return program.graph(NAME, _outputs(forward))


def popart_ir(compiled: Any, options: Any) -> str:
    """The program in the JSON of PopART."""
    return popart.dump(lower(compiled, options, compiled.training)).decode("utf-8")


def cycles(compiled: Any, options: Any) -> int:
    """The cycles of one call, by the estimate of the core."""
    graph = forward_graph(compiled, options)
    found = int(cost.estimate(compiled.plan, graph, optimizer=_optimizer(compiled)).cycles)
    return faults.apply("ir.cycles", found, plan=compiled.plan) if faults.active else found


def memory_of(compiled: Any, options: Any) -> memory.MemoryEstimate:
    """The memory that every IPU of a replica needs, by the estimate of the core."""
    return memory.estimate(compiled.plan, forward_graph(compiled, options), optimizer=_optimizer(compiled))


def _forward(program: Program, compiled: Any, options: Any) -> Forward:
    forward = Forward(
        program,
        compiled.captured,
        compiled.placement.stage_of,
        compiled.weights.example,
        scopes=options.module_namescope_enabled,
    )
    forward.run()
    return forward


def _outputs(forward: Forward) -> List[str]:
    captured = forward.captured
    nodes = [*captured.outputs, *captured.losses]
    return [forward.name(node) for node in nodes if node is not None and node in forward.names]


def _optimizer(compiled: Any) -> str:
    """The optimizer as the estimates name it."""
    if compiled.update is None:
        return "sgd"
    settings = compiled.update.settings
    values = settings.groups[0].values if settings.groups else {}
    if settings.kind == "sgd":
        return "momentum" if values.get("momentum") else "sgd"
    return "rmsprop-centered" if settings.kind == "rmsprop" and values.get("centered") else str(settings.kind)
