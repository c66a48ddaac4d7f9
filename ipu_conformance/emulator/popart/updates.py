"""The end of a step: accumulation of gradients, their reduction over replicas, clipping, and the optimizer's ops.

Ops, their order and the names of tensors follow the patterns by which PopART decomposes its optimizers, and its
transform that clips gradients by their norm.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from ipu_conformance.emulator.popart import constants
from ipu_conformance.emulator.popart.constants import Compound, Numbers, compound
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
    constants: Mapping[str, Union[str, int]] = {}
    """The attributes of the op: numbers, or short names of compound scalars."""


def _accumulating(kind: Union[str, int], factor: str) -> Dict[str, Union[str, int]]:
    return {"type": kind, "const factor": factor}


_DECAY, _RATE, _SCALED_RATE = "const weight decay", "const learning rate", "const scaled learning rate"
_BETAS = {"const beta1": "beta1", "const beta2": "beta2"}
_FADING = {"const momentum": "smm1", "const weight decay scale factor": "swd1"}

_MOMENT_1 = Step("Accumulate", "Accl1___ g", "accl1", "_accl1", _accumulating(constants.MOVING_AVERAGE, "beta1"))
_MOMENT_2 = Step("Accumulate", "Accl2___ g", "accl2", "_accl2", _accumulating("second", "beta2"))
_SQUARE = _MOMENT_1._replace(constants=_accumulating("square", "share"))
_CENTRE = _MOMENT_2._replace(constants=_accumulating(constants.MOVING_AVERAGE, "alpha"))
_MOMENTUM = Step(
    "Accumulate",
    "Accl3___ AdaptiveUpdater___",
    "accl3",
    "_accl3",
    _accumulating(constants.DECAY_ADD, "momentum"),
)
_ADAM = Step(
    "AdamUpdater",
    "w accl1 accl2 Step___",
    "AdamUpdater___",
    "_adamupdater",
    {**_BETAS, "const eps": "eps", _DECAY: "wd", "mode": "mode"},
)
_RMSPROP = Step(
    "RMSPropUpdater", "g accl1", "AdaptiveUpdater___", "_rmspropupdater", {"const eps": "eps", "tf variant": "tf"}
)
_CENTRED = _RMSPROP._replace(inputs="g accl1 accl2")


def _write(type: str, inputs: str, words: Mapping[str, Union[str, int]]) -> Step:
    return Step(type, inputs, UPDATED, "_var_update", words)


_VELOCITY = (
    Step("SGD2PartialAcclUpdate", "Accl1___ w", "decayed", "_accl_update_0_prev_v_w", _FADING),
    Step("Accumulate", "decayed g", "accl1", "_accl_update_1_grads", _accumulating(constants.DAMPENED_ADD, "dpsf1")),
)
_NESTEROV = Step(
    "SGD1Nesterov",
    "g w accl1",
    "ahead",
    "_nesterov_1",
    {"initInverseLossScale": "ils", "initWd": "wd1", "initNgsf": "ngsf", "initMm": "mm"},
)
_SCALED = _write("ScaledVarUpdate", "w AdaptiveUpdater___", {_RATE: "lr"})
_SCALED_MOMENTUM = _write("ScaledVarUpdate", "w accl3", {_RATE: "lr"})

RULES: Mapping[str, Tuple[Step, ...]] = {
    "sgd0": (_write("SGD0VarUpdate", "w g", {_SCALED_RATE: "slr0", "const weight decay scale factor": "wdsf0"}),),
    COMBINED: (
        _write("SGD1VarUpdate", "w g", {_SCALED_RATE: "slr1"}),
        Step("SGD1AcclUpdate", "g w", "AcclOutOfAcclUpdate___", "_accl_update", _FADING),
    ),
    "sgd2": (*_VELOCITY, _write("SGD2VarUpdate", "w accl1", {_SCALED_RATE: "slr1"})),
    "sgd2-nesterov": (*_VELOCITY, _NESTEROV, _write("SGD2VarUpdate", "w ahead", {_SCALED_RATE: "slr1"})),
    **dict.fromkeys(
        ("adam", "adamw", "adamax"),
        (_MOMENT_1, _MOMENT_2, _ADAM, _write("AdamVarUpdate", "w AdamUpdater___", {_RATE: "lr"})),
    ),
    "lamb": (
        _MOMENT_1,
        _MOMENT_2,
        _ADAM,
        Step("LambSquare", "w", "LambR1Sq___", "_lamb1"),
        Step("LambSquare", "AdamUpdater___", "LambR2Sq___", "_lamb2"),
        _write(
            "AdamVarUpdate",
            "w AdamUpdater___ LambR1Sq___ LambR2Sq___",
            {_RATE: "lr", "const max weight norm": "mwn"},
        ),
    ),
    "adadelta": (
        _SQUARE,
        Step("AdaDeltaUpdater", "g accl1 Accl2___", "AdaptiveUpdater___", "_adadeltaupdater", {"const eps": "eps"}),
        Step("Accumulate", "Accl2___ AdaptiveUpdater___", "accl2", "_accl2", _accumulating("square", "share")),
        _SCALED,
    ),
    **dict.fromkeys(("adagrad", "rmsprop"), (_SQUARE, _RMSPROP, _SCALED)),
    "rmsprop-momentum": (_SQUARE, _RMSPROP, _MOMENTUM, _SCALED_MOMENTUM),
    "rmsprop-centred": (_SQUARE, _CENTRE, _CENTRED, _SCALED),
    "rmsprop-centred-momentum": (_SQUARE, _CENTRE, _CENTRED, _MOMENTUM, _SCALED_MOMENTUM),
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
    loss_scale: float = 1.0
    mean: bool = False
    """Whether gradients of micro-batches and replicas are averaged, not added up."""
    running_mean: bool = False
    """Whether their mean over micro-batches is kept while they are accumulated."""
    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    """The settings of each weight's optimizer; the ops of a weight without them have no constants."""

    @property
    def scale(self) -> float:
        """How many times too large the gradients are that reach an update."""
        turns = 1 if self.running_mean else self.accumulation
        return self.loss_scale * (turns * self.replicas if self.mean else 1)

    def compound(self, weight: str) -> Compound:
        """The constants of a weight's update."""
        rule, numbers = self.optimizers[weight], self.numbers.get(weight)
        if numbers is None:
            return Compound()
        combined = rule == COMBINED and self.accumulation > 1
        return compound(rule, numbers, self.scale, self.replicas if combined else 1)


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
        ready = _clipped(program, ready, places, training.clip_norm * training.scale)
    return [_update(program, weight, ready[weight], places[weight], training) for weight in ready]


