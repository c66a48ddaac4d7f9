"""Ways for the lowered program to be wrong: ops left out, in the wrong place, or under the wrong name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Callable, Dict, List

from ipu_conformance.emulator.core.plan import Kind
from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, popart, register, result
from ipu_conformance.ir.graph import Graph, Op

UPDATES = "popart.updates:updates"


def _without(graph: Graph, unwanted: Callable[[Op], bool]) -> Graph:
    """The graph without some ops; whoever read what they made reads what they read."""
    instead: Dict[str, str] = {}
    ops: List[Op] = []
    for op in graph.ops:
        inputs = tuple(instead.get(name, name) for name in op.inputs)
        if unwanted(op):
            instead.update(dict.fromkeys(op.outputs, inputs[0]))
        else:
            ops.append(replace(op, inputs=inputs))
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in instead}
    outputs = dict.fromkeys(instead.get(name, name) for name in graph.outputs)
    return replace(graph, ops=tuple(ops), tensors=tensors, outputs=tuple(outputs))


def _each(graph: Graph, change: Callable[[Op], Op]) -> Graph:
    return replace(graph, ops=tuple(change(op) for op in graph.ops))


def _last_update_lost(graph: Graph) -> Graph:
    last = [op for op in graph.ops if op.type.endswith("VarUpdate")][-1:]
    return _without(graph, lambda op: any(op is each for each in last))


def _retyped(graph: Graph, before: str, after: str) -> Graph:
    return _each(graph, lambda op: replace(op, type=after) if op.type == before else op)


def _dtypes_kept(graph: Graph) -> Graph:
    tensors = {
        name: replace(tensor, dtype="INT64") if tensor.dtype == "INT32" else tensor
        for name, tensor in graph.tensors.items()
    }
    return replace(graph, tensors=tensors)


def _wide_halves(graph: Graph) -> Graph:
    tensors = {
        name: replace(tensor, dtype="FLOAT") if tensor.dtype == "FLOAT16" else tensor
        for name, tensor in graph.tensors.items()
    }
    return replace(graph, tensors=tensors)


def _of_two_micro_batches(graph: Graph) -> Graph:
    read = set(graph.inputs)
    tensors = {
        name: replace(tensor, shape=(2 * (tensor.shape[0] or 1), *tensor.shape[1:]))
        if name in read and tensor.shape
        else tensor
        for name, tensor in graph.tensors.items()
    }
    return replace(graph, tensors=tensors)


def _backward_in_inference(graph: Graph) -> Graph:
    if any(op.type.endswith("VarUpdate") for op in graph.ops):
        return graph
    *ops, last = graph.ops
    return replace(graph, ops=(*ops, replace(last, type=f"{last.type}Grad")))


def _recomputed(graph: Graph) -> Graph:
    return _each(graph, lambda op: replace(op, attributes={**op.attributes, "recompute": "YES"}))


def _passes_alone(original: Callable[..., Any], plan: Any, graph: Graph, **settings: Any) -> Any:
    passes = [row["kind"] in (Kind.FORWARD, Kind.BACKWARD) for row in plan.columns]
    return original(replace(plan, columns=plan.columns[passes]), graph, **settings)


def _one_micro_batch(original: Callable[..., Any], ipu: int, plan: Any, *arguments: Any) -> Any:
    held = original(ipu, plan, *arguments)
    return replace(held, stash=held.stash // max(1, *plan.stash_depths()))


def _last_unclipped(original: Callable[..., Any], program: Any, ready: Any, places: Any, norm: float) -> Any:
    clipped = original(program, ready, places, norm)
    return {**clipped, **dict(list(ready.items())[-1:])}


def _document(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """A dump whose JSON, once it is read, is changed, and written as compactly as before."""
    return result(lambda text: json.dumps(change(json.loads(text)), ensure_ascii=False, separators=(",", ":")))


def _entries(document: Any, change: Callable[[Dict[str, Any]], Dict[str, Any]]) -> Any:
    """A dump with ``change`` of every input and output of its ops."""
    for op in document["maingraph"]:
        for side in ("inputs", "outputs"):
            op[side] = [change(entry) for entry in op[side]]
    return document


def _numbered_on(memory: Dict[Any, Any], original: Callable[..., Any], *arguments: Any) -> Any:
    memory["dumps"] = memory.get("dumps", 0) + 1
    return original(*arguments).replace("/Conv", f"/Conv{memory['dumps']}")


DUMP = "poptorch.ir.lowering:popart_ir"
for _name, _what, _wrong in (
    ("spaced", "the dump has spaces between its tokens", result(lambda text: json.dumps(json.loads(text)))),
    ("of-numbers", "positions are written as numbers", _document(
        lambda document: _entries(document, lambda entry: {**entry, "index": int(entry["index"])}))),
    ("from-one", "the first position is 1", _document(
        lambda document: _entries(document, lambda entry: {**entry, "index": str(int(entry["index"]) + 1)}))),
    ("with-commas", "the dimensions of a shape have commas between them", _document(lambda document: _entries(
        document, lambda entry: {name: text.replace(" ", ",") for name, text in entry.items()}))),
):  # fmt: skip
    register(Fault(f"poptorch-dump-{_name}", "ir", DUMP, _what, _wrong), __name__)
register(
    Fault("poptorch-dump-numbered-on", "ir", DUMP, "names of a second dump are others", _numbered_on, remembers=True),
    __name__,
)

_Change = Callable[[Graph], Graph]


def _row(name: str, what: str, change: _Change) -> Fault:
    def wrong(value: Any, **context: Any) -> Any:
        return change(value)

    return Fault(f"poptorch-ir-{name}", "ir", "ir.graph", what, wrong)


for _fault in (
    Fault("poptorch-ir-no-copies", "ir", "popart.copies:copy", "values change their IPU without a copy", always(None)),
    Fault("poptorch-ir-no-all-reduce", "ir", UPDATES, "gradients are not reduced over replicas",
          popart.trained_with(replicas=1)),
    _row("update-lost", "the last parameter has no update", _last_update_lost),
    Fault("poptorch-ir-stages-mirrored", "ir", "popart.lowering:Execution.behind",
          "the backward pass has the stage numbers of the forward pass", popart.in_the_forward_stage),
    _row("scopes-lost", "ops are not named after their modules",
         lambda graph: _each(graph, lambda op: replace(op, name=op.name.rpartition("/")[2]))),
    _row("optimizer-is-sgd", "Adam is lowered to SGD", lambda graph: _retyped(graph, "AdamVarUpdate", "SGD0VarUpdate")),
    _row("ctc-is-nll", "a CTC loss is lowered to that of one class", lambda graph: _retyped(graph, "Ctc", "Nll")),
    Fault("poptorch-ir-not-accumulated", "ir", UPDATES, "gradients are updated without being accumulated",
          popart.trained_with(accumulation=1)),
    _row("labels-wide", "integers keep 64 bits", _dtypes_kept),
    _row("all-recomputed", "every op is marked as recomputed", _recomputed),
    _row("half-is-single", "tensors of 16 bits are said to have 32", _wide_halves),
    _row("of-two-micro-batches", "inputs have the size of two micro-batches", _of_two_micro_batches),
    _row("backward-in-inference", "the last op of inference is a gradient's", _backward_in_inference),
    Fault("poptorch-ir-shares-ignored", "ir", "poptorch.ir.forward:Forward.__init__",
          "setAvailableMemoryProportion has no effect", argument("shares", always({}))),
    Fault("poptorch-cycles-of-nothing", "ir", "poptorch.ir.lowering:cycles", "no run takes any cycles",
          result(always(0))),
    _row("dropout-lost", "training has no dropout", lambda graph: _without(graph, lambda op: op.type == "Dropout")),
    Fault("poptorch-cycles-of-one-iteration", "ir", "poptorch.ir.lowering:cycles",
          "the cycles of one device iteration are counted",
          lambda original, compiled, options: original(compiled, options) // compiled.plan.device_iterations),
    Fault("poptorch-cycles-of-the-passes", "ir", "core.cost:estimate", "only forward and backward passes are counted",
          _passes_alone),
    Fault("poptorch-ir-last-gradient-not-clipped", "ir", "popart.updates:_clipped",
          "the last gradient is used as it is", _last_unclipped),
    Fault("poptorch-memory-of-one-micro-batch", "ir", "core.memory:_ipu_memory",
          "a pipeline needs memory for one micro-batch", _one_micro_batch),
    Fault("poptorch-ir-operand-once", "ir", "poptorch.ir.forward:Forward.tensors",
          "an op that reads a tensor twice is said to read it once", result(lambda names: list(dict.fromkeys(names)))),
    Fault("poptorch-memory-never-freed", "ir", "core.memory:_Events.change",
          "what a micro-batch keeps stays after its backward pass", argument("nbytes", lambda sizes: abs(sizes))),
    Fault("poptorch-memory-halved", "ir", "core.memory:IpuMemory.peak", "half of the memory in use is counted",
          result(lambda peak: peak // 2)),
):  # fmt: skip
    register(_fault, __name__)
register(
    Fault("poptorch-ir-nothing-cast", "ir", "poptorch.ir.forward:Forward.cast",
          "operands keep their types where others are needed", lambda original, forward, node, name, dtype: name),
    __name__,
)  # fmt: skip
