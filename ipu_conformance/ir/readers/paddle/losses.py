"""Rows for Paddle's losses."""

from __future__ import annotations

import math
from typing import Any, Dict

from ipu_conformance.ir.readers.op_writer import length_of
from ipu_conformance.ir.readers.paddle.elementwise import along_last, reduced, together
from ipu_conformance.ir.readers.paddle.ops import Call, Writer, row
from ipu_conformance.ir.tensor import IRError

REDUCTIONS = ("Sum", "Mean", "NoReduction")
"""The reductions of a loss by the numbers that ``identity_loss`` takes."""

_NOT_NONE = 1e-5
"""What is added to a number of losses before they are divided by it."""
_REDUCED = {"mean": "ReduceMean", "batchmean": "ReduceSum", "sum": "ReduceSum"}


def _without(axis: int, name: str, to: Writer) -> str:
    """Labels without the dimension of length 1 that stands in the place of the classes."""
    shape = to.shape(name)
    if len(shape) < 2 or axis >= len(shape) or shape[axis] != 1:
        return name
    return to.add("Squeeze", (name,), None, {"axes": (axis,)}, shape=(*shape[:axis], *shape[axis + 1 :]))


def _nll(
    call: Call, to: Writer, scores: str, label: str, made: str, attributes: Dict[str, Any], axis: int = -1
) -> None:
    """The loss of every sample, with the dimension of length 1 that Paddle's has in the place of the classes."""
    rank = len(to.shape(scores))
    place = axis % rank
    narrow = _without(place, label, to)
    if place != rank - 1:
        scores = to.transpose(scores, [*(at for at in range(rank) if at != place), place])
    ignored = int(call.get("ignore_index", -100))
    full = {**attributes, "reduction": "NoReduction", **({"ignoreIndex": ignored} if ignored >= 0 else {})}
    if narrow == label:
        to.add("Nll", (scores, narrow), made, full)
        return
    each = to.add("Nll", (scores, narrow), None, full, shape=to.shape(narrow))
    to.add("Unsqueeze", (each,), made, {"axes": (place,)})


@row("softmax_with_cross_entropy")
def _softmax_cross_entropy(call: Call, to: Writer) -> None:
    scores, label, output = call.read("Logits"), call.read("Label"), call.output("Loss")
    axis = to.axis(int(call.get("axis", -1)), scores)
    if call.get("soft_label", False):
        _soft_cross_entropy(call, to, axis)
        return
    probabilities = along_last("Softmax", scores, axis, (call.outputs.get("Softmax") or ("",))[0], to)
    _nll(call, to, probabilities, label, output, {"inputIsLogProbability": 0}, axis)


def _soft_cross_entropy(call: Call, to: Writer, axis: int) -> None:
    scores, label, output = call.read("Logits"), call.read("Label"), call.output("Loss")
    if call.outputs.get("Softmax"):
        along_last("Softmax", scores, axis, call.outputs["Softmax"][0], to)
    product = to.add("Mul", (label, along_last("LogSoftmax", scores, axis, "", to)))
    total = to.add("ReduceSum", (product,), None, {"axes": (axis,), "keepdims": 1}, shape=to.shape(output))
    to.add("Neg", (total,), output)


@row("cross_entropy", "cross_entropy2")
def _cross_entropy(call: Call, to: Writer) -> None:
    if call.get("soft_label", False):
        raise IRError(f"{call.type} has soft labels; use softmax_with_cross_entropy for them")
    _nll(call, to, call.read("X"), call.read("Label"), call.output("Y", "Out"), {"inputIsLogProbability": 0})


@row("nll_loss")
def _nll_loss(call: Call, to: Writer) -> None:
    if call.optional("Weight"):
        raise IRError("nll_loss has a weight for every class; leave it out")
    reduction = {"mean": "Mean", "sum": "Sum"}.get(str(call.get("reduction", "mean")), "NoReduction")
    ignored = int(call.get("ignore_index", -100))
    attributes = {
        "inputIsLogProbability": 1,
        "reduction": reduction,
        **({"ignoreIndex": ignored} if ignored >= 0 else {}),
    }
    to.add("Nll", (call.read("X"), call.read("Label")), call.output(), attributes)


@row("identity_loss")
def _identity_loss(call: Call, to: Writer) -> None:
    number = int(call.get("reduction", 1))
    if not 0 <= number < len(REDUCTIONS):
        raise IRError(f"identity_loss has the reduction {number}; the reductions are 0 (sum), 1 (mean) and 2 (none)")
    to.add("IdentityLoss", (call.read("X"),), call.output(), {"reduction": REDUCTIONS[number]})


@row("bce_loss", "log_loss")
def _binary_cross_entropy(call: Call, to: Writer) -> None:
    chance, label = (
        call.read(slot) for slot in (("X", "Label") if call.type == "bce_loss" else ("Predicted", "Labels"))
    )
    one = to.number(1, chance)
    shift = float(call.get("epsilon", 0.0)) if call.type == "log_loss" else 0.0
    parts = []
    for value, weight in ((chance, label), (to.add("Sub", (one, chance), shape=to.shape(chance)), None)):
        moved = to.add("Add", (value, to.number(shift, chance))) if shift else value
        share = weight or to.add("Sub", (one, label), shape=to.shape(label))
        parts.append(to.add("Mul", (share, to.add("Log", (moved,)))))
    to.add("Neg", (to.add("Add", parts),), call.output("Out", "Loss"))


