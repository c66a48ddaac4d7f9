"""A model made ready for the device: captured, placed, cut into stages, planned, and given a machine to run on."""

from __future__ import annotations

import operator
import time
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch.fx import Node

from ipu_conformance.emulator.core import memory, streams
from ipu_conformance.emulator.core import plan as planning
from ipu_conformance.emulator.core.engine import Engine
from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.poptorch.compile import blocks, capture, observers, partition, placement
from ipu_conformance.emulator.poptorch.ir import lowering
from ipu_conformance.emulator.poptorch.options import unmodelled
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import OutputMode, ReductionType
from ipu_conformance.emulator.poptorch.refusals import models as refusals
from ipu_conformance.emulator.poptorch.refusals import ops as ops_refusals
from ipu_conformance.emulator.poptorch.run import calls, loss_scaling, micro_batches, outputs, precision
from ipu_conformance.emulator.poptorch.run.machine import TorchMachine
from ipu_conformance.emulator.poptorch.run.weights import DeviceWeights
from ipu_conformance.errors import ConformanceError


@dataclass(frozen=True)
class Anchor:
    """A tensor inside the model that comes back beside its output, as one more leaf."""

    name: str
    leaf: int
    returned: outputs.Returned


@dataclass
class Compiled:
    """All that one compilation made; the executor runs it, the lowering reads it."""

    captured: capture.Captured
    placement: placement.Placement
    plan: Plan
    update: Any
    weights: DeviceWeights
    layout: streams.Layout
    feed: micro_batches.Feed
    returned: outputs.Returned
    anchors: Tuple[Anchor, ...]
    expected: calls.Expected
    stages: List[partition.Stage]
    machine: TorchMachine
    engine: Engine
    changed: Tuple[str, ...]
    """The buffers that the model changes in place."""
    seconds: float = 0.0
    """How long compiling took."""
    anchored: Dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def training(self) -> bool:
        """Whether the weights are updated."""
        return self.plan.training


def compile_model(
    model: torch.nn.Module,
    call: calls.Call,
    options: Any,
    *,
    training: bool,
    update: Optional[Any],
    weights: DeviceWeights,
    seed: int,
) -> Compiled:
    """Compile the model for the arguments of ``call``; nothing is computed yet."""
    begin = time.perf_counter()
    unmodelled.log(options)
    with observers.progress_bar(options) as done:
        layout = micro_batches.layout_of(options)
        tensors = call.tensors
        feed = micro_batches.Feed(layout, tensors)
        returned = outputs.Returned(layout, *outputs.mode_of(options, training))
        args, kwargs = call.with_tensors(feed.example(tensors))
        captured = capture.capture(model, args, kwargs, weights.example, options.source_location_excludes)
        _check(captured, training, options.source_location_excludes)
        _check_overlaps(captured, options.source_location_excludes)
        done("capture")
        captured = replace(captured, losses=captured.losses if training else ())
        placed = placement.place(captured, options, training)
        done("placement")
        changed, feed.copied = capture.changed_in_place(captured)
        _check_changed(changed, weights, options)
        anchors, extra, watched = _anchors(captured, options, layout, returned, weights)
        staged = replace(captured, outputs=(*captured.outputs, *extra))
        stages = partition.cut(staged, placed.stage_of, placed.topology.stages)
        done("stages")
        planned = _plan(placed, options, training)
        mean = options.Training.accumulation_and_replication_reduction_type == ReductionType.Mean
        machine = TorchMachine(
            stages,
            weights.replicas,
            trainable=weights.trainable,
            update=update,
            accumulation=layout.accumulation,
            mean=mean,
            seed=seed,
            kept=returned.sources.union(*(anchor.returned.sources for anchor in anchors)),
            group_of=weights.group_of,
            scaling=_scaling(captured, options, training, weights),
        )
        machine.watched_gradients = watched[GRADIENT]
        machine.watched_updates = watched[UPDATED]
        precision.apply(machine, options, seed)
        engine = Engine(planned, machine, parallel=layout.replicas > 1)
        done("plan")
        result = Compiled(
            captured=captured,
            placement=placed,
            plan=planned,
            update=update,
            weights=weights,
            layout=layout,
            feed=feed,
            returned=returned,
            anchors=anchors,
            expected=calls.Expected(call),
            stages=stages,
            machine=machine,
            engine=engine,
            changed=changed,
        )
        _check_memory(result, options)
        done("memory")
    lowering.export(result, options)
    result.seconds = time.perf_counter() - begin
    return result


def _scaling(captured: capture.Captured, options: Any, training: bool, weights: DeviceWeights) -> Any:
    """How the loss is scaled: by the optimizer's scale, or by one that follows the gradients."""
    if not (training and loss_scaling.is_enabled(options)):
        return loss_scaling.FixedScale()
    tracked = [node for node in captured.module.graph.nodes if loss_scaling.is_tracked(node)]
    refusals.NOTHING_TRACKED(tracked=tracked)
    types = {weights.example[name].dtype for name in weights.trainable}
    types.update(loss.meta["val"].dtype for loss in captured.losses)
    return loss_scaling.AutomaticScale(options._popart.options, torch.float16 in types)


def _check_memory(compiled: Compiled, options: Any) -> None:
    """Raise Error, with what needs the space, for a model that no IPU of the device can hold."""
    try:
        memory.check(lowering.memory_of(compiled, options), compiled.placement.topology.device)
    except memory.OutOfMemory as error:
        raise Error(str(error), type="poplar_out_of_memory") from error


