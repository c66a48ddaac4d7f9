"""Reads an optimizer of torch or of PopTorch into plain data for the device."""

from __future__ import annotations

import inspect
import math
import weakref
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

import torch

from ipu_conformance.emulator.poptorch.options.diagnostics import logger
from ipu_conformance.emulator.poptorch.refusals import optim as refusals

TORCH = (("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam), ("sgd", torch.optim.SGD),
         ("rmsprop", torch.optim.RMSprop))  # fmt: skip
"""The optimizers of torch by kind, AdamW before Adam: newer versions of torch derive the one from the other."""

_HALVES = {"first_order_momentum_accum_type": torch.float32, "second_order_momentum_accum_type": torch.float32}
_WHOLE = {"loss_scaling": 1.0, "accum_type": torch.float32}

ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "sgd": {"lr": 1e-3, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False},
    "adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0, "maximize": False},
    "adamw": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "maximize": False},
    "rmsprop": {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0, "centered": False,
                "maximize": False},
    "lamb": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "max_weight_norm": 65500.0},
}  # fmt: skip
"""What a group of each kind holds, with the defaults."""

WHOLE: Mapping[str, Mapping[str, Any]] = {
    "sgd": {**_WHOLE, "velocity_scaling": 1.0, "use_combined_accum": False, "velocity_accum_type": torch.float32,
            "max_grad_norm": math.inf},
    "adam": {**_WHOLE, **_HALVES, "max_grad_norm": math.inf, "bias_correction": True},
    "adamw": {**_WHOLE, **_HALVES, "max_grad_norm": math.inf, "bias_correction": True},
    "rmsprop": {**_WHOLE, **_HALVES, "use_tf_variant": False},
    "lamb": {**_WHOLE, **_HALVES, "bias_correction": True, "max_grad_norm": math.inf},
}  # fmt: skip
"""What belongs to a whole optimizer of each kind, with the defaults."""

ALWAYS_CONSTANT = frozenset(
    ("nesterov", "centered", "maximize", "use_combined_accum", "accum_type", "velocity_accum_type",
     *_HALVES, "max_grad_norm", "bias_correction", "use_tf_variant")
)  # fmt: skip
"""What shapes the program: it can never be sent to the device later, whoever made the optimizer."""

CONSTANT_OF_TORCH = ALWAYS_CONSTANT | {"betas", "alpha"}

SCHEDULERS = frozenset(
    ("initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr", "step", "_step_count", "_opt_called")
)
"""What torch's learning-rate schedulers leave on an optimizer and its groups."""


@dataclass(frozen=True)
class Group:
    """Weights that share their hyper-parameters; ``constant`` names the values that are compiled in."""

    names: Tuple[str, ...]
    values: Mapping[str, Any]
    constant: FrozenSet[str]


@dataclass(frozen=True)
class Settings:
    """Everything the device knows about an optimizer; ``constant`` names what of ``whole`` is compiled in."""

    kind: str
    groups: Tuple[Group, ...]
    whole: Mapping[str, Any]
    constant: FrozenSet[str]


def kind_of(optimizer: Any) -> Optional[str]:
    """The kind of an optimizer, None for one that has no counterpart on the device."""
    kind = getattr(optimizer, "_ipu_kind", None)
    if kind is None:
        kind = next((kind for kind, known in TORCH if isinstance(optimizer, known)), None)
    if kind == "adam" and optimizer.param_groups[0].get("decoupled_weight_decay"):
        kind = "adamw"
    return kind


def read(optimizer: Any, parameters: Mapping[str, torch.Tensor]) -> Settings:
    """The settings of an optimizer for weights that are known by name; weights in no group have none."""
    kind = kind_of(optimizer)
    if kind is None:
        raise AssertionError(
            f"Unsupported optimizer type {type(optimizer).__name__}: use SGD, Adam, AdamW or RMSprop of torch.optim, "
            "or an optimizer of poptorch.optim"
        )
    names: Dict[int, str] = {id(parameter): name for name, parameter in parameters.items()}
    groups: List[Group] = []
    for group in optimizer.param_groups:
        refusals.AMSGRAD(amsgrad=group.get("amsgrad"))
        values = {name: _plain(group.get(name, default)) for name, default in ATTRIBUTES[kind].items()}
        held = tuple(names[id(each)] for each in group["params"] if id(each) in names)
        groups.append(Group(held, values, constants_of(optimizer, kind, values)))
    whole = {name: _attribute(optimizer, name, default) for name, default in WHOLE[kind].items()}
    if whole.get("use_combined_accum"):
        whole.update(accum_type=torch.float32, velocity_accum_type=torch.float32)  # one tensor, whatever they say
    if kind in ("adam", "adamw"):
        whole["bias_correction"] = True  # the vendor's AdamW corrects the bias whatever the option says
    return Settings(kind, tuple(groups), whole, constants_of(optimizer, kind, whole))


