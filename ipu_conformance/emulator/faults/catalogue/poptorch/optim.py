"""Ways for the device's optimizer to be wrong: its numbers, its state, its gradients, and what a change of it does."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, Wrong

POINTS = {
    "optim.hyper_parameters": "value: namespace of the numbers that a group of weights is updated with; kind: the "
    "optimizer; groups: the namespaces of all groups",
    "optim.gradients": "value: list of the gradients that some weights are updated with; loss_scale: the factor that "
    "was taken out of them",
    "optim.count": "value: the number of the update, from 1; kind: the optimizer",
    "optim.clip": "value: the norm that the gradients are clipped to, infinite for none",
    "optim.accumulator": "value: dtype of accumulated gradients",
    "optim.state_type": "value: dtype of a state; slot: its name",
    "optim.kind": "value: the kind of an optimizer, None for one without counterpart on the device",
    "optim.replaced": "value: the settings that replace others; before: those",
    "optim.compiled_in": "value: whether what is compiled in is compared when an optimizer is replaced",
    "optim.checked": "value: whether the arguments of an optimizer are checked",
    "optim.variable": "value: list of the attributes that are variable",
    "optim.said": "value: list of the lines to log of an optimizer; said: set of those that were logged before; "
    "lines: all that there is to say",
    "optim.relaxed": "value: whether warnings about attributes are off",
    "optim.kept": "value: dict of the arguments that torch's optimizer does not have, None left out",
    "optim.saved": "value: dict of the device's state by name, as state_dict gives it; None before compiling",
    "optim.detached": "value: dict of the device's state by name, as detaching brings it to the host",
    "optim.loaded": "value: dict of what load_state_dict restores on the host; own: the same before",
    "optim.restored": "value: dict of the device's state by name, as load_state_dict sends it",
}
for _name, _what in POINTS.items():
    catalogue.register_point(_name, _what)


def _zeros(value: Any) -> Any:
    return None if value is None else {name: tensor * 0 for name, tensor in value.items()}


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
    Fault("adamw-taken-for-adam", "update", "optim.kind", "AdamW decays weights as Adam does",
          lambda value, **context: "adam" if value == "adamw" else value),
    Fault("unknown-optimizer-is-sgd", "update", "optim.kind", "an optimizer that the device lacks is taken for SGD",
          lambda value, **context: value or "sgd"),
    Fault("constants-not-compared", "update", "optim.compiled_in", "what is compiled in can be replaced",
          lambda value, **context: False),
    Fault("optimizer-arguments-unchecked", "update", "optim.checked", "impossible arguments of an optimizer are "
          "accepted", lambda value, **context: False),
    Fault("all-attributes-constant", "update", "optim.variable", "arguments that are passed are constants",
          lambda value, **context: []),
    Fault("optimizer-warnings-missing", "update", "optim.said", "nothing is said about odd optimizers",
          lambda value, **context: []),
    Fault("optimizer-warnings-repeated", "update", "optim.said", "the same is said of an optimizer again and again",
          lambda value, *, lines, **context: lines),
    Fault("optimizer-warnings-for-all", "update", "optim.said", "ordinary optimizers are called odd",
          lambda value, **context: ["unexpected attributes"]),
    Fault("optimizer-checks-not-relaxed", "update", "optim.relaxed", "warnings about attributes cannot be turned off",
          lambda value, **context: False),
    Fault("optimizer-state-saved-as-zero", "update", "optim.saved", "the saved state of an optimizer is zero",
          lambda value, **context: _zeros(value)),
    Fault("optimizer-state-without-program", "update", "optim.saved", "there is a state before there is a program",
          lambda value, **context: {} if value is None else value),
    Fault("optimizer-state-lost-on-detach", "update", "optim.detached", "detaching forgets the optimizer's state",
          lambda value, **context: _zeros(value)),
    Fault("optimizer-groups-not-restored", "update", "optim.loaded", "loading an optimizer leaves its groups",
          lambda value, *, own, **context: own),
    Fault("extra-arguments-dropped", "update", "optim.kept", "arguments that torch's optimizers lack are ignored",
          lambda value, **context: {}),
    Fault("optimizer-state-not-restored", "update", "optim.restored", "loading an optimizer leaves the device's state",
          lambda value, **context: {}),
    Fault("set-optimizer-ignored", "update", "optim.replaced", "the optimizer that was compiled in stays",
          lambda value, *, before, **context: before),
):  # fmt: skip
    catalogue.register(_fault, __name__)
