"""The arithmetic of the optimizers on lists of tensors, in the order of operations that torch.optim uses.

A kernel is called as ``kernel(weights, gradients, state, h, t)``: ``state`` gives a list of tensors for each name in
the kernel's ``slots``, ``h`` holds the hyper-parameters as numbers and ``t`` counts the updates from 1. It changes
weights and state in place and leaves the gradients alone. All tensors of a call have one dtype, wide enough to compute
in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Tuple

import torch

Tensors = List[torch.Tensor]
Columns = Dict[str, Tensors]


@dataclass(frozen=True)
class Kernel:
    """One optimizer: its arithmetic, and the state that it keeps for some hyper-parameters."""

    run: Callable[[Tensors, Tensors, Columns, SimpleNamespace, int], None]
    slots: Callable[[SimpleNamespace], Tuple[str, ...]]
    begin: Callable[[str, SimpleNamespace], float] = lambda slot, h: 0.0


def _decayed(weights: Tensors, gradients: Tensors, h: SimpleNamespace) -> Tensors:
    if h.maximize:
        gradients = list(torch._foreach_neg(gradients))
    if h.weight_decay == 0:
        return gradients
    return list(torch._foreach_add(gradients, weights, alpha=h.weight_decay))


def _sgd(weights: Tensors, gradients: Tensors, state: Columns, h: SimpleNamespace, t: int) -> None:
    gradients = _decayed(weights, gradients, h)
    if h.momentum != 0:
        velocity = state["velocity"]
        # PopART's velocity begins with zeros, so that the first gradient is dampened, too, unlike torch's.
        torch._foreach_mul_(velocity, h.momentum)
        torch._foreach_add_(velocity, gradients, alpha=1 - h.dampening)
        gradients = list(torch._foreach_add(gradients, velocity, alpha=h.momentum)) if h.nesterov else velocity
    torch._foreach_add_(weights, gradients, alpha=-h.lr)


def _moments(gradients: Tensors, state: Columns, h: SimpleNamespace) -> Tuple[Tensors, Tensors]:
    first, second = state["first"], state["second"]
    torch._foreach_lerp_(first, gradients, 1 - h.beta1)
    torch._foreach_mul_(second, h.beta2)
    torch._foreach_addcmul_(second, gradients, gradients, value=1 - h.beta2)
    return first, second


def _corrections(h: SimpleNamespace, t: int) -> Tuple[float, float]:
    return (1 - h.beta1**t, 1 - h.beta2**t) if h.bias_correction else (1.0, 1.0)


def _adam(weights: Tensors, gradients: Tensors, state: Columns, h: SimpleNamespace, t: int) -> None:
    _adam_step(weights, _decayed(weights, gradients, h), state, h, t)


def _adamw(weights: Tensors, gradients: Tensors, state: Columns, h: SimpleNamespace, t: int) -> None:
    if h.maximize:
        gradients = list(torch._foreach_neg(gradients))
    if h.weight_decay != 0:
        torch._foreach_mul_(weights, 1 - h.lr * h.weight_decay)
    _adam_step(weights, gradients, state, h, t)


def _adam_step(weights: Tensors, gradients: Tensors, state: Columns, h: SimpleNamespace, t: int) -> None:
    first, second = _moments(gradients, state, h)
    c1, c2 = _corrections(h, t)
    denominator = list(torch._foreach_sqrt(second))
    torch._foreach_div_(denominator, math.sqrt(c2))
    torch._foreach_add_(denominator, h.eps)
    torch._foreach_addcdiv_(weights, first, denominator, value=-(h.lr / c1))


def _rmsprop(weights: Tensors, gradients: Tensors, state: Columns, h: SimpleNamespace, t: int) -> None:
    gradients = _decayed(weights, gradients, h)
    square = state["square"]
    torch._foreach_mul_(square, h.alpha)
    torch._foreach_addcmul_(square, gradients, gradients, value=1 - h.alpha)
    variance = square
    if h.centered:
        torch._foreach_lerp_(state["mean"], gradients, 1 - h.alpha)
        variance = list(torch._foreach_addcmul(square, state["mean"], state["mean"], value=-1))
    if h.use_tf_variant:  # epsilon under the root, and the learning rate inside the momentum buffer
        root = list(torch._foreach_sqrt(torch._foreach_add(variance, h.eps)))
    else:
        root = list(torch._foreach_sqrt(variance))
        torch._foreach_add_(root, h.eps)
    if h.momentum == 0:
        torch._foreach_addcdiv_(weights, gradients, root, value=-h.lr)
        return
    inner, outer = (h.lr, 1.0) if h.use_tf_variant else (1.0, h.lr)
    torch._foreach_mul_(state["velocity"], h.momentum)
    torch._foreach_addcdiv_(state["velocity"], gradients, root, value=inner)
    torch._foreach_add_(weights, state["velocity"], alpha=-outer)


def _lamb(weights: Tensors, gradients: Tensors, state: Columns, h: SimpleNamespace, t: int) -> None:
    first, second = _moments(gradients, state, h)
    c1, c2 = _corrections(h, t)
    denominator = list(torch._foreach_sqrt(torch._foreach_div(second, c2)))
    torch._foreach_add_(denominator, h.eps)
    steps = list(torch._foreach_div(torch._foreach_div(first, c1), denominator))
    if h.weight_decay != 0:
        torch._foreach_add_(steps, weights, alpha=h.weight_decay)
    weight_norms, step_norms = torch._foreach_norm(weights), torch._foreach_norm(steps)
    for weight, step, weight_norm, step_norm in zip(weights, steps, weight_norms, step_norms):
        weight_norm = weight_norm.clamp(max=h.max_weight_norm)
        trust = float(weight_norm / step_norm) if weight_norm > 0 and step_norm > 0 else 1.0
        weight.add_(step, alpha=-h.lr * trust)


def _sgd_slots(h: SimpleNamespace) -> Tuple[str, ...]:
    return ("velocity",) if h.momentum != 0 else ()


def _rmsprop_slots(h: SimpleNamespace) -> Tuple[str, ...]:
    return ("square", *(("mean",) if h.centered else ()), *(("velocity",) if h.momentum != 0 else ()))


KERNELS: Mapping[str, Kernel] = {
    "sgd": Kernel(_sgd, _sgd_slots),
    "adam": Kernel(_adam, lambda h: ("first", "second")),
    "adamw": Kernel(_adamw, lambda h: ("first", "second")),
    "rmsprop": Kernel(_rmsprop, _rmsprop_slots, lambda slot, h: 1.0 if slot == "square" and h.use_tf_variant else 0.0),
    "lamb": Kernel(_lamb, lambda h: ("first", "second")),
}
"""Every optimizer by its kind."""


def hyper_parameters(**values: Any) -> SimpleNamespace:
    """The values by name; ``betas`` becomes ``beta1`` and ``beta2``."""
    if "betas" in values:
        values["beta1"], values["beta2"] = values.pop("betas")
    return SimpleNamespace(**values)
