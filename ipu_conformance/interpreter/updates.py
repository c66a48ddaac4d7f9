"""PopART's ops after the backward pass: accumulation, and the pieces that its optimizers are decomposed into.

Such an op changes the variable that is its first input, and gives the new value. Its numbers are its attributes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Mapping, Tuple

import numpy as np

from ipu_conformance.interpreter.calls import Array, Call, ExecutionError, Function, Table
from ipu_conformance.ir.graph import Op

ACCUMULATORS = ("Accum___", "Accl___")
"""PopART's prefixes of what gradients are added up in, micro-batch by micro-batch."""
STATE = (*ACCUMULATORS, "Accl1___", "Accl2___", "Accl3___", "Step___")
"""PopART's prefixes of what an optimizer keeps; it begins with zeros."""
ADAM, ADAM_NO_BIAS, ADAMAX, LAMB, LAMB_NO_BIAS = range(5)
"""PopART's numbers of the modes of Adam."""

ACCUMULATIONS: Tuple[Callable[[Array, Array, float], Array], ...] = (
    lambda total, g, f: total + g,
    lambda total, g, f: total + f * g,
    lambda total, g, f: total + f * g * g,
    lambda total, g, f: f * total + g,
    lambda total, g, f: f * total + g * g,
    lambda total, g, f: f * total + (1 - f) * g,
    lambda total, g, f: f * total + (1 - f) * g * g,
    lambda total, g, f: np.maximum(f * total, np.abs(g)),
    lambda total, g, f: f / (f + 1) * total + g / (f + 1),
)
"""What the types of Accumulate do, in the order of PopART's enumeration."""
NEEDS_NO_FACTOR = 0


def _accumulate(call: Call) -> Array:
    kind = int(call.attribute("type"))
    if not 0 <= kind < len(ACCUMULATIONS):
        raise ExecutionError(f"{call.place} has accumulation type {kind}: there are 0 to {len(ACCUMULATIONS) - 1}.")
    factor = call.get(2)
    if factor is None:
        number = 1.0 if kind == NEEDS_NO_FACTOR else float(call.attribute("const factor"))
    else:
        number = float(factor)
    return ACCUMULATIONS[kind](call[0], call[1], number)


def _sgd0(call: Call) -> Array:
    kept = float(call.attribute("const weight decay scale factor"))
    return kept * call[0] - float(call.attribute("const scaled learning rate")) * call[1]


def _momentum(call: Call) -> Array:
    """The velocity that is kept, and the decay of the weight."""
    decay = float(call.attribute("const weight decay scale factor"))
    return float(call.attribute("const momentum")) * call[0] + decay * call[1]


def _along(call: Call) -> Array:
    return call[0] - float(call.attribute("const scaled learning rate")) * call[1]


def _nesterov(call: Call) -> Array:
    """Reads the gradient, the weight and the velocity that it looks ahead along."""
    unscale, decay, scale, momentum = (
        float(call.attribute(f"init{word}")) for word in ("InverseLossScale", "Wd", "Ngsf", "Mm")
    )
    return scale * (unscale * call[0] + decay * call[1]) + momentum * call[2]


def _adam_updater(call: Call) -> Array:
    """Reads the weight, both moments and the number of updates so far, which counts from now on."""
    weight, first, second, step = call[0], call[1], call[2], call[3]
    mode, count = int(call.attribute("mode")), float(step) + 1
    epsilon, decay = float(call.attribute("const eps")), float(call.attribute("const weight decay"))
    beta1, beta2 = float(call.attribute("const beta1")), float(call.attribute("const beta2"))
    if mode in (ADAM_NO_BIAS, LAMB_NO_BIAS):
        change = first / (np.sqrt(second) + epsilon)
    elif mode == ADAMAX:
        change = first / (1 - beta1**count) / (second + epsilon)
    else:
        change = first / (1 - beta1**count) / (np.sqrt(second / (1 - beta2**count)) + epsilon)
    return change + decay * weight


def _adam(call: Call) -> Array:
    rate = float(call.attribute("const learning rate"))
    if len(call.given) == 2:
        return call[0] - rate * call[1]
    limit = float(call.attribute("const max weight norm", default=np.inf))
    weight_norm, change_norm = np.minimum(np.sqrt(call[2]), limit), np.sqrt(call[3])
    trust = weight_norm / change_norm if weight_norm > 0 and change_norm > 0 else 1.0
    return call[0] - rate * trust * call[1]


def _rmsprop(call: Call) -> Array:
    """Reads the gradient, the mean of squares and, centred, the mean."""
    mean = call.get(2)
    variance = call[1] if mean is None else call[1] - mean * mean
    epsilon = float(call.attribute("const eps"))
    inside = int(call.attribute("tf variant", default=0))
    return call[0] / (np.sqrt(variance + epsilon) if inside else np.sqrt(variance) + epsilon)


def _adadelta(call: Call) -> Array:
    epsilon = float(call.attribute("const eps"))
    return np.sqrt(call[2] + epsilon) / np.sqrt(call[1] + epsilon) * call[0]


def _scaled(call: Call) -> Array:
    decay = float(call.attribute("const weight decay", default=0.0))
    return call[0] - float(call.attribute("const learning rate")) * (call[1] + decay * call[0])


def _scaled_add(call: Call) -> Array:
    one, other = (float(call.attribute(name, default=1.0)) for name in ("scale0", "scale1"))
    return one * call[0] + other * call[1]


CHANGING: Mapping[str, Function] = {
    "Accumulate": _accumulate,
    "AccumulatorZero": lambda call: np.zeros_like(call[0]),
    "SGD0VarUpdate": _sgd0,
    "SGD1AcclUpdate": _momentum,
    "SGD2PartialAcclUpdate": _momentum,
    "SGD1VarUpdate": _along,
    "SGD2VarUpdate": _along,
    "AdamVarUpdate": _adam,
    "ScaledVarUpdate": _scaled,
}
"""Ops that change the variable that is their first input."""
UPDATES: Table = {
    **CHANGING,
    "SGD1Nesterov": _nesterov,
    "AdamUpdater": _adam_updater,
    "LambSquare": lambda call: np.sum(call[0] * call[0]),
    "RMSPropUpdater": _rmsprop,
    "AdaDeltaUpdater": _adadelta,
    "ScaledAdd": _scaled_add,
}
"""Every op of an update by its type."""
REDUCTIONS = ("ReplicatedAllReduce", "ReplicatedAllReduceInplace")
RATES = ("const learning rate", "const scaled learning rate")
DECAYING = "const weight decay scale factor"
COUNTING = "AdamUpdater"
"""The op that counts updates in its fourth input."""


def at_rate(op: Op, share: float) -> Op:
    """The op with a learning rate that is this share of the one in the dump."""
    numbers = {name: float(str(op.attributes[name])) for name in (*RATES, DECAYING) if name in op.attributes}
    scaled = {name: value * share for name, value in numbers.items() if name in RATES}
    if op.type == "SGD0VarUpdate" and DECAYING in numbers:  # what is left of the weight: one less the rate's decay
        scaled[DECAYING] = 1.0 - share * (1.0 - numbers[DECAYING])
    return replace(op, attributes={**op.attributes, **scaled}) if scaled else op