def _reduced(program: Program, weight: str, gradient: str, place: Place, training: Training) -> str:
    """The gradient of a weight, added up over the micro-batches of an update and over replicas."""
    like = program.tensors[weight]
    combined = training.optimizers[weight] == COMBINED
    accumulating = training.accumulation > 1
    replicated = training.replicas > 1

    def add(op: str, inputs: List[str], output: str, name: str, **attributes: Any) -> str:
        words = {key.replace("_", " "): value for key, value in attributes.items()}
        return program.add(op, inputs, [replace(like, name=output)], place, name=name, attributes=words)[0]

    if replicated and not accumulating:
        gradient = add("ReplicatedAllReduce", [gradient], program.intermediate(gradient), "_reduce")
    if combined:
        accumulator = program.held(replace(like, name=f"Accl___{weight}"))
        target = "AcclIntoReduce___" if replicated and accumulating else "AcclIntoUpdate___"
        words = training.compound(weight).words
        dampened = {"const_factor": words["dpsf1"]} if words else {}
        kind = constants.DAMPENED_ADD
        gradient = add("Accumulate", [accumulator, gradient], target + weight, "_accumulate", type=kind, **dampened)
    elif accumulating:
        accumulator = program.held(replace(like, name=f"Accum___{weight}"))
        kind = constants.MEAN if training.running_mean else constants.ADD
        name = program.intermediate(accumulator)
        gradient = add("Accumulate", [accumulator, gradient], name, "_accumulate", type=kind)
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


def _update(program: Program, weight: str, gradient: str, place: Place, training: Training) -> str:
    """Add the ops of a rule and what empties the accumulator; return the updated weight."""
    numbers = training.compound(weight)
    known = {"w": weight, "g": _prepared(program, weight, gradient, place, numbers)}

    def tensor(word: str, name: str) -> Tensor:
        return Tensor(name, "FLOAT", ()) if word in _SCALARS else replace(program.tensors[weight], name=name)

    for step in RULES[training.optimizers[weight]]:
        for word in step.inputs.split():
            if word not in known:
                known[word] = program.held(tensor(word, word + weight))
        inputs = [known[word] for word in step.inputs.split()]
        output = step.output + weight if step.output.endswith("___") else program.intermediate(inputs[0])
        attributes = _attributes(step, numbers)
        (known[step.output],) = program.add(
            step.type, inputs, [tensor(step.output, output)], place, name=step.name, attributes=attributes
        )
    accumulator = f"Accum___{weight}"
    if accumulator in program.initializers:
        emptied = replace(program.tensors[accumulator], name=UPDATED + accumulator)
        program.add("AccumulatorZero", [accumulator], [emptied], place, name="_accumupdate")
    return known[UPDATED]


def _prepared(program: Program, weight: str, gradient: str, place: Place, numbers: Compound) -> str:
    """The gradient as a rule takes it: what loss scaling and means took in is taken out, and decay joins it."""
    like = program.tensors[weight]
    if numbers.unscale != 1.0:
        made = replace(like, name=program.intermediate(gradient))
        scaled = {"scale": numbers.unscale}
        (gradient,) = program.add("Scale", [gradient], [made], place, name="_gradUnscale", attributes=scaled)
    if numbers.joined_decay:
        made = replace(like, name=program.intermediate(gradient))
        shares = {"scale0": 1.0, "scale1": numbers.joined_decay}
        (gradient,) = program.add(
            "ScaledAdd", [gradient, weight], [made], place, name="_weightDecayScale", attributes=shares
        )
    return gradient


def _attributes(step: Step, numbers: Compound) -> Dict[str, Any]:
    """The constants of an op, as far as they are known."""
    words = {name: word if isinstance(word, int) else numbers.words.get(word) for name, word in step.constants.items()}
    return {name: value for name, value in words.items() if value is not None}
