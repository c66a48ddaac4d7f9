"""The end of a step: accumulation of gradients, their reduction over replicas, and the optimizer's ops per weight."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from ipu_conformance.emulator.poptorch.ir.program import Program

UPDATED = "UpdatedVar___"

STATES: Mapping[str, Tuple[Tuple[str, str], ...]] = {
    "sgd0": (),
    "sgd1": (("SGD1AcclUpdate", "Accl___"),),
    "sgd2": (("SGD2PartialAcclUpdate", "Accl___"),),
    "adam": (("Accumulate", "Accl1___"), ("Accumulate", "Accl2___")),
    "rmsprop": (("Accumulate", "Accl1___"),),
    "rmsprop-centred": (("Accumulate", "Accl1___"), ("Accumulate", "Accl2___")),
}
"""The ops that renew an optimizer's state, each with what PopART puts before the weight's name to name that state."""

STEPS: Mapping[str, Tuple[str, ...]] = {
    "sgd0": ("SGD0VarUpdate",),
    "sgd1": ("SGD1VarUpdate",),
    "sgd2": ("SGD2VarUpdate",),
    "adam": ("AdamUpdater", "AdamVarUpdate"),
    "adamw": ("AdamUpdater", "AdamVarUpdate"),
    "lamb": ("AdamUpdater", "LambSquare", "LambSquare", "AdamVarUpdate"),
    "rmsprop": ("RMSPropUpdater", "ScaledVarUpdate"),
}
"""The ops that turn state into a new weight; the last one writes it."""


def updates(program: Program, gradients: Mapping[str, str], update: Any, accumulation: int, replicas: int) -> List[str]:
    """Add the ops after the backward pass; return the names of the updated weights."""
    groups: Dict[str, Any] = {name: group for group in update.settings.groups for name in group.names}
    return [
        _update(program, weight, gradient, update.settings, groups[weight].values, accumulation, replicas)
        for weight, gradient in gradients.items()
        if weight in groups
    ]


def _update(
    program: Program,
    weight: str,
    gradient: str,
    settings: Any,
    values: Mapping[str, Any],
    accumulation: int,
    replicas: int,
) -> str:
    stage = program.pipeline.backward(program.home(weight))
    scope = weight.rpartition(".")[0].replace(".", "/")
    kind, shape = program.kind(weight), program.shape(weight)

    def add(type: str, inputs: List[str], output: str) -> str:
        return program.emit(type, scope, inputs, [(output, kind, shape)], stage)[0]

    if accumulation > 1:
        held = program.held(f"Accum___{weight}", kind, shape)
        gradient = add("Accumulate", [held, gradient], f"UpdatedAccum___{weight}")
    if replicas > 1:
        gradient = add("ReplicatedAllReduce", [gradient], f"{gradient}_reduced")
    renewing, making = rules_of(settings, values)
    state = []
    for type, prefix in renewing:
        held = program.held(prefix + weight, kind, shape)
        state.append(add(type, [held, gradient], f"Updated{prefix}{weight}"))
    if len(making) == 1:
        return add(making[0], [weight, *(state or [gradient])], UPDATED + weight)
    change = add(making[0], [weight, *state], f"Updater___{weight}")
    squares = [
        program.emit(making[1], scope, [source], [(f"{name}{weight}", "FLOAT", ())], stage)[0]
        for name, source in (("R1___", weight), ("R2___", change))
        if "LambSquare" in making
    ]
    return add(making[-1], [weight, change, *squares], UPDATED + weight)


def rules_of(settings: Any, values: Mapping[str, Any]) -> Tuple[Tuple[Tuple[str, str], ...], Tuple[str, ...]]:
    """The ops of an optimizer: those that renew its state, and those that make the new weight."""
    kind = settings.kind
    if kind == "sgd":
        momentum = float(values.get("momentum") or 0)
        kind = "sgd0" if not momentum else "sgd1" if settings.whole.get("use_combined_accum") else "sgd2"
        return STATES[kind], STEPS[kind]
    if kind == "rmsprop":
        return STATES["rmsprop-centred" if values.get("centered") else "rmsprop"], STEPS[kind]
    return STATES["adam"], STEPS[kind]