@row("sigmoid_cross_entropy_with_logits")
def _sigmoid_cross_entropy(call: Call, to: Writer) -> None:
    scores, label = call.read("X"), call.read("Label")
    positive = to.add("Sub", (to.add("Relu", (scores,)), to.add("Mul", (scores, label))))
    small = to.add("Exp", (to.add("Neg", (to.add("Abs", (scores,)),)),))
    rest = to.add("Log", (to.add("Add", (small, to.number(1, scores))),))
    ignored, normalized = int(call.get("ignore_index", -100)), bool(call.get("normalize", False))
    if ignored == -100 and not normalized:
        to.add("Add", (positive, rest), call.output())
        return
    each = to.add("Add", (positive, rest))
    without = to.add("Equal", (label, to.number(ignored, label)), dtype="BOOL", shape=to.shape(label))
    kept = to.add("Where", (without, to.number(0, scores), each), None if normalized else call.output())
    if normalized:
        counted = to.cast(to.add("Not", (without,)), to.dtype(scores))
        count = to.add("ReduceSum", (counted,), None, {"keepdims": 0}, shape=())
        to.add("Div", (kept, to.add("Add", (count, to.number(_NOT_NONE, scores)), shape=())), call.output())


@row("huber_loss")
def _huber(call: Call, to: Writer) -> None:
    source, delta = call.read("X"), float(call.get("delta", 1.0))
    rest = to.add("Sub", (call.read("Y"), source), call.outputs.get("Residual", ())[:1] or None)
    size = to.add("Abs", (rest,), shape=to.shape(source), dtype=to.dtype(source))
    near = to.add("Mul", (to.add("Mul", (size, size)), to.number(0.5, source)))
    far = to.add("Mul", (to.add("Sub", (size, to.number(0.5 * delta, source))), to.number(delta, source)))
    inside = to.add("Not", (to.add("Greater", (size, to.number(delta, source)), dtype="BOOL"),))
    to.add("Where", (inside, near, far), call.output())


@row("hinge_loss")
def _hinge(call: Call, to: Writer) -> None:
    """Labels are 0 and 1, which stand for the signs -1 and 1."""
    scores, label = call.read("Logits"), call.read("Labels")
    one, two = to.number(1, scores), to.number(2, scores)
    sign = to.add("Sub", (to.add("Mul", (label, two)), one))
    to.add("Relu", (to.add("Sub", (one, to.add("Mul", (sign, scores))), shape=to.shape(scores)),), call.output("Loss"))


@row("rank_loss")
def _rank(call: Call, to: Writer) -> None:
    label, apart = call.read("Label"), to.add("Sub", (call.read("Left"), call.read("Right")))
    to.add("Sub", (to.add("Softplus", (apart,)), to.add("Mul", (label, apart))), call.output())


@row("dist")
def _distance(call: Call, to: Writer) -> None:
    """A norm of the difference of two tensors that broadcast."""
    one, other, output = call.read("X"), call.read("Y"), call.output()
    power = float(call.get("p", 2.0))
    apart = to.add("Sub", (one, other), None, None, shape=together(to, one, other))
    if power in (1.0, 2.0):
        reduced(to, "ReduceL1" if power == 1 else "ReduceL2", apart, call, output, ("", ""))
        return
    size = to.add("Abs", (apart,))
    if math.isinf(power):
        reduced(to, "ReduceMax" if power > 0 else "ReduceMin", size, call, output, ("", ""))
    elif power == 0:
        reduced(to, "ReduceSum", to.add("Sign", (size,)), call, output, ("", ""))
    else:
        total = to.fresh("ReduceSum", to.dtype(one), to.shape(output))
        reduced(to, "ReduceSum", to.add("Pow", (size, to.number(power, one))), call, total, ("", ""))
        to.add("Pow", (total, to.number(1 / power, one)), output)


@row("kldiv_loss")
def _kl_divergence(call: Call, to: Writer) -> None:
    source, target, output = call.read("X"), call.read("Target"), call.output("Loss")
    apart = to.add("Sub", (to.add("Log", (target,)), source))
    positive = to.add("Greater", (target, to.number(0, target)), dtype="BOOL")
    reduction = str(call.get("reduction", "mean"))
    last = reduction not in _REDUCED
    each = to.add("Where", (positive, to.add("Mul", (target, apart)), to.number(0, target)), output if last else None,
                  dtype=to.dtype(source), shape=to.shape(source))  # fmt: skip
    if last:
        return
    if reduction != "batchmean":
        reduced(to, _REDUCED[reduction], each, call, output, ("", ""))
        return
    total = to.fresh("ReduceSum", to.dtype(source), to.shape(output))
    reduced(to, "ReduceSum", each, call, total, ("", ""))
    to.add("Div", (total, to.number(length_of(to.shape(source)[0], source), source)), output)


@row("label_smooth")
def _label_smooth(call: Call, to: Writer) -> None:
    source, epsilon = call.read("X"), float(call.get("epsilon", 0.0))
    kept = to.add("Mul", (source, to.number(1 - epsilon, source)))
    classes = length_of(to.shape(source)[-1], source)
    prior = call.optional("PriorDist")
    spread = to.add("Mul", (prior, to.number(epsilon, source))) if prior else to.number(epsilon / classes, source)
    to.add("Add", (kept, spread), call.output())


@row("warpctc")
def _ctc(call: Call, to: Writer) -> None:
    if call.get("norm_by_times", False):
        raise IRError("warpctc norms its gradients by the steps of each sequence; leave norm_by_times off")
    slots = ("Logits", "Label", "LogitsLength", "LabelLength")
    to.add(
        "Ctc",
        [call.read(slot) for slot in slots],
        call.output("Loss"),
        {"blank": int(call.get("blank", 0)), "reduction": "NoReduction"},
    )
