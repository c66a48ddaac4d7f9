"""The optimizer of a program: ops, clipping and decay folded into one op, and the state as the device keeps it."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

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
    SCHEDULE,
    Compilation,
    Folded,
    keep,
    role_of,
)
from ipu_conformance.emulator.paddle.errors import NotFound, Unimplemented

GRAD = "@GRAD"
POWER = "Beta1Pow"
KINDS: Mapping[str, Tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("mu",),
    "adam": ("beta1", "beta2", "epsilon"),
    "adamw": ("beta1", "beta2", "epsilon"),
    "adamax": ("beta1", "beta2", "epsilon"),
    "lamb": ("beta1", "beta2", "epsilon"),
    "adadelta": ("rho", "epsilon"),
    "adagrad": ("epsilon",),
    "rmsprop": ("decay", "momentum", "epsilon", "centered"),
}
"""The optimizers that an IPU build knows, each with the attributes of its op that are folded beside decay."""

_SLOTS_THAT_ARE_NO_STATE = ("Param", "Grad", "LearningRate")
_OWN_DECAY = {"adamw": ("coeff", "with_decay"), "lamb": ("weight_decay", None)}
_PREFIX_OF_CLIPPING = "/gradient_clip"
_PREFIX_OF_DECAY = "/regularization"


def extract(record: Compilation, values: Mapping[str, Any]) -> None:
    """Fold what has the optimizer's role into one op, and find the loss."""
    ops = record.ops()
    record.optimizer = fold(ops)
    record.loss = find_loss(ops)
    keep(record.program, unfolded(ops))
    _append(record, record.optimizer, record.loss)


def unfolded(ops: List[Any]) -> List[Any]:
    """The ops that are not the optimizer's."""
    return [op for op in ops if not role_of(op) & OPTIMIZE]


def find_loss(ops: List[Any]) -> str:
    """The variable at which the gradients begin: the output of ``identity_loss``, or of the op with the loss' role."""
    marked = [op.output("Out")[0] for op in ops if op.type == "identity_loss"]
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


def fold(ops: List[Any]) -> Folded:
    """The optimizer that a program's ops describe."""
    optimizing = [op for op in ops if role_of(op) & OPTIMIZE]
    updates = [op for op in optimizing if op.has_attr("op_namescope") and "Param" in op.input_names]
    refusals.NO_OPTIMIZER(updates=updates)
    kinds = list(dict.fromkeys(op.type for op in updates))
    refusals.OPTIMIZER(types=kinds, known=list(KINDS))
    if len(kinds) > 1:
        raise Unimplemented(f"The optimizers {', '.join(kinds)} in one program are not implemented for IPU; use one")
    first = updates[0]
    _refuse(first, optimizing)
    return Folded(
        type=first.type,
        learning_rate=first.input("LearningRate")[0],
        parameters=tuple(op.input("Param")[0] for op in updates),
        settings=_settings(first),
        weight_decay=_decay(first, optimizing),
        clip_norm=_clip_norm(optimizing),
        scheduled=any(role_of(op) & SCHEDULE for op in ops),
        gradients={op.input("Param")[0]: _raw_gradient(op.input("Grad")[0], optimizing) for op in updates},
        states={op.input("Param")[0]: _states(op) for op in updates},
    )


def _refuse(update: Any, optimizing: List[Any]) -> None:
    refusals.NESTEROV(nesterov=update.type == "momentum" and update.attr("use_nesterov"))
    for op in optimizing:
        scope = _scope(op)
        clipping, decaying = scope.startswith(_PREFIX_OF_CLIPPING), scope.startswith(_PREFIX_OF_DECAY)
        refusals.CLIP_BY_VALUE(clipping=clipping, type=op.type)
        refusals.CLIP_BY_NORM(clipping=clipping, type=op.type)
        refusals.L1_DECAY(decaying=decaying, type=op.type)


def _scope(op: Any) -> str:
    return str(op.attr("op_namescope")) if op.has_attr("op_namescope") else ""


def _settings(update: Any) -> Dict[str, Any]:
    """The attributes of the update that are folded beside decay."""
    return {name: update.attr(name) for name in KINDS[update.type]}


def _decay(update: Any, optimizing: List[Any]) -> float:
    """The weight decay: an attribute of the update, or the factor of what regularization adds to the gradient."""
    if update.type in _OWN_DECAY:
        name, condition = _OWN_DECAY[update.type]
        return float(update.attr(name)) if condition is None or update.attr(condition) else 0.0
    if update.has_attr("regularization_method") and update.attr("regularization_method") == "l2_decay":
        return float(update.attr("regularization_coeff"))
    factors = [op.attr("scale") for op in optimizing if op.type == "scale" and _scope(op).startswith(_PREFIX_OF_DECAY)]
    return float(factors[0]) if factors else 0.0


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
    desc._set_attr("type", folded.type)
    desc._set_attr("loss_var", loss)
    desc._set_attr("lr_var", folded.learning_rate)
    desc._set_attr("with_lr_sched", folded.scheduled)
    desc._set_attr("weight_decay", folded.weight_decay)
    if folded.clip_norm is not None:
        desc._set_attr("clip_norm", folded.clip_norm)
    for name, value in folded.settings.items():
        desc._set_attr(name, value)
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
