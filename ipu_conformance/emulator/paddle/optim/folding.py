"""The optimizer of a program: ops, clipping and decay folded into one op, and the state as the device keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

import numpy as np
from paddle.base import core

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile.compilation import (
    BACKWARD,
    FORWARD,
    LOSS,
    OPTIMIZE,
    OPTIMIZER,
    ROLE,
    Compilation,
    Folded,
    role_of,
)
from ipu_conformance.emulator.paddle.errors import NotFound, Unimplemented

GRAD = "@GRAD"
POWER = "Beta1Pow"
_MOMENTS = {"beta1": "beta1", "beta2": "beta2", "eps": "epsilon"}
_L2, _DECOUPLED = "l2_regularization", "decay"


@dataclass(frozen=True)
class Kind:
    """How one optimizer is folded: the folded op's type, its words, and the attributes of an update that it takes."""

    type: str
    words: Mapping[str, Any] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)
    has_rate: bool = True
    """Whether the variable of the learning rate is folded."""
    decay: Optional[str] = None
    """The attribute whose decay is folded; other decay is dropped."""


KINDS: Mapping[str, Kind] = {
    "sgd": Kind("sgd", {"momentum": 0.0}),
    "momentum": Kind("sgd", taken={"momentum": "mu"}, decay="regularization_coeff"),
    "adam": Kind("adam", {"adam_mode": "adam", "weight_decay_mode": _L2}, _MOMENTS),
    "adamw": Kind("adam", {"adam_mode": "adam", "weight_decay_mode": _DECOUPLED}, _MOMENTS),
    "adamax": Kind("adam", {"adam_mode": "adamax", "weight_decay_mode": _L2}, _MOMENTS),
    "lamb": Kind("adam", {"adam_mode": "lamb", "weight_decay_mode": _DECOUPLED}, _MOMENTS, decay="weight_decay"),
    "adadelta": Kind(
        "adaptive",
        {"adaptive_mode": "adadelta", "momentum": 0.0, "weight_decay_mode": _L2},
        {"alpha": "rho", "eps": "epsilon"},
        has_rate=False,
    ),
    "adagrad": Kind(
        "adaptive",
        {"adaptive_mode": "adagrad", "alpha": 0.99, "momentum": 0.0, "weight_decay_mode": _L2},
        {"eps": "epsilon"},
    ),
    "rmsprop": Kind(
        "adaptive",
        {"adaptive_mode": "rmsprop", "weight_decay_mode": _L2},
        {"alpha": "decay", "eps": "epsilon", "momentum": "momentum"},
        has_rate=False,
    ),
}
"""The optimizers that an IPU build knows."""
IGNORED = (
    "sign", "sum", "clip", "clip_by_norm", "reduce_sum", "sqrt", "elementwise_max", "elementwise_div",
    "elementwise_mul", "scale", "assign", "squared_l2_norm", "cast",
)  # fmt: skip
"""Ops that may stand beside the updates."""

_SLOTS_THAT_ARE_NO_STATE = ("Param", "Grad", "LearningRate")
_PREFIX_OF_CLIPPING = "/gradient_clip"
_PREFIX_OF_DECAY = "/regularization"


def extract(record: Compilation, values: Mapping[str, Any]) -> None:
    """Add one op that tells what all ops with the optimizer's role do, and find the loss."""
    ops = record.ops()
    record.optimizer = fold(ops)
    record.loss = find_loss(ops, dynamic=bool(record.strategy.value("is_dynamic")))
    _append(record, record.optimizer, record.loss)


LOSSES: Mapping[str, str] = {
    "softmax_with_cross_entropy": "Loss", "cross_entropy2": "Y", "sigmoid_cross_entropy_with_logits": "Out",
    "kldiv_loss": "Loss", "bce_loss": "Out", "huber_loss": "Out", "warpctc": "Loss", "rank_loss": "Out",
}  # fmt: skip
"""Losses that need no mark in a dynamic model, each with the slot of its result."""
TAILS = ("reduce_sum", "reduce_mean")
"""Reductions that belong to the loss before them."""


