"""Ways for a dump to tell another computation than the device's, which the front ends name as their own."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Callable, Dict, List, Sequence, Tuple

from ipu_conformance.emulator.faults.catalogue import Fault, register
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Tensor

Of = Callable[[Op], bool]


def of_type(*types: str) -> Of:
    return lambda op: op.type in types


def last(graph: Graph, wanted: Of) -> List[Op]:
    return [op for op in graph.ops if wanted(op)][-1:]


def lost(wanted: Of) -> Callable[[Graph], Graph]:
    """The last of some ops is missing: whoever read what it made reads what it read."""

    def change(graph: Graph) -> Graph:
        missing = last(graph, wanted)
        instead: Dict[str, str] = {name: op.inputs[_read(op)] for op in missing for name in op.outputs if name}
        kept = [op for op in graph.ops if not any(op is each for each in missing)]
        return replace(
            graph,
            ops=tuple(replace(op, inputs=tuple(instead.get(name, name) for name in op.inputs)) for op in kept),
            tensors={name: tensor for name, tensor in graph.tensors.items() if name not in instead},
            outputs=tuple(dict.fromkeys(instead.get(name, name) for name in graph.outputs)),
        )

    return change


def _read(op: Op) -> int:
    """Which input stands in for what an op made: of an accumulation the gradient."""
    return 1 if op.type == "Accumulate" else 0


def changed(wanted: Of, change: Callable[[Op], Op]) -> Callable[[Graph], Graph]:
    """The last of some ops is another one."""

    def whole(graph: Graph) -> Graph:
        chosen = last(graph, wanted)
        return replace(graph, ops=tuple(change(op) if any(op is each for each in chosen) else op for op in graph.ops))

    return whole


def _reduced_twice(graph: Graph) -> Graph:
    """What was reduced over replicas is reduced once more."""
    for op in last(graph, _reducing):
        again = f"{op.outputs[0]}_again"
        twice = replace(op, type="ReplicatedAllReduce", inputs=op.outputs, outputs=(again,))
        ops: List[Op] = []
        for each in graph.ops:
            reads = tuple(again if name == op.outputs[0] else name for name in each.inputs)
            ops += [op, twice] if each is op else [replace(each, inputs=reads)]
        held = graph.tensors[op.outputs[0]]
        tensors = {**graph.tensors, again: Tensor(again, held.dtype, held.shape)}
        return replace(graph, ops=tuple(ops), tensors=tensors)
    return graph


def _unscaled(graph: Graph) -> Graph:
    """The gradient of the loss is one, whatever the loss is scaled by."""
    one = struct.pack("<f", 1.0)
    seeds = {
        name: one
        for name, data in graph.initializers.items()
        if name.startswith("Gradient___") and data is not None and len(data) == len(one)
    }
    return replace(graph, initializers={**graph.initializers, **seeds})


def attribute(name: str, change: Callable[[Any], Any]) -> Callable[[Op], Op]:
    return lambda op: replace(op, attributes={**op.attributes, name: change(op.attributes[name])})


def _stale(op: Op) -> Op:
    """The update goes along the velocity of the update before."""
    return replace(op, inputs=(op.inputs[0], f"Accl1___{op.inputs[0]}"))


def swapped(op: Op) -> Op:
    return replace(op, inputs=(op.inputs[1], op.inputs[0]))


def _of_one_edge(op: Op) -> Op:
    """A sum of gradients takes the first one for all."""
    return replace(op, inputs=(op.inputs[0],) * len(op.inputs))


def _earlier(op: Op) -> Op:
    return replace(op, stage=(op.stage or 0) - 1) if op.stage else op


def _kept_nowhere(op: Op) -> Op:
    """The new weight is computed, and the variable keeps the old one."""
    rate = float(str(op.attributes["const scaled learning rate"]))
    return replace(op, type="ScaledAdd", attributes={**op.attributes, "scale1": -rate})


def _reducing(op: Op) -> bool:
    return op.type.startswith("ReplicatedAllReduce")


def _accumulating(op: Op) -> bool:
    return op.type == "Accumulate" and op.inputs[0].startswith("Accum___")


def _adding_a_bias(op: Op) -> bool:
    return op.type == "Add" and op.inputs[1].endswith(".bias")


Row = Tuple[str, str, Callable[[Graph], Graph]]
POPART: Tuple[Row, ...] = (
    ("norm-not-rooted", "gradients are clipped by the square of their norm", lost(of_type("Sqrt"))),
    ("all-reduce-lost", "the last gradient is not reduced", lost(_reducing)),
    ("all-reduce-twice", "the last gradient is reduced twice", _reduced_twice),
    ("wrong-stage", "the last product is in the stage before its own", changed(of_type("MatMul"), _earlier)),
    ("cast-lost", "the last cast is missing", lost(of_type("Cast"))),
    ("bias-lost", "the last bias is not added", lost(_adding_a_bias)),
    ("sub-swapped", "the last difference has its terms swapped", changed(of_type("Sub"), swapped)),
    ("wrong-axis", "probabilities are those of samples, not of classes",
     changed(of_type("LogSoftmax", "Softmax"), attribute("axis", lambda axis: 1 - axis))),
    ("accumulation-lost", "the last gradient is not accumulated", lost(_accumulating)),
    ("state-stale", "the last update reads the velocity of the one before",
     changed(of_type("SGD2VarUpdate"), _stale)),
    ("weight-stale", "after an update the last weight is still read as it was",
     changed(of_type("SGD2VarUpdate"), _kept_nowhere)),
    ("loss-not-scaled", "the gradient of the loss is one", _unscaled),
    ("momentum-halved", "the last velocity keeps half of what it should",
     changed(of_type("SGD2PartialAcclUpdate"), attribute("const momentum", lambda share: share / 2))),
    ("wrong-gradient", "a sum of gradients takes one for all",
     changed(lambda op: op.type == "Sum" and op.name.startswith("GradSum"), _of_one_edge)),
    ("copy-lost", "the last copy between IPUs is missing", lost(of_type("IpuCopy"))),
    ("copy-elsewhere", "the last copy names another IPU than the one that reads it",
     changed(of_type("IpuCopy"), attribute("__destIpu", lambda ipu: int(ipu) + 1))),
)  # fmt: skip
"""The rows of programs that are lowered to the PopART IR."""


def declare(front_end: str, rows: Sequence[Row], module: str) -> None:
    """Register the rows as faults of a front end."""
    for name, what, change in rows:
        register(_fault(f"{front_end}-dump-{name}", what, change), module)


def _fault(name: str, what: str, change: Callable[[Graph], Graph]) -> Fault:
    def wrong(value: Any, **context: Any) -> Any:
        return change(value)

    return Fault(name, "ir", "ir.graph", what, wrong)