def check_weights(optimizer: Any, parameters: Mapping[str, torch.Tensor]) -> None:
    """Refuse an optimizer of weights that the model does not have: no device would update them."""
    held = {id(parameter) for parameter in parameters.values()}
    for number, group in enumerate(optimizer.param_groups):
        strangers = [each for each in group["params"] if id(each) not in held]
        refusals.FOREIGN_WEIGHTS(group=number, strangers=strangers)


def constants_of(optimizer: Any, kind: str, values: Mapping[str, Any]) -> FrozenSet[str]:
    """Which values are compiled in: as marked, or for torch's optimizers those that equal their defaults."""
    marks = getattr(optimizer, "variable_attrs", None)
    if marks is not None:
        return frozenset(name for name in values if marks.isConstant(name))
    defaults = {**ATTRIBUTES[kind], **WHOLE[kind]}
    return frozenset(
        name
        for name, value in values.items()
        if name != "lr" and (name in CONSTANT_OF_TORCH or value == defaults[name])
    )


def _plain(value: Any) -> Any:
    """A number for a tensor of one, a tuple for any sequence: values that compare."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(each) for each in value)
    return value.item() if isinstance(value, torch.Tensor) else value


def _attribute(optimizer: Any, name: str, default: Any) -> Any:
    value = getattr(optimizer, name, None)
    return default if value is None else value


_IGNORING = "Ignoring unexpected"
_seen: weakref.WeakKeyDictionary[Any, Set[str]] = weakref.WeakKeyDictionary()
"""The lines that were written for the models that share some options."""


def warn(optimizer: Any, options: Any) -> None:
    """Log, once for a model, what is odd about its optimizer."""
    relaxed = options is not None and options.relax_optimizer_checks
    for line in _unsaid(oddities(optimizer), options):
        (logger.debug if relaxed else logger.warning)("%s", line)


def oddities(optimizer: Any) -> List[str]:
    """A line for attributes that the device ignores, and for a subclass that it treats as its base."""
    found = [(f"group {number} attribute", names) for number, names in enumerate(unexpected_in_groups(optimizer))]
    lines = [
        f"{_IGNORING} {what} in {type(optimizer).__name__} optimizer: {names}"
        for what, names in (*found, ("optimizer attribute", unexpected(optimizer)))
        if names
    ]
    kind = type(optimizer)
    base = next((known for _, known in TORCH if isinstance(optimizer, known)), None)
    if base is not None and kind is not base and not hasattr(optimizer, "_ipu_kind"):
        lines.append(
            f"{kind.__name__} is a subclass of torch.optim.{base.__name__}: the device steps as {base.__name__} does"
        )
    return lines


def _unsaid(lines: Sequence[str], options: Any) -> List[str]:
    """The lines that a model with these options has not logged yet; they count as logged from now on.

    What an optimizer holds when a model is wrapped is what is expected of it.
    """
    expected = _IGNORING if options is not None and options not in _seen else "\0"
    seen = set() if options is None else _seen.setdefault(options, set())
    fresh = [line for line in lines if line not in seen and not line.startswith(expected)]
    seen.update(lines)
    return fresh


def unexpected_in_groups(optimizer: Any) -> List[List[str]]:
    """What each group holds beyond the arguments of the optimizer and the marks of schedulers."""
    known = {"params", "param_names", *optimizer.defaults, *SCHEDULERS, *_constructor_of(optimizer)}
    return [sorted(set(group) - known) for group in optimizer.param_groups]


def unexpected(optimizer: Any) -> List[str]:
    """What was added to the optimizer beside its own attributes and the marks of schedulers."""
    pristine = vars(torch.optim.SGD([torch.zeros(1)], lr=0.0))
    known = {*pristine, *SCHEDULERS, *WHOLE[kind_of(optimizer) or "sgd"], *getattr(optimizer, "_ipu_attributes", ())}
    return sorted(name for name in vars(optimizer) if name not in known and not name.startswith("_"))


def _constructor_of(optimizer: Any) -> Tuple[str, ...]:
    bases = [known for _, known in TORCH if isinstance(optimizer, known)] or [type(optimizer)]
    return tuple(inspect.signature(bases[0].__init__).parameters)
