"""Checks of a graph's structure: pure functions that return one sentence per fault, and none for a sound graph."""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple

from ipu_conformance.ir import shapes as shape_rules
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import UNDEFINED, Tensor, shape_text

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"

COPY = "IpuCopy"
ALL_REDUCES = ("ReplicatedAllReduce", "ReplicatedAllReduceInplace")
UPDATES = ("VarUpdate", "AcclUpdate", "Updater", "LambSquare", "AccumulatorZero")
"""How the types of ops end that only an optimizer has."""


def phases(graph: Graph) -> Tuple[str, ...]:
    """The phase of every op, in graph order.

    An op updates when its type is in ``UPDATES`` (SGD0VarUpdate, AdamUpdater) or when it reads what an update made. It
    belongs to the backward pass when its type ends in Grad or when it reads what the backward pass made. The rest is
    forward.
    """
    problems: List[str] = []
    of_tensor: Dict[str, str] = {}
    for op in graph.ops:
        sources = {of_tensor.get(name, FORWARD) for name in op.inputs}
        if op.type.endswith(UPDATES) or UPDATE in sources:
            phase = UPDATE
        elif op.type.endswith("Grad") or BACKWARD in sources:
            phase = BACKWARD
        else:
            phase = FORWARD
        problems.append(phase)
        of_tensor.update(dict.fromkeys(op.outputs, phase))
    return tuple(problems)


def shapes(graph: Graph) -> List[str]:
    """Every op of a known type has inputs that fit together and outputs of the shape and dtype that follow."""
    sentences = []
    for op in graph.ops:
        try:
            values = shape_rules.infer(op, shape_rules.inputs_of(op, graph.tensors))
        except shape_rules.MismatchError as mismatch:
            sentences.append(f"{op}: {mismatch}")
            continue
        for name, value in zip(op.outputs, values):
            if name:
                sentences += _wrong_output(op, graph.tensors[name], value)
    return sentences


def placement(graph: Graph, *, stages: bool = True) -> List[str]:
    """Every op is on an IPU and, unless ``stages`` is off, in a stage; a stage of a phase is on one IPU."""
    sentences = []
    homes: Dict[Tuple[int, str], Op] = {}
    for op, phase in zip(graph.ops, phases(graph)):
        if op.ipu is None:
            sentences.append(f"{op} is on no IPU")
        if stages and op.stage is None:
            sentences.append(f"{op} is in no stage")
        if op.stage is None or op.ipu is None:
            continue
        home = homes.setdefault((op.stage, phase), op)
        if home.ipu != op.ipu:
            sentences.append(f"stage {op.stage}: {op} is on IPU {op.ipu}, and {home} of the stage on IPU {home.ipu}")
    return sentences


def stage_order(graph: Graph) -> List[str]:
    """Data flows to the same or a later stage; in the backward pass to the same or an earlier one.

    Where the backward pass has stage numbers of its own, above those of the forward pass, as PopART gives them, data
    flows to later stages throughout.
    """
    phase_of = dict(zip(map(id, graph.ops), phases(graph)))
    last_forward = max((op.stage or 0 for op in graph.ops if phase_of[id(op)] == FORWARD), default=0)
    numbered_on = any((op.stage or 0) > last_forward for op in graph.ops if phase_of[id(op)] == BACKWARD)
    sentences = []
    for source, target, tensor in _edges(graph):
        if source.stage is None or target.stage is None:
            continue
        phase = phase_of[id(source)], phase_of[id(target)]
        if phase == (FORWARD, FORWARD) or numbered_on:
            wrong, allowed = target.stage < source.stage, "to the same or a later stage"
        elif phase == (BACKWARD, BACKWARD):
            wrong, allowed = target.stage > source.stage, "to the same or an earlier stage in the backward pass"
        else:
            continue
        if wrong:
            sentences.append(
                f"{tensor!r} flows from {source} in stage {source.stage} to {target} in stage {target.stage}; "
                f"it may flow {allowed}"
            )
    return sentences