def _check(captured: capture.Captured, training: bool, excludes: Sequence[str]) -> None:
    """Raise Error for what no device runs: training without one loss, tensors without elements."""
    if training:
        refusals.NO_LOSS(losses=captured.losses)
        refusals.TWO_LOSSES(losses=captured.losses)
    for loss in captured.losses if training else ():
        value = loss.meta.get("val")
        if value is not None:
            refusals.LOSS_SHAPE(shape=tuple(value.shape))
    for node in captured.module.graph.nodes:
        value = node.meta.get("val")
        # Operations such as an embedding bag have results beside the one that is used; nobody holds those.
        if isinstance(value, torch.Tensor) and 0 in value.shape and (node.users or not is_part(node)):
            refusals.ZERO_SIZED(what=capture.called(node, excludes), shape=tuple(value.shape))


def _check_overlaps(captured: capture.Captured, excludes: Sequence[str]) -> None:
    """Refuse marks of overlap on what is neither an input nor an output."""
    for node in captured.module.graph.nodes:
        mark = blocks.tag_of(node, blocks.OPERATION)
        name = mark[0] if mark and node.op == "call_function" else ""
        if name == "set_overlap_for_input":
            marked = node.all_input_nodes[0]
            ops_refusals.OVERLAP_INPUT(what=capture.called(marked, excludes), is_input=marked.op == "placeholder")
        elif name == "set_overlap_for_output":
            ops_refusals.OVERLAP_OUTPUT(what=capture.called(node, excludes), is_output=node in captured.outputs)


def is_part(node: Node) -> bool:
    """Whether a node is one of several results of an operation."""
    return node.target is operator.getitem


def _check_changed(changed: Sequence[str], weights: DeviceWeights, options: Any) -> None:
    buffers = [name for name in changed if name not in weights.parameters]
    refusals.SHARED_BUFFER(buffers=buffers, replicas=options.replication_factor, shared=options.broadcast_buffers)


def _plan(placed: placement.Placement, options: Any, training: bool) -> Plan:
    """The plan of one call; in inference all device iterations pass before the pipeline is emptied."""
    iterations, accumulation = options.device_iterations, options.Training.gradient_accumulation
    recompute = placed.topology.stages > 1 and bool(options._popart.options.get("autoRecomputation"))
    try:
        if training:
            return planning.plan(
                placed.topology, placed.schedule, accumulation, device_iterations=iterations, recompute=recompute
            )
        return planning.plan(placed.topology, placed.schedule, iterations * accumulation, training=False)
    except ConformanceError as error:
        raise Error(str(error)) from error


GRADIENT, UPDATED = "Gradient___", "UpdatedVar___"
"""What the names of gradients and of updated weights begin with."""


def tensor_names(captured: capture.Captured, weights: DeviceWeights) -> Dict[str, Optional[Node]]:
    """The names of all tensors that can be anchored, with the node that has each; gradients and updates have none."""
    names: Dict[str, Optional[Node]] = {}
    for node in captured.module.graph.nodes:
        if isinstance(node.meta.get("val"), torch.Tensor) and node.name not in captured.weights:
            names[node.name] = node
    for node in captured.module.graph.nodes:
        if node.name in captured.weights:
            names[captured.weights[node.name]] = node
    for name in weights.trainable:
        names.setdefault(name, None)
        names[GRADIENT + name] = None
        names[UPDATED + name] = None
    return names


def _anchors(
    captured: capture.Captured,
    options: Any,
    layout: streams.Layout,
    default: outputs.Returned,
    weights: DeviceWeights,
) -> Tuple[Tuple[Anchor, ...], List[Node], Dict[str, Dict[str, int]]]:
    """The anchored tensors: those of operations are one more leaf each, those of weights are watched while running."""
    anchors: List[Anchor] = []
    extra: List[Node] = []
    watched: Dict[str, Dict[str, int]] = {GRADIENT: {}, UPDATED: {}}
    names = tensor_names(captured, weights)
    wanted = options.anchored_tensors
    entries = [(short, *entry, _find(entry[0], names)) for short, entry in wanted.items()]
    operations = len([1 for *_, name in entries if names[name] is not None])
    for short, _, mode, period, name in entries:
        node = names[name]
        if node is not None:
            leaf = len(captured.outputs) + len(extra)
            extra.append(node)
        else:
            kind = next((kind for kind in watched if name.startswith(kind)), None)
            if kind is None:
                raise Error(f"{name} was anchored, and no operation reads it: the device has no such tensor")
            held = watched[kind]
            leaf = held.setdefault(
                name[len(kind) :], len(captured.outputs) + operations + sum(len(each) for each in watched.values())
            )
        chosen = default if mode == OutputMode.Default else outputs.Returned(layout, mode, period)
        anchors.append(Anchor(short, leaf, chosen))
    return tuple(anchors), extra, watched


def _find(long_name: str, names: Mapping[str, Optional[Node]]) -> str:
    """The tensor of that name; the vendor puts ``model.`` before the names of weights."""
    for kind in (GRADIENT + "model.", UPDATED + "model.", "model."):
        if long_name.startswith(kind) and long_name not in names:
            long_name = kind[: -len("model.")] + long_name[len(kind) :]
    refusals.UNKNOWN_TENSOR(name=long_name, known=names)
    return long_name