def find_loss(ops: List[Any], *, dynamic: bool = False) -> str:
    """The variable at which the gradients begin: the output of ``identity_loss``, or of the op with the loss' role.

    A mark counts more than what is minimized: an IPU build meets the folded optimizer first, and every mark after it
    (``ipu_compiler.cc``). A dynamic model minimizes nothing: there a loss is marked, or is one of LOSSES whose result
    no op reads.
    """
    marked = [op.output("Out")[0] for op in ops if op.type == "identity_loss"]
    if not marked and dynamic:
        marked = _final_losses([op for op in ops if role_of(op) in (FORWARD, FORWARD | LOSS)])
    if marked:
        return str(marked[-1])
    seeds = [
        name[: -len(GRAD)]
        for op in ops
        if role_of(op) & BACKWARD and not op.input_arg_names
        for name in op.output_arg_names
        if name.endswith(GRAD)
    ]
    losses = [name for op in ops if role_of(op) == FORWARD | LOSS for name in op.output_arg_names]
    candidates = [name for name in losses if name in seeds] or seeds or losses
    if not candidates:
        raise NotFound("No loss found in the program; minimize one, or mark it with paddle.incubate.identity_loss")
    return str(candidates[-1])


def _final_losses(ops: List[Any]) -> List[str]:
    """The results of losses, with the reduction that follows one, that no other op reads."""
    final = []
    for op in ops:
        if op.type in LOSSES:
            result = op.output(LOSSES[op.type])[0]
            tail = [reader for reader in ops if reader.type in TAILS and result in reader.input_arg_names]
            result = tail[-1].output("Out")[0] if tail else result
            if not any(result in reader.input_arg_names for reader in ops):
                final.append(result)
    return final


def fold(ops: List[Any]) -> Folded:
    """The optimizer that a program's ops describe."""
    optimizing = [op for op in ops if role_of(op) & OPTIMIZE]
    _refuse(optimizing)
    updates = [op for op in optimizing if op.type in KINDS]
    refusals.NO_OPTIMIZER(updates=updates)
    kinds = list(dict.fromkeys(op.type for op in updates))
    if len(kinds) > 1:
        raise Unimplemented(f"The optimizers {', '.join(kinds)} in one program are not implemented for IPU; use one")
    first = updates[0]
    decay = KINDS[first.type].decay
    return Folded(
        type=first.type,
        learning_rate=first.input("LearningRate")[0] if KINDS[first.type].has_rate else None,
        parameters=tuple(op.input("Param")[0] for op in updates),
        settings=_settings(first),
        weight_decay=_decay(first, decay),
        decays={op.input("Param")[0]: _decay(op, decay) for op in updates} if first.type == "lamb" else {},
        clip_norm=_clip_norm(optimizing),
        gradients={op.input("Param")[0]: _raw_gradient(op.input("Grad")[0], optimizing) for op in updates},
        states={op.input("Param")[0]: _states(op) for op in updates},
    )


def _refuse(optimizing: List[Any]) -> None:
    for op in optimizing:
        clipping = _scope(op).startswith(_PREFIX_OF_CLIPPING)
        known = op.type in KINDS or op.type in IGNORED or (clipping and op.type == "fill_constant")
        refusals.OPTIMIZER(type=op.type, known=known or role_of(op) != OPTIMIZE)
        refusals.NESTEROV(type=op.type, nesterov=_attribute(op, "use_nesterov"))
        refusals.MULTI_PRECISION(type=op.type, precise=_attribute(op, "multi_precision"))
        refusals.LAZY_MODE(type=op.type, lazy=_attribute(op, "lazy_mode"))
        refusals.RESCALED(type=op.type, factor=_attribute(op, "rescale_grad"))
        refusals.L1_DECAY(type=op.type, scope=_scope(op), method=_attribute(op, "regularization_method"))
        refusals.CLIP_BY_VALUE(clipping=clipping, type=op.type)
        refusals.CLIP_BY_NORM(clipping=clipping, type=op.type)


