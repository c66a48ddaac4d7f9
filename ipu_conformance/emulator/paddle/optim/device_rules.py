"""What the device's optimizers do otherwise than Paddle's kernels: updates as they are lowered to PopART."""

from __future__ import annotations

from typing import Any, Dict

from paddle.base import core

from ipu_conformance.emulator.paddle.compile.compositions import Composition, Writer, composed
from ipu_conformance.emulator.paddle.compile.subprograms import program_of

DECAY_SCOPE = "/regularization"
_SCOPE = "op_namescope"


def as_on_device(program: Any) -> Any:
    """A copy of a Program whose updates are the device's: other epsilons, and no decay but momentum's and lamb's."""
    desc = core.ProgramDesc(program.desc)
    block = desc.block(0)
    for index in range(block.op_size()):
        drop_decay(block.op(index))
    return composed(program_of(desc), UPDATES)


def drop_decay(op: Any) -> None:
    """Take decay out of an op, unless it is an attribute that is folded: AdamW's is not, nor what joins a gradient."""
    scope = str(op.attr(_SCOPE)) if op.has_attr(_SCOPE) else ""
    if op.type() == "scale" and scope.startswith(DECAY_SCOPE):
        op._set_attr("scale", 0.0)
    if op.type() == "adamw":
        op._set_attr("coeff", 0.0)


def _rmsprop(op: Any, to: Writer) -> bool:
    """Epsilon is added to the root, and the velocity holds no rate."""
    gradient, square, velocity = (op.input(slot)[0] for slot in ("Grad", "MeanSquare", "Moment"))
    share = float(op.attr("decay"))
    squared = to.add("elementwise_mul", {"X": gradient, "Y": gradient}, axis=-1)
    variance = _mixed(to, square, squared, share, op.output("MeanSquareOut")[0])
    if op.attr("centered"):
        mean = _mixed(to, op.input("MeanGrad")[0], gradient, share, op.output("MeanGradOut")[0])
        of_mean = to.add("elementwise_mul", {"X": mean, "Y": mean}, axis=-1)
        variance = to.add("elementwise_sub", {"X": variance, "Y": of_mean}, axis=-1)
    root = to.add("sqrt", {"X": variance})
    quotient = _over(to, gradient, root, float(op.attr("epsilon")))
    kept = to.add("scale", {"X": velocity}, scale=float(op.attr("momentum")))
    moved = to.add("elementwise_add", {"X": kept, "Y": quotient}, op.output("MomentOut")[0], axis=-1)
    _step(op, to, moved, op.input("LearningRate")[0])
    return True


def _adamax(op: Any, to: Writer) -> bool:
    """Epsilon is added to the norm where it divides, and is no part of the norm that is kept."""
    gradient, beta1 = op.input("Grad")[0], float(op.attr("beta1"))
    first = _mixed(to, op.input("Moment")[0], gradient, beta1, op.output("MomentOut")[0])
    faded = to.add("scale", {"X": op.input("InfNorm")[0]}, scale=float(op.attr("beta2")))
    size = to.add("abs", {"X": gradient})
    norm = to.add("elementwise_max", {"X": faded, "Y": size}, op.output("InfNormOut")[0], axis=-1)
    quotient = _over(to, first, norm, float(op.attr("epsilon")))
    missing = to.add("scale", {"X": op.input("Beta1Pow")[0]}, scale=-1.0, bias=1.0)
    rate = to.add("elementwise_div", {"X": op.input("LearningRate")[0], "Y": missing}, axis=-1)
    _step(op, to, quotient, rate)
    return True


def _mixed(to: Writer, old: str, new: str, share: float, output: str) -> str:
    """``share`` of the old value and the rest of the new one."""
    kept = to.add("scale", {"X": old}, scale=share)
    added = to.add("scale", {"X": new}, scale=1.0 - share)
    return to.add("elementwise_add", {"X": kept, "Y": added}, output, axis=-1)


def _over(to: Writer, value: str, root: str, epsilon: float) -> str:
    divisor = to.add("scale", {"X": root}, scale=1.0, bias=epsilon)
    return to.add("elementwise_div", {"X": value, "Y": divisor}, axis=-1)


def _step(op: Any, to: Writer, direction: str, rate: str) -> None:
    step = to.add("elementwise_mul", {"X": direction, "Y": rate}, axis=-1)
    to.add("elementwise_sub", {"X": op.input("Param")[0], "Y": step}, op.output("ParamOut")[0], axis=-1)


UPDATES: Dict[str, Composition] = {"rmsprop": _rmsprop, "adamax": _adamax}
"""What writes each update otherwise."""
