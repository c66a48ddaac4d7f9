"""The end of a step: accumulation of gradients, their reduction over replicas, clipping, and the optimizer's ops.

Ops, their order and the names of tensors follow the patterns by which PopART decomposes its optimizers, and its
transform that clips gradients by their norm.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from ipu_conformance.emulator.popart.program import Place, Program
from ipu_conformance.ir.tensor import Tensor

UPDATED = "UpdatedVar___"
COMBINED = "sgd1"
"""The rule whose momentum and accumulator are one tensor."""


class Step(NamedTuple):
    """One op of an optimizer.

    An input is w, the weight; g, the gradient; what an earlier step makes; or, with a prefix of PopART's that no
    step makes, state of the weight. An output is such a prefix, or any other word for a value on the way.
    """

    type: str
    inputs: str
    output: str
    name: str


_MOMENT_1 = Step("Accumulate", "Accl1___ g", "accl1", "_accl1")
_MOMENT_2 = Step("Accumulate", "Accl2___ g", "accl2", "_accl2")
_MOMENTUM = Step("Accumulate", "Accl3___ AdaptiveUpdater___", "accl3", "_accl3")
_ADAM = Step("AdamUpdater", "w accl1 accl2 Step___", "AdamUpdater___", "_adamupdater")
_RMSPROP = Step("RMSPropUpdater", "g accl1", "AdaptiveUpdater___", "_rmspropupdater")
_CENTRED = _RMSPROP._replace(inputs="g accl1 accl2")


def _write(type: str, inputs: str) -> Step:
    return Step(type, inputs, UPDATED, "_var_update")


_SCALED = _write("ScaledVarUpdate", "w AdaptiveUpdater___")
_SCALED_MOMENTUM = _write("ScaledVarUpdate", "w accl3")

RULES: Mapping[str, Tuple[Step, ...]] = {
    "sgd0": (_write("SGD0VarUpdate", "w g"),),
    COMBINED: (
        _write("SGD1VarUpdate", "w g"),
        Step("SGD1AcclUpdate", "g w", "AcclOutOfAcclUpdate___", "_accl_update"),
    ),
    "sgd2": (
        Step("SGD2PartialAcclUpdate", "Accl1___ w", "decayed", "_accl_update_0_prev_v_w"),
        Step("Accumulate", "decayed g", "accl1", "_accl_update_1_grads"),
        _write("SGD2VarUpdate", "w accl1"),
    ),
    **dict.fromkeys(
        ("adam", "adamw", "adamax"),
        (_MOMENT_1, _MOMENT_2, _ADAM, _write("AdamVarUpdate", "w AdamUpdater___")),
    ),
    "lamb": (
        _MOMENT_1,
        _MOMENT_2,
        _ADAM,
        Step("LambSquare", "w", "LambR1Sq___", "_lamb1"),
        Step("LambSquare", "AdamUpdater___", "LambR2Sq___", "_lamb2"),
        _write("AdamVarUpdate", "w AdamUpdater___ LambR1Sq___ LambR2Sq___"),
    ),
    "adadelta": (
        _MOMENT_1,
        Step("AdaDeltaUpdater", "g accl1 Accl2___", "AdaptiveUpdater___", "_adadeltaupdater"),
        Step("Accumulate", "Accl2___ AdaptiveUpdater___", "accl2", "_accl2"),
        _SCALED,
    ),
    **dict.fromkeys(("adagrad", "rmsprop"), (_MOMENT_1, _RMSPROP, _SCALED)),
    "rmsprop-momentum": (_MOMENT_1, _RMSPROP, _MOMENTUM, _SCALED_MOMENTUM),
    "rmsprop-centred": (_MOMENT_1, _MOMENT_2, _CENTRED, _SCALED),
    "rmsprop-centred-momentum": (_MOMENT_1, _MOMENT_2, _CENTRED, _MOMENTUM, _SCALED_MOMENTUM),
}
"""The ops of every optimizer, per weight."""

_SCALARS = ("Step___", "LambR1Sq___", "LambR2Sq___")


@dataclass(frozen=True)
class Training:
    """What a training adds to a forward pass."""

    loss: str
    optimizers: Mapping[str, str]
    """The rule that updates each weight."""
    accumulation: int = 1
    """How many micro-batches an update is made of."""
    replicas: int = 1
    clip_norm: Optional[float] = None
    """The largest norm of all gradients together."""


def rmsprop(*, centred: bool, momentum: bool) -> str:
    """The rule of RMSprop with these settings."""
    return "rmsprop" + "-centred" * centred + "-momentum" * momentum


def updates(program: Program, gradients: Mapping[str, Tuple[str, Place]], training: Training) -> List[str]:
    """Add the ops after the backward pass; return the names of the updated weights."""
    places = {weight: place for weight, (_, place) in gradients.items()}
    ready = {
        weight: _reduced(program, weight, gradient, place, training) for weight, (gradient, place) in gradients.items()
    }
    if training.clip_norm is not None and ready:
        # The norm spans all stages, so that what follows from it happens after the pipeline, in no stage.
        places = {weight: place._replace(stage=None) for weight, place in places.items()}
        ready = _clipped(program, ready, places, training.clip_norm)
    return [_update(program, weight, ready[weight], places[weight], training.optimizers[weight]) for weight in ready]


def _reduced(program: Program, weight: str, gradient: str, place: Place, training: Training) -> str:
    """The gradient of a weight, added up over the micro-batches of an update and over replicas."""
    like = program.tensors[weight]
    combined = training.optimizers[weight] == COMBINED
    accumulating = training.accumulation > 1
    replicated = training.replicas > 1

    def add(type: str, inputs: List[str], output: str, name: str) -> str:
        return program.add(type, inputs, [replace(like, name=output)], place, name=name)[0]

    if replicated and not accumulating:
        gradient = add("ReplicatedAllReduce", [gradient], program.intermediate(gradient), "_reduce")
    if combined:
        accumulator = program.held(replace(like, name=f"Accl___{weight}"))
        target = "AcclIntoReduce___" if replicated and accumulating else "AcclIntoUpdate___"
        gradient = add("Accumulate", [accumulator, gradient], target + weight, "_accumulate")
    elif accumulating:
        accumulator = program.held(replace(like, name=f"Accum___{weight}"))
        gradient = add("Accumulate", [accumulator, gradient], program.intermediate(accumulator), "_accumulate")
    if replicated and accumulating:
        target = f"AcclIntoUpdate___{weight}" if combined else program.intermediate(accumulator)
        gradient = add("ReplicatedAllReduceInplace", [gradient], target, "_reduce")
    return gradient


def _clipped(program: Program, ready: Mapping[str, str], places: Mapping[str, Place], norm: float) -> Dict[str, str]:
    """Every gradient times one factor, which follows from the norm of all of them together."""

    def scalar(name: str) -> List[Tensor]:
        return [Tensor(name, "FLOAT", ())]

    squares = [
        program.add("ReduceSumSquare", [name], scalar(program.intermediate(f"{name}_clipping")), places[weight])[0]
        for weight, name in ready.items()
    ]
    # On the IPU with the most gradients, so that the fewest of their squares are copied.
    ipu = Counter(place.ipu for place in places.values()).most_common(1)[0][0]
    place = Place(ipu)
    (total,) = program.add("Sum", squares, scalar(program.intermediate("normsSum")), place)
    (root,) = program.add("Sqrt", [total], scalar("globalNorm___0"), place)
    limit = program.constant(program.intermediate("clipByNorm"), "FLOAT", norm)
    (largest,) = program.add("Max", [root, limit], scalar(program.intermediate("clipByNorm")), place)
    (factor,) = program.add("Div", [limit, largest], scalar(program.intermediate("clipByNorm")), place)
    return {
        weight: program.add(
            "Mul",
            [name, factor],
            [replace(program.tensors[name], name=program.intermediate(f"{name}_clipped"))],
            places[weight],
        )[0]
        for weight, name in ready.items()
    }


def _update(program: Program, weight: str, gradient: str, place: Place, rule: str) -> str:
    """Add the ops of a rule and return the updated weight."""
    known = {"w": weight, "g": gradient}

    def tensor(word: str, name: str) -> Tensor:
        return Tensor(name, "FLOAT", ()) if word in _SCALARS else replace(program.tensors[weight], name=name)

    for step in RULES[rule]:
        for word in step.inputs.split():
            if word not in known:
                known[word] = program.held(tensor(word, word + weight))
        inputs = [known[word] for word in step.inputs.split()]
        output = step.output + weight if step.output.endswith("___") else program.intermediate(inputs[0])
        (known[step.output],) = program.add(step.type, inputs, [tensor(step.output, output)], place, name=step.name)
    return known[UPDATED]
