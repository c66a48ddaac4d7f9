"""Reads an optimizer of torch or of PopTorch into plain data: what the device is told of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch

KINDS = (("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam), ("sgd", torch.optim.SGD),
         ("rmsprop", torch.optim.RMSprop))
"""The optimizers of torch by kind, AdamW before Adam: newer versions of torch derive the one from the other."""

ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"lr": 1e-3, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False},
    "adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "maximize": False},
    "adamw": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "maximize": False},
    "rmsprop": {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0, "centered": False,
                "maximize": False},
    "lamb": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
}
"""What a group of each kind may hold, with torch's defaults."""

WHOLE: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"loss_scaling": 1.0, "velocity_scaling": None, "use_combined_accum": False, "accum_type": torch.float32,
            "velocity_accum_type": torch.float32, "max_grad_norm": math.inf},
    "adam": {"loss_scaling": 1.0, "accum_type": torch.float32, "first_order_momentum_accum_type": torch.float32,
             "second_order_momentum_accum_type": torch.float32, "max_grad_norm": math.inf, "bias_correction": True},
    "rmsprop": {"loss_scaling": 1.0, "accum_type": torch.float32, "first_order_momentum_accum_type": torch.float32,
                "second_order_momentum_accum_type": torch.float32, "use_tf_variant": False},
    "lamb": {"loss_scaling": 1.0, "accum_type": torch.float32, "first_order_momentum_accum_type": torch.float32,
             "second_order_momentum_accum_type": torch.float32, "bias_correction": True, "max_weight_norm": math.inf},
}
"""What belongs to a whole optimizer of each kind, with its defaults."""


@dataclass(frozen=True)
class Group:
    """Weights that share their hyper-parameters."""

    names: Tuple[str, ...]
    values: Mapping[str, Any]
    constant: frozenset
    """The names of the values that are compiled into the program."""


@dataclass(frozen=True)
class Settings:
    """All that the device is told of an optimizer."""

    kind: str
    groups: Tuple[Group, ...]
    whole: Mapping[str, Any]
    constant: frozenset
    """The names in ``whole`` that are compiled into the program."""


def kind_of(optimizer: Any) -> Optional[str]:
    """The kind of an optimizer, None for one that has no counterpart on the device."""
    own = getattr(optimizer, "_ipu_kind", None)
    if own is not None:
        return str(own)
    return next((kind for kind, known in KINDS if isinstance(optimizer, known)), None)


def whole_of(kind: str) -> Mapping[str, Any]:
    """The defaults of what belongs to a whole optimizer."""
    return WHOLE["adam" if kind == "adamw" else kind]


def read(optimizer: Any, parameters: Mapping[str, torch.Tensor]) -> Settings:
    """The settings of an optimizer for weights that are known by name; weights in no group have none."""
    kind = kind_of(optimizer)
    if kind is None:
        raise ValueError(
            f"Unsupported optimizer type {type(optimizer).__name__}: use SGD, Adam, AdamW or RMSprop of torch.optim, "
            "or an optimizer of poptorch.optim"
        )
    names: Dict[int, str] = {id(parameter): name for name, parameter in parameters.items()}
    groups: List[Group] = []
    for group in optimizer.param_groups:
        if group.get("amsgrad"):
            raise ValueError("amsgrad=True is not supported: use amsgrad=False")
        values = {name: group.get(name, default) for name, default in ATTRIBUTES[kind].items()}
        held = tuple(names[id(each)] for each in group["params"] if id(each) in names)
        groups.append(Group(held, values, constants_of(optimizer, kind, values)))
    defaults = whole_of(kind)
    whole = {name: getattr(optimizer, name, default) for name, default in defaults.items()}
    return Settings(kind, tuple(groups), whole, constants_of(optimizer, kind, whole))


def constants_of(optimizer: Any, kind: str, values: Mapping[str, Any]) -> frozenset:
    """Which values are compiled into the program."""
    own = getattr(optimizer, "variable_attrs", None)
    if own is not None:
        return frozenset(name for name in values if own.isConstant(name))
    defaults = {**ATTRIBUTES[kind], **whole_of(kind)}
    return frozenset(
        name for name, value in values.items() if name != "lr" and (name in ALWAYS_CONSTANT or value == defaults[name])
    )


ALWAYS_CONSTANT = frozenset(
    ("betas", "alpha", "nesterov", "centered", "maximize", "use_combined_accum", "accum_type", "velocity_accum_type",
     "first_order_momentum_accum_type", "second_order_momentum_accum_type", "max_grad_norm", "bias_correction",
     "use_tf_variant")
)
"""What shapes the program and can never be sent to it later."""