def copies(graph: Graph) -> List[str]:
    """A tensor that passes from one IPU to another passes through an IpuCopy, and no copy stands where none is needed.

    A copy may be placed on the IPU it copies from, on the one it copies to, or on neither. Where it names both ends,
    what it reads is on the one, and what reads it on the other.
    """
    sentences = _wrong_ends(graph)
    ends: Dict[int, Set[int]] = {id(op): {op.ipu} for op in graph.ops if op.type == COPY and op.ipu is not None}
    for source, target, tensor in _edges(graph):
        for copy, other in ((source, target), (target, source)):
            if copy.type == COPY and other.ipu is not None:
                ends.setdefault(id(copy), set()).add(other.ipu)
        if COPY not in (source.type, target.type) and None not in (source.ipu, target.ipu) and source.ipu != target.ipu:
            sentences.append(
                f"{tensor!r} passes from {source} on IPU {source.ipu} to {target} on IPU {target.ipu} without an {COPY}"
            )
    for op in graph.ops:
        if op.type == COPY and len(ends.get(id(op), ())) == 1:
            sentences.append(f"{op} copies between no IPUs: all around it is on IPU {ends[id(op)].pop()}")
    return sentences


def _wrong_ends(graph: Graph) -> List[str]:
    """What the copies that name their ends say of them, where the ops around them are elsewhere."""
    stated = {id(op): _ends(op) for op in graph.ops if op.type == COPY}
    sentences = []
    for source, target, tensor in _edges(graph):
        here, there = stated.get(id(source)), stated.get(id(target))
        home = source.ipu if source.type != COPY else here and here[1]
        reader = target.ipu if target.type != COPY else there and there[0]
        if COPY in (source.type, target.type) and None not in (home, reader) and home != reader:
            sentences.append(f"{tensor!r} is on IPU {home} behind {source}, and {target} reads it on IPU {reader}")
    return sentences


def _ends(copy: Op) -> Optional[Tuple[int, int]]:
    """The IPUs that a copy says it copies from and to; None where it does not name one of each."""
    words = [str(copy.attributes.get(name, "")).strip("{ }") for name in ("__sourceIpus", "__destIpu")]
    return (int(words[0]), int(words[1])) if all(word.isdigit() for word in words) else None


def all_reduce(graph: Graph, replicas: int) -> List[str]:
    """With replicas, every gradient is all-reduced before it updates a weight; with one replica nothing is."""
    reduces = [op for op in graph.ops if op.type in ALL_REDUCES]
    if replicas == 1:
        return [f"{op} reduces over replicas, and there is one" for op in reduces]
    raw: Dict[str, str] = {}  # tensors of the backward pass that no all-reduce has seen, and the op they come from
    sentences = []
    for op, phase in zip(graph.ops, phases(graph)):
        origin = next((raw[name] for name in op.inputs if name in raw), None)
        if phase == UPDATE and origin is not None:
            sentences.append(f"{op} takes the gradient of {origin}, which no op all-reduces over {replicas} replicas")
        elif phase == BACKWARD and op.type not in ALL_REDUCES:
            # A gradient op makes a gradient of this replica's data; any other op hands on what it reads.
            origin = str(op) if op.type.endswith("Grad") else origin
            if origin is not None:
                raw.update(dict.fromkeys(filter(None, op.outputs), origin))
    return sentences


def _edges(graph: Graph) -> List[Tuple[Op, Op, str]]:
    return [
        (graph.producers[name], op, name)
        for op in graph.ops
        for name in dict.fromkeys(op.inputs)
        if name in graph.producers
    ]


def _wrong_output(op: Op, tensor: Tensor, value: shape_rules.Value) -> List[str]:
    sentences = []
    expected: Optional[str] = value.dtype if value.dtype != UNDEFINED else None
    if expected and tensor.dtype not in (UNDEFINED, expected):
        sentences.append(f"{op}: {tensor.name!r} should have dtype {expected}, and has {tensor.dtype}")
    if not shape_rules.fits(value.shape, tensor.shape):
        sentences.append(
            f"{op}: {tensor.name!r} should have shape {shape_text(value.shape)}, and has {shape_text(tensor.shape)}"
        )
    return sentences
