"""The backward pass: for every op on the way from a weight to the loss its gradient ops, in reverse order."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

from ipu_conformance.emulator.poptorch.ir.program import FLOATS, Entry, Program

GRADIENT = "Gradient___"
"""What PopART puts before the name of a tensor to name its gradient."""

SEPARATE: Mapping[str, Tuple[str, ...]] = {
    "MatMul": ("MatMulLhsGrad", "MatMulRhsGrad"),
    "Gemm": ("GemmLhsGrad", "GemmRhsGrad", "AddBiasBiasGrad"),
    "Conv": ("ConvDataGrad", "ConvWeightsGrad", "AddBiasBiasGrad"),
    "MultiConv": ("MultiConvDataGrad", "MultiConvWeightsGrad", "AddBiasBiasGrad"),
    "ConvTranspose": ("ConvTransposeDataGrad", "ConvTransposeWeightsGrad", "AddBiasBiasGrad"),
    **{
        name: (f"{name}Arg0Grad", f"{name}Arg1Grad")
        for name in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Atan2", "Fmod")
    },
    "Where": ("", "WhereXGrad", "WhereYGrad"),
}
"""Types with one gradient op for each input, by position; every other type has one, named after it."""

READS: Mapping[str, str] = {
    **dict.fromkeys(
        ("Add", "Sub", "Reshape", "Transpose", "Identity", "IdentityLoss", "Nop", "Scale", "Neg", "ReduceSum",
         "ReduceMean", "Concat", "Split", "Slice", "Expand", "Tile", "Pad", "Cast", "Dropout", "Flatten"),
        "nothing",
    ),
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Softmax", "LogSoftmax", "Reciprocal"), "outputs"),
    **dict.fromkeys(("MaxPool", "ReduceMax", "ReduceMin", "ReduceProd"), "both"),
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "MultiConv", "ConvTranspose", "Mul", "Div"), "others"),
}  # fmt: skip
"""What gradient ops read of the forward pass beside the gradient; every other type reads its inputs."""

STOPPED: FrozenSet[str] = frozenset(
    ("Detach", "ArgMax", "ArgMin", "Equal", "Greater", "Less", "And", "Or", "Not", "Xor", "Constant", "Sign", "Floor",
     "Ceil", "Round", "RandomUniform", "RandomNormal", "Bernoulli")
)  # fmt: skip
"""Types that no gradient passes."""


def differentiable(program: Program, trainable: Sequence[str]) -> Set[str]:
    """The tensors whose values follow from a trainable weight."""
    found = set(trainable)
    for entry in program.entries:
        if entry.type not in STOPPED and found.intersection(entry.inputs):
            found.update(name for name in entry.outputs if program.kind(name) in FLOATS)
    return found


def active(program: Program, loss: str, found: Set[str]) -> List[Entry]:
    """The ops between the trainable weights and the loss, in reverse order."""
    wanted = {loss}
    entries = []
    for entry in reversed(program.entries):
        if wanted.intersection(entry.outputs) and found.intersection(entry.outputs):
            entries.append(entry)
            wanted.update(name for name in entry.inputs if name in found)
    return entries


def backward(program: Program, loss: str, trainable: Sequence[str]) -> Dict[str, str]:
    """Add the backward pass; return the gradient of every trainable weight that has one."""
    found = differentiable(program, trainable)
    entries = active(program, loss, found)
    shares: Dict[str, int] = {}
    for entry in entries:
        for name in entry.inputs:
            if name in found:
                shares[name] = shares.get(name, 0) + 1
    parts: Dict[str, List[str]] = {loss: [program.held(GRADIENT + loss, program.kind(loss), program.shape(loss))]}
    for entry in entries:
        _gradients_of(program, entry, found, shares, parts)
    return {name: _joined(program, name, parts) for name in trainable if name in parts}


def _gradients_of(
    program: Program, entry: Entry, found: Set[str], shares: Mapping[str, int], parts: Dict[str, List[str]]
) -> None:
    stage = program.pipeline.backward(entry.stage)
    given = [_joined(program, name, parts) for name in entry.outputs if name in parts]
    slots = [place for place, name in enumerate(entry.inputs) if name in found]
    if entry.type in SEPARATE:
        calls = [([place], _separate(entry.type, place)) for place in slots]
    else:
        calls = [(slots, f"{entry.type}Grad")]
    for places, kind in calls:
        names = [entry.inputs[place] for place in places]
        outputs = [(_part_name(name, shares, parts), program.kind(name), program.shape(name)) for name in names]
        made = program.emit(kind, entry.scope, [*given, *_read(entry, places)], outputs, stage)
        for name, gradient in zip(names, made):
            parts.setdefault(name, []).append(gradient)


def _separate(kind: str, place: int) -> str:
    kinds = SEPARATE[kind]
    return kinds[min(place, len(kinds) - 1)]


def _read(entry: Entry, places: Sequence[int]) -> List[str]:
    what = READS.get(entry.type, "inputs")
    inputs = [name for name in entry.inputs if name]
    if what == "others":
        # A product's gradient needs the other factors; that of a bias needs nothing.
        return inputs[:2][::-1][places[0] : places[0] + 1]
    names = {"nothing": [], "outputs": list(entry.outputs), "both": [*inputs, *entry.outputs], "inputs": inputs}
    return list(dict.fromkeys(names[what]))


def _part_name(name: str, shares: Mapping[str, int], parts: Mapping[str, List[str]]) -> str:
    """The name of a gradient; one that is part of a sum is numbered."""
    return GRADIENT + name if shares[name] == 1 else f"{GRADIENT}{name}__part{len(parts.get(name, ()))}"


def _joined(program: Program, name: str, parts: Dict[str, List[str]]) -> str:
    """The whole gradient of a tensor: its only part, or the sum of all, made where the tensor was made."""
    if len(parts[name]) > 1:
        stage = program.pipeline.backward(program.home(name))
        output = (GRADIENT + name, program.kind(name), program.shape(name))
        parts[name] = list(program.emit("Sum", "", parts[name], [output], stage))
    return parts[name][0]
