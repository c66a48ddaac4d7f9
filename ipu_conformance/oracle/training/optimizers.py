"""The optimizers: pure functions from a weight, its gradient and its state to the next weight and state.

Each is called as ``step(w, g, state, s, rate, t, r)``: ``s`` holds the settings named in ``run.OPTIMIZERS``, ``rate``
is the learning rate, ``t`` counts the updates from 1 and ``r`` rounds an intermediate value (in exact arithmetic it
returns what it is given). A state is a mapping of arrays shaped like the weight and begins with what ``begin`` gives.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Callable, Dict, Mapping, Tuple

import numpy as np

from ipu_conformance.run import Array, Rule, Weights

State = Mapping[str, Array]
Rounding = Callable[[Array], Array]
Result = Tuple[Array, Dict[str, Array]]
Step = Callable[[Array, Array, State, SimpleNamespace, float, int, Rounding], Result]

STATES: Mapping[str, Tuple[str, ...]] = {
    "sgd": ("velocity",),
    "adam": ("first", "second"),
    "adamw": ("first", "second"),
    "adamax": ("first", "norm"),
    "rmsprop": ("square", "mean", "velocity"),
    "adagrad": ("square",),
    "adadelta": ("square", "change"),
    "lamb": ("first", "second"),
}
"""The names of each optimizer's state."""


def exact(x: Array) -> Array:
    """Round nothing."""
    return x


def begin(rule: Rule, weight: Array) -> Dict[str, Array]:
    """The state of ``rule`` before the first update: zeros, but for adagrad's initial accumulator."""
    start = rule["initial"] if rule.name == "adagrad" else 0.0
    return {name: np.full_like(weight, start) for name in STATES[rule.name]}


def decaying(rule: Rule, decay: float) -> Rule:
    """The same rule with another weight decay."""
    return replace(rule, settings=tuple({**dict(rule.settings), "weight_decay": decay}.items()))


def step(rule: Rule, weight: Array, gradient: Array, state: State, rate: float, t: int, r: Rounding = exact) -> Result:
    """The weight and the state after update ``t``, counted from 1."""
    s = SimpleNamespace(**dict(rule.settings))
    if s.weight_decay and rule.name != "lamb":
        if getattr(s, "decoupled", False):
            weight = r(weight - rate * s.weight_decay * weight)
        else:
            gradient = r(gradient + s.weight_decay * weight)
    return TABLE[rule.name](weight, gradient, state, s, rate, t, r)


def clipped(gradients: Weights, limit: float, r: Rounding = exact) -> Dict[str, Array]:
    """Gradients shrunk together so that the norm of them all is at most ``limit``."""
    norm = r(np.sqrt(sum(np.sum(g * g) for g in gradients.values())))
    return {name: r(g * (limit / np.maximum(norm, limit))) for name, g in gradients.items()}


def _sgd(w: Array, g: Array, state: State, s: SimpleNamespace, rate: float, t: int, r: Rounding) -> Result:
    if s.rate_in_velocity:
        g, rate = r(rate * g), 1.0
    if not s.momentum:
        return r(w - rate * g), dict(state)
    # The first gradient is dampened, too, as PopART does it; torch takes it as it is.
    velocity = r(s.momentum * state["velocity"] + (1 - s.dampening) * g)
    change = r(g + s.momentum * velocity) if s.nesterov else velocity
    return r(w - rate * change), {"velocity": velocity}


def _moments(g: Array, state: State, s: SimpleNamespace, r: Rounding) -> Dict[str, Array]:
    return {
        "first": r(s.beta1 * state["first"] + (1 - s.beta1) * g),
        "second": r(s.beta2 * state["second"] + (1 - s.beta2) * g * g),
    }


def _corrections(s: SimpleNamespace, t: int) -> Tuple[float, float]:
    return (1 - s.beta1**t, 1 - s.beta2**t) if s.bias_correction else (1.0, 1.0)


def _adam(w: Array, g: Array, state: State, s: SimpleNamespace, rate: float, t: int, r: Rounding) -> Result:
    new = _moments(g, state, s, r)
    c1, c2 = _corrections(s, t)
    if s.epsilon_at == "corrected":
        denominator = r(np.sqrt(new["second"] / c2) + s.epsilon)
    else:
        denominator = r((np.sqrt(new["second"]) + s.epsilon) / np.sqrt(c2))
    change = r(new["first"] / c1 / denominator)
    return r(w - rate * change), new


def _adamax(w: Array, g: Array, state: State, s: SimpleNamespace, rate: float, t: int, r: Rounding) -> Result:
    at = {place: s.epsilon if s.epsilon_at == place else 0.0 for place in ("gradient", "norm", "denominator")}
    first = r(s.beta1 * state["first"] + (1 - s.beta1) * g)
    norm = r(np.maximum(s.beta2 * state["norm"] + at["norm"], np.abs(g) + at["gradient"]))
    change = r(first / (1 - s.beta1**t) / (norm + at["denominator"]))
    return r(w - rate * change), {"first": first, "norm": norm}


def _rmsprop(w: Array, g: Array, state: State, s: SimpleNamespace, rate: float, t: int, r: Rounding) -> Result:
    square = r(s.alpha * state["square"] + (1 - s.alpha) * g * g)
    mean = r(s.alpha * state["mean"] + (1 - s.alpha) * g) if s.centred else state["mean"]
    variance = r(square - mean * mean)
    root = r(np.sqrt(variance + s.epsilon) if s.epsilon_inside else np.sqrt(variance) + s.epsilon)
    inner, outer = (rate, 1.0) if s.rate_in_velocity else (1.0, rate)
    velocity = r(s.momentum * state["velocity"] + inner * g / root)
    return r(w - outer * velocity), {"square": square, "mean": mean, "velocity": velocity}


def _adagrad(w: Array, g: Array, state: State, s: SimpleNamespace, rate: float, t: int, r: Rounding) -> Result:
    square = r(state["square"] + g * g)
    root = r(np.sqrt(square + s.epsilon) if s.epsilon_inside else np.sqrt(square) + s.epsilon)
    return r(w - rate / (1 + (t - 1) * s.rate_decay) * r(g / root)), {"square": square}


def _adadelta(w: Array, g: Array, state: State, s: SimpleNamespace, rate: float, t: int, r: Rounding) -> Result:
    square = r(s.rho * state["square"] + (1 - s.rho) * g * g)
    change = r(np.sqrt((state["change"] + s.epsilon) / (square + s.epsilon)) * g)
    return r(w - rate * change), {"square": square, "change": r(s.rho * state["change"] + (1 - s.rho) * change**2)}


def _lamb(w: Array, g: Array, state: State, s: SimpleNamespace, rate: float, t: int, r: Rounding) -> Result:
    new = _moments(g, state, s, r)
    c1, c2 = _corrections(s, t)
    change = r(new["first"] / c1 / r(np.sqrt(new["second"] / c2) + s.epsilon) + s.weight_decay * w)
    weight_norm = r(np.minimum(np.sqrt(np.sum(w * w)), s.max_weight_norm))
    change_norm = r(np.sqrt(np.sum(change * change)))
    trust = r(weight_norm / change_norm) if weight_norm > 0 and change_norm > 0 else 1.0
    return r(w - rate * trust * change), new


TABLE: Mapping[str, Step] = {
    "sgd": _sgd,
    "adam": _adam,
    "adamw": _adam,
    "adamax": _adamax,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
    "adadelta": _adadelta,
    "lamb": _lamb,
}
"""Every optimizer by its name in ``run.OPTIMIZERS``."""
