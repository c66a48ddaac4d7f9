"""The end of a step: accumulation of gradients, their reduction over replicas, clipping, and the optimizer's ops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ipu_conformance.emulator.faults.decisions import paddle_ir as decide
from ipu_conformance.ir.graph import Op
from ipu_conformance.ir.tensor import Tensor

UPDATED = "UpdatedVar___"
_MOMENTS = (("Accumulate", "Accl1___"), ("Accumulate", "Accl2___"))

RULES: Mapping[str, Tuple[Tuple[Tuple[str, str], ...], Tuple[str, ...]]] = {
    "sgd": ((), ("SGD0VarUpdate",)),
    "momentum": ((("SGD2PartialAcclUpdate", "Accl___"),), ("SGD2VarUpdate",)),
    "adam": (_MOMENTS, ("AdamUpdater", "AdamVarUpdate")),
    "adamw": (_MOMENTS, ("AdamUpdater", "AdamVarUpdate")),
    "adamax": (_MOMENTS, ("AdamUpdater", "AdamVarUpdate")),
    "lamb": (_MOMENTS, ("AdamUpdater", "LambSquare", "AdamVarUpdate")),
    "adadelta": (_MOMENTS, ("AdaDeltaUpdater", "ScaledVarUpdate")),
    "adagrad": (_MOMENTS[:1], ("RMSPropUpdater", "ScaledVarUpdate")),
    "rmsprop": (_MOMENTS[:1], ("RMSPropUpdater", "ScaledVarUpdate")),
}
"""For every optimizer the ops that renew its state, each with what stands before a weight's name to name that state,
and those that make the new weight."""


def updates(program: Any, gradients: Mapping[str, str], optimizer: Any, strategy: Any) -> List[str]:
    """Add the ops after the backward pass; return the names of the updated weights."""
    value = strategy.value
    accumulating = value("enable_gradient_accumulation") and value("accumulation_factor") > 1
    replicated = value("enable_replicated_graphs") and value("replicated_graph_count") > 1
    makers = {name: op for op in program.ops for name in op.outputs}
    ready: Dict[str, str] = {}
    for weight, gradient in gradients.items():
        at = makers[gradient]
        if decide("accumulate", accumulating):
            held = program.declare(f"Accum___{weight}", program.tensors[weight])
            program.held[held] = None
            gradient = _add(program, "Accumulate", [held, gradient], f"UpdatedAccum___{weight}", weight, at)
        if decide("all-reduce", replicated):
            gradient = _add(program, "ReplicatedAllReduce", [gradient], f"{gradient}_reduced", weight, at)
        ready[weight] = gradient
    places = {weight: makers[gradient] for weight, gradient in gradients.items()}
    if decide("clip", optimizer.clip_norm is not None) and ready:
        # The norm spans all stages, so that what follows from it happens after the pipeline, in no stage.
        places = {weight: replace(op, stage=None) for weight, op in places.items()}
        ready = _clipped(program, ready, places, float(optimizer.clip_norm))
    settings = {name: value for name, value in optimizer.settings.items() if isinstance(value, (int, float))}
    settings["weightDecay"] = optimizer.weight_decay
    return [_update(program, weight, ready[weight], optimizer.type, settings, places[weight]) for weight in ready]


def _add(program: Any, type: str, inputs: Sequence[str], output: str, like: str, at: Op, **attributes: Any) -> str:
    made = program.declare(output, program.tensors[like])
    found: str = program.add(type, inputs, [made], at, **attributes)
    return found


def _clipped(program: Any, ready: Mapping[str, str], places: Mapping[str, Op], norm: float) -> Dict[str, str]:
    """Every gradient times one factor, which follows from the norm of all of them together."""
    number = Tensor("number", "FLOAT", ())
    squares = []
    for weight, gradient in ready.items():
        made = program.declare(f"Square___{weight}", number)
        squares.append(program.add("ReduceSumSquare", [gradient], [made], places[weight]))
    last = places[list(ready)[-1]]
    total = program.add("Sum", squares, [program.declare("Sum___squares", number)], last)
    root = program.add("Sqrt", [total], [program.declare("GlobalNorm___", number)], last)
    factor = program.add("ClipFactor", [root], [program.declare("ClipFactor___", number)], last, maxNorm=norm)
    return {
        weight: _add(program, "Mul", [gradient, factor], f"Clipped___{weight}", weight, places[weight])
        for weight, gradient in ready.items()
    }


def _update(program: Any, weight: str, gradient: str, kind: str, settings: Mapping[str, Any], at: Op) -> str:
    renewing, making = RULES[kind]
    if kind == "rmsprop" and settings.get("centered"):
        renewing = _MOMENTS
    states = []
    for type, prefix in renewing:
        held = program.declare(prefix + weight, program.tensors[weight])
        program.held[held] = None
        states.append(_add(program, type, [held, gradient], f"Updated{prefix}{weight}", weight, at))
    if len(making) == 1:
        return _add(program, making[0], [weight, *(states or [gradient])], UPDATED + weight, weight, at, **settings)
    change = _add(program, making[0], [weight, *states], f"Updater___{weight}", weight, at, **settings)
    squares = []
    if "LambSquare" in making:
        number = Tensor("number", "FLOAT", ())
        for name, source in (("R1___", weight), ("R2___", change)):
            squares.append(program.add("LambSquare", [source], [program.declare(name + weight, number)], at))
    return _add(program, making[-1], [weight, change, *squares], UPDATED + weight, weight, at)
