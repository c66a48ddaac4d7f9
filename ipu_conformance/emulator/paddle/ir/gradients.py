"""The backward pass: for every op between a weight and the loss its gradient ops, in reverse order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

from ipu_conformance.ir.graph import Op

PREFIX = "Gradient___"
"""What PopART puts before the name of a tensor to name its gradient."""

SEPARATE: Mapping[str, Tuple[str, ...]] = {
    "MatMul": ("MatMulLhsGrad", "MatMulRhsGrad"),
    "Gemm": ("GemmLhsGrad", "GemmRhsGrad", "AddBiasBiasGrad"),
    "Conv": ("ConvDataGrad", "ConvWeightsGrad", "AddBiasBiasGrad"),
    "ConvTranspose": ("ConvTransposeDataGrad", "ConvTransposeWeightsGrad", "AddBiasBiasGrad"),
    "Where": ("", "WhereXGrad", "WhereYGrad"),
    **{name: (f"{name}Arg0Grad", f"{name}Arg1Grad") for name in ("Add", "Sub", "Mul", "Div", "Pow", "Mod")},
}
"""Types with one gradient op for each input, by position; every other type has one for all, named after it."""

STOPPED: FrozenSet[str] = frozenset(
    ("Detach", "ArgMax", "ArgMin", "Equal", "Greater", "Less", "And", "Or", "Not", "Xor", "Constant", "Sign", "Floor",
     "Ceil", "Round", "RandomUniform", "RandomNormal", "OneHot", "Shape", "IsNaN", "IsInf")
)  # fmt: skip
"""Types that no gradient passes."""

_FLOATS = ("FLOAT", "FLOAT16")


def backward(program: Any, loss: str, parameters: Sequence[str]) -> Dict[str, str]:
    """Add the backward pass to a program; return the gradient of every parameter that has one."""
    forward = list(program.ops)
    depending = _depending(program, forward, parameters)
    wanted = {loss}
    parts: Dict[str, List[str]] = {}
    start = program.declare(PREFIX + loss, program.tensors[loss])
    program.held[start] = None
    parts[loss] = [start]
    homes = _first_users(forward)
    for op in reversed(forward):
        if not wanted.intersection(op.outputs) or not depending.intersection(op.outputs):
            continue
        at = replace(op, stage=program.backward_stage(op.stage))
        given = [_joined(program, name, parts, at) for name in op.outputs if name in parts]
        places = [place for place, name in enumerate(op.inputs) if name in depending and not _state(op, place)]
        wanted.update(op.inputs[place] for place in places)
        for kind, slots in _calls(op.type, places):
            names = [op.inputs[place] for place in slots]
            made = [program.declare(_part(name, parts), program.tensors[name]) for name in names]
            program.add(kind, [*given, *_read(op)], made, at)
            for name, gradient in zip(names, made):
                parts.setdefault(name, []).append(gradient)
    found = {}
    for name in parameters:
        if name in parts:
            op = homes[name]
            found[name] = _joined(program, name, parts, replace(op, stage=program.backward_stage(op.stage)))
    return found


def _depending(program: Any, ops: Sequence[Op], parameters: Sequence[str]) -> Set[str]:
    """The tensors whose values follow from a parameter."""
    found = {name for name in parameters if name in program.tensors}
    for op in ops:
        if op.type not in STOPPED and found.intersection(op.inputs):
            found.update(name for name in op.outputs if name and program.tensors[name].dtype in _FLOATS)
    return found


def _state(op: Op, place: int) -> bool:
    """Whether an input is a running statistic, which nothing is differentiated by."""
    return op.type == "BatchNormalization" and place > 2


def _calls(type: str, places: Sequence[int]) -> List[Tuple[str, List[int]]]:
    if type not in SEPARATE:
        return [(f"{type}Grad", list(places))] if places else []
    kinds = SEPARATE[type]
    return [(kinds[min(place, len(kinds) - 1)], [place]) for place in places]


def _read(op: Op) -> List[str]:
    """What gradient ops read of the forward pass: sums and moves of values need nothing."""
    if op.type in ("Add", "Sub", "Reshape", "Transpose", "Identity", "IdentityLoss", "ReduceSum", "ReduceMean",
                   "Concat", "Split", "Slice", "Expand", "Tile", "Pad", "Cast", "Flatten", "Squeeze", "Unsqueeze",
                   "Sum"):  # fmt: skip
        return []
    return list(dict.fromkeys(name for name in op.inputs if name))


def _part(name: str, parts: Mapping[str, List[str]]) -> str:
    count = len(parts.get(name, ()))
    return f"{PREFIX}{name}__part{count}" if count else PREFIX + name


def _joined(program: Any, name: str, parts: Dict[str, List[str]], at: Op) -> str:
    """The whole gradient of a tensor: its only part, or the sum of all."""
    if len(parts[name]) > 1:
        made = program.declare(f"{PREFIX}{name}__sum", program.tensors[name])
        parts[name] = [program.add("Sum", parts[name], [made], at)]
    return parts[name][0]


def _first_users(ops: Sequence[Op]) -> Dict[str, Op]:
    found: Dict[str, Op] = {}
    for op in ops:
        for name in op.inputs:
            found.setdefault(name, op)
    return found
