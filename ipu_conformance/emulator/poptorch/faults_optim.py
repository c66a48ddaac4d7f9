"""Ways for the device's optimizer to be wrong: its numbers, its state, its gradients, and what a change of it does."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault, Wrong

faults.register_point(
    "optim.hyper_parameters",
    "value: namespace of the numbers that a group of weights is updated with; kind: the optimizer; groups: the "
    "namespaces of all groups",
)
faults.register_point(
    "optim.gradients",
    "value: list of the gradients that some weights are updated with; loss_scale: the factor that was taken out of "
    "them; slots: dict of lists of their state",
)
faults.register_point("optim.count", "value: the number of the update, from 1; kind: the optimizer")
faults.register_point("optim.clip", "value: the norm that the gradients are clipped to, infinite for none")
faults.register_point("optim.accumulator", "value: dtype of accumulated gradients; dtype: that of one gradient")
faults.register_point("optim.state_type", "value: dtype of a state; slot: its name")
faults.register_point("optim.replaced", "value: the settings that replace others; before: those")


def _with(**numbers: Any) -> Wrong:
    """The numbers replace those of the same names, where the optimizer has them."""

    def wrong(value: SimpleNamespace, **context: Any) -> SimpleNamespace:
        own = vars(value)
        return SimpleNamespace(**{**own, **{name: number for name, number in numbers.items() if name in own}})

    return wrong


for _fault in (
    Fault("momentum-forgotten", "update", "optim.hyper_parameters", "weights move without momentum", _with(momentum=0)),
    Fault("dampening-ignored", "update", "optim.hyper_parameters", "momentum is not dampened", _with(dampening=0)),
    Fault("nesterov-ignored", "update", "optim.hyper_parameters", "Nesterov's momentum is plain momentum",
          _with(nesterov=False)),
    Fault("weight-decay-ignored", "update", "optim.hyper_parameters", "weights do not decay", _with(weight_decay=0)),
    Fault("bias-correction-missing", "update", "optim.hyper_parameters", "the bias of moments is not corrected",
          _with(bias_correction=False)),
    Fault("betas-at-default", "update", "optim.hyper_parameters", "the coefficients of moments are 0.9 and 0.999",
          _with(beta1=0.9, beta2=0.999)),
    Fault("variance-not-centered", "update", "optim.hyper_parameters", "RMSprop never subtracts the mean",
          _with(centered=False)),
    Fault("rmsprop-variant-ignored", "update", "optim.hyper_parameters", "RMSprop is never TensorFlow's variant",
          _with(use_tf_variant=False)),
    Fault("weight-norm-unlimited", "update", "optim.hyper_parameters", "LAMB never limits the norm of a weight",
          _with(max_weight_norm=math.inf)),
    Fault("first-group-for-all", "update", "optim.hyper_parameters", "all groups are updated with the first one's "
          "numbers", lambda value, *, groups, **context: groups[0]),
    Fault("ascent-ignored", "update", "optim.hyper_parameters", "a loss that is maximised is minimised",
          _with(maximize=False)),
    Fault("loss-scale-not-removed", "update", "optim.gradients", "gradients still hold the loss scale",
          lambda value, *, loss_scale, **context: [gradient * loss_scale for gradient in value]),
    Fault("optimizer-count-stuck", "update", "optim.count", "every update takes itself for the first",
          lambda value, **context: 1),
    Fault("gradients-not-clipped", "update", "optim.clip", "gradients of any norm are used",
          lambda value, **context: math.inf),
    Fault("half-accumulator-in-float32", "update", "optim.accumulator", "gradients are accumulated in float32 "
          "whatever was asked", lambda value, **context: torch.float32),
    Fault("half-state-in-float32", "update", "optim.state_type", "the optimizer's state is held in float32 whatever "
          "was asked", lambda value, **context: torch.float32),
    Fault("set-optimizer-ignored", "update", "optim.replaced", "the optimizer that was compiled in stays",
          lambda value, *, before, **context: before),
):  # fmt: skip
    faults.register(_fault)