def _attribute(op: Any, name: str) -> Any:
    return op.attr(name) if op.has_attr(name) else None


def _scope(op: Any) -> str:
    return str(_attribute(op, "op_namescope") or "")


def _settings(update: Any) -> Dict[str, Any]:
    """The words that tell the rule of an update."""
    kind = KINDS[update.type]
    settings = {**kind.words, **{name: update.attr(theirs) for name, theirs in kind.taken.items()}}
    if _attribute(update, "centered"):
        settings["adaptive_mode"] = "centered_rmsprop"
    return {"type": kind.type, **settings}


def _decay(update: Any, attribute: Optional[str]) -> float:
    """The decay that an update folds; that of AdamW, and what regularization adds to a gradient, is lost."""
    return 0.0 if attribute is None else float(update.attr(attribute))


def _clip_norm(optimizing: List[Any]) -> Optional[float]:
    """The norm that clipping allows: the constant in its ops."""
    for op in optimizing:
        if op.type == "fill_constant" and _scope(op).startswith(_PREFIX_OF_CLIPPING):
            return float(op.attr("value"))
    return None


def _raw_gradient(name: str, optimizing: List[Any]) -> str:
    """The gradient as backward makes it: clipping, decay and casts may give it another name."""
    maker = {
        out: op
        for op in optimizing
        for out in op.output_arg_names
        if op.type == "cast" or _scope(op).startswith((_PREFIX_OF_CLIPPING, _PREFIX_OF_DECAY))
    }
    while name in maker and name not in maker[name].input_arg_names:
        name = maker[name].input_arg_names[0]
    return name


def _states(update: Any) -> Dict[str, str]:
    return {
        slot: update.input(slot)[0]
        for slot in update.input_names
        if update.input(slot) and slot not in _SLOTS_THAT_ARE_NO_STATE
    }


def _append(record: Compilation, folded: Folded, loss: str) -> None:
    block = record.program.global_block()
    desc = block.desc.append_op()
    desc.set_type(OPTIMIZER)
    desc._set_attr(ROLE, OPTIMIZE)
    for name, value in folded.settings.items():
        desc._set_attr(name, value)
    desc._set_attr("raw_type", folded.type)
    desc._set_attr("loss_var", loss)
    if folded.learning_rate is not None:
        desc._set_attr("lr_var", folded.learning_rate)
    desc._set_attr("with_lr_sched", True)
    desc._set_attr("weight_decay", folded.weight_decay)
    desc._set_attr("weight_decay_vars", list(folded.decays))
    desc._set_attr("weight_decay_values", list(folded.decays.values()))
    if folded.clip_norm is not None:
        desc._set_attr("clip_norm", folded.clip_norm)
    record.program._sync_with_cpp()


def align(record: Compilation, values: Mapping[str, Any]) -> None:
    """Replace every beta1 power on the host by the number of steps that it stands for, which the device keeps."""
    folded = record.optimizer
    if folded is None or record.scope is None:
        return
    for slots in folded.states.values():
        variable = record.scope.find_var(slots[POWER]) if POWER in slots else None
        if variable is None or not variable.get_tensor()._is_initialized():
            continue
        tensor = variable.get_tensor()
        power = np.asarray(tensor)
        tensor.set(steps(power, float(folded.settings["beta1"])), core.CPUPlace())


def steps(power: np.ndarray, beta1: float) -> np.ndarray:
    """The number of steps after which beta1 has the given power: none while Paddle still holds beta1 itself.

    A value that cannot be a power of a beta1 between 0 and 1 is already a number of steps, from an earlier compilation.
    """
    value = float(power.reshape(-1)[0])
    count = np.rint(np.log(value) / np.log(beta1)) - 1 if 0 < value < 1 and 0 < beta1 < 1 else value
    return np.full(power.shape, max(float(count), 0.0), dtype=power.dtype)
