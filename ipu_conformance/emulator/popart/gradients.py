"""The backward pass: for every op between a weight and the loss its gradient ops, in reverse order.

Types, names and inputs follow PopART's sources: the list of gradient operators, ``getGradId`` and ``getEdgeGradId``,
and the ``gradInputInfo`` of each gradient op.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import replace
from typing import Callable, Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

from ipu_conformance.emulator.popart.program import FLOATS, RECOMPUTE, Place, Program
from ipu_conformance.ir.graph import Op

GRADIENT = "Gradient___"
"""What PopART puts before the name of a tensor to name its gradient."""

BY_INPUT: Mapping[str, Tuple[str, ...]] = {
    "MatMul": ("MatMulLhsGrad", "MatMulRhsGrad"),
    "Gemm": ("GemmLhsGrad", "GemmRhsGrad", "AddBiasBiasGrad"),
    **{name: (f"{name}DataGrad", f"{name}WeightsGrad", "AddBiasBiasGrad") for name in ("Conv", "ConvTranspose")},
    "AddBias": ("AddBiasDataGrad", "AddBiasBiasGrad"),
    **{name: (f"{name}Arg0Grad", f"{name}Arg1Grad") for name in ("Add", "Sub", "Mul", "Div", "Pow", "Atan2")},
    **{name: (f"{name}Arg0Grad", "") for name in ("Fmod", "Mod")},
    **{name: (f"{name}ArgGrad",) for name in ("Max", "Min", "Mean", "Sum")},
    "Concat": ("ConcatGrad",),
    "Scatter": ("ScatterDataGrad", "", "ScatterUpdateGrad"),
    "Where": ("", "WhereXGrad", "WhereYGrad"),
}
"""Types with one gradient op for each input, by position, the last for all that follow; an input may have none."""

FOR_ALL: Mapping[str, str] = {"Softplus": "SoftPlusGrad", "Softsign": "SoftSignGrad"}
"""The gradient op of types that have one for all inputs, where it is not named after the type."""

READS: Mapping[str, str] = {
    **dict.fromkeys(
        ("AddArg0Grad", "AddArg1Grad", "SubArg0Grad", "SubArg1Grad", "AddBiasDataGrad", "AddBiasBiasGrad", "SumArgGrad",
         "MeanArgGrad",
         "ReshapeGrad", "FlattenGrad", "SqueezeGrad", "UnsqueezeGrad", "TransposeGrad", "IdentityGrad", "NopGrad",
         "IdentityLossGrad", "ScaleGrad", "NegGrad", "ReduceSumGrad", "ReduceMeanGrad", "ConcatGrad", "SplitGrad",
         "SliceGrad", "ExpandGrad", "TileGrad", "PadGrad", "CastGrad", "DropoutGrad"),
        "dy",
    ),
    **dict.fromkeys(("ReluGrad", "SigmoidGrad", "TanhGrad", "ExpGrad", "SqrtGrad", "SoftmaxGrad"), "dy y"),
    **dict.fromkeys(("MaxPoolGrad", "AveragePoolGrad", "GlobalMaxPoolGrad", "GlobalAveragePoolGrad"), "x y dy"),
    **dict.fromkeys(("ReduceMaxGrad", "ReduceMinGrad", "ReduceLogSumExpGrad", "ReduceL2Grad"), "dy x y"),
    **dict.fromkeys(("MaxArgGrad", "MinArgGrad"), "dy own y"),
    **{
        kind: "dy x y"
        for name in ("Mul", "Div", "Pow", "Atan2", "Fmod", "Mod")
        for kind in (f"{name}Arg0Grad", f"{name}Arg1Grad")
    },
    **dict.fromkeys(("MatMulLhsGrad", "MatMulRhsGrad", "GemmLhsGrad", "GemmRhsGrad"), "dy other"),
    **dict.fromkeys(("ConvDataGrad", "ConvTransposeDataGrad"), "other dy"),
    **dict.fromkeys(("ConvWeightsGrad", "ConvTransposeWeightsGrad"), "dy other"),
    "MultiConvDataGrad": "second dy",
    "MultiConvWeightsGrad": "dy first",
    **dict.fromkeys(("WhereXGrad", "WhereYGrad"), "x0 dy"),
    "BatchNormalizationGrad": "x0 x1 y3 y4 dy",
    "GroupNormalizationGrad": "x0 x1 y1 y2 dy",
    "NllGrad": "x dy",
}  # fmt: skip
"""What a gradient op reads: dy, the gradients of the outputs; x and y, all inputs and outputs, or one of them by
position; own, the input that it differentiates by; other, the other factor; first and second, those of all pairs of
factors. Every type that is not here reads dy x."""

STOPPED: FrozenSet[str] = frozenset(
    ("Detach", "ArgMax", "ArgMin", "Equal", "Greater", "Less", "And", "Or", "Not", "Xor", "Constant", "Sign", "Floor",
     "Ceil", "Round", "RandomUniform", "RandomNormal", "Bernoulli", "OneHot", "Shape", "IsNaN", "IsInf")
)  # fmt: skip
"""Types that no gradient passes."""

_PAIR = ("Data", "Weights")
"""What the pairs of inputs of a MultiConv are."""

_Calls = List[Tuple[str, List[int]]]
"""The gradient ops of an op, each with the positions of the inputs that it differentiates by."""


def backward(
    program: Program, loss: str, weights: Sequence[str], behind: Callable[[Place], Place], scale: float = 1.0
) -> Dict[str, Tuple[str, Place]]:
    """Add the backward pass; return the gradient of every weight that has one, and where the weight is updated.

    ``behind`` gives the place of a gradient op from that of its forward op, ``scale`` is the gradient of the loss.
    """
    return _Backward(program, weights, behind, scale).run(loss, weights)


class _Backward:
    def __init__(
        self, program: Program, weights: Sequence[str], behind: Callable[[Place], Place], scale: float
    ) -> None:
        self.program = program
        self.scale = scale
        self.behind = behind
        self.forward = list(program.ops)
        self.depending = _depending(program, weights)
        self.homes = _homes(self.forward)
        self.edges: Counter[str] = Counter()
        """How many gradients of each tensor there are to add."""
        self.parts: Dict[str, List[str]] = {}

    def run(self, loss: str, weights: Sequence[str]) -> Dict[str, Tuple[str, Place]]:
        between = self._between(loss)
        seed = self.program.filled(replace(self.program.tensors[loss], name=GRADIENT + loss), self.scale)
        self.parts[loss] = [seed]
        for number, op, calls in between:
            self._differentiate(number, op, calls)
        return {name: (self._whole(name), self.behind(self.homes[name])) for name in weights if name in self.parts}

    def _between(self, loss: str) -> List[Tuple[int, Op, _Calls]]:
        """The ops between the weights and the loss with their gradient ops, in reverse order."""
        wanted = {loss}
        between = []
        for number, op in reversed(list(enumerate(self.forward))):
            calls = _calls(op, self.depending) if wanted.intersection(op.outputs) else []
            if calls and self.depending.intersection(op.outputs):
                between.append((number, op, calls))
                names = [op.inputs[place] for _, places in calls for place in places]
                self.edges.update(names)
                wanted.update(names)
        return between

    def _differentiate(self, number: int, op: Op, calls: _Calls) -> None:
        place = self.behind(Place(op.ipu, op.stage))
        gradients = [self._whole(name) for name in op.outputs if name in self.parts]
        for kind, places in calls:
            names = [op.inputs[index] for index in places]
            outputs = [
                replace(self.program.tensors[name], name=self._edge(name, number, index))
                for name, index in zip(names, places)
            ]
            # A gradient op has the words of its forward op: strides, axes, the reduction of a loss.
            attributes = dict(op.attributes) if kind.startswith(op.type) else {}
            attributes.pop(RECOMPUTE, None)
            if kind == "ConcatGrad":
                attributes.update(self._part(op, places[0]))
            elif kind == "SliceGrad":
                attributes.update(self._bounds(op))
            inputs = _inputs(kind, op, places[0], gradients)
            edges = self.program.add(kind, inputs, outputs, place, name=op.name, attributes=attributes)
            for name, gradient in zip(names, edges):
                self.parts.setdefault(name, []).append(gradient)

    def _part(self, op: Op, place: int) -> Dict[str, int]:
        """Where the input of a Concat begins and ends in what is joined."""
        axis = int(str(op.attributes["axis"]))
        lengths = [self.program.shape(name)[axis] for name in op.inputs]
        start = sum(lengths[:place])
        return {"start": start, "end": start + lengths[place]}

    def _bounds(self, op: Op) -> Dict[str, Tuple[int, ...]]:
        """The constants that a Slice reads for its starts, ends, axes and steps."""
        data = (self.program.initializers.get(name) for name in op.inputs[1:])
        return {
            word: struct.unpack(f"<{len(values) // 8}q", values)
            for word, name, values in zip(("starts", "ends", "axes", "steps"), op.inputs[1:], data)
            if values is not None and self.program.dtype(name) == "INT64"
        }

    def _edge(self, name: str, number: int, index: int) -> str:
        """The name of a gradient: that of the tensor, or of the op and its input where several are to be added."""
        return GRADIENT + (name if self.edges[name] == 1 else f"{number}_{index}")

    def _whole(self, name: str) -> str:
        """The gradient of a tensor: its only part, or the sum of all, made where the tensor was made."""
        if len(self.parts[name]) > 1:
            total = replace(self.program.tensors[name], name=GRADIENT + name)
            place = self.behind(self.homes[name])
            self.parts[name] = list(
                self.program.add("Sum", self.parts[name], [total], place, name=f"GradSum_{total.name}")
            )
        return self.parts[name][0]


def _depending(program: Program, weights: Sequence[str]) -> Set[str]:
    """The tensors whose values follow from a weight."""
    depending = {name for name in weights if name in program.tensors}
    for op in program.ops:
        if op.type not in STOPPED and depending.intersection(op.inputs):
            depending.update(name for name in op.outputs if name and program.dtype(name) in FLOATS)
    return depending


def _homes(ops: Sequence[Op]) -> Dict[str, Place]:
    """Where each tensor is made or, if no op makes it, where it is read first."""
    homes: Dict[str, Place] = {}
    for op in ops:
        for name in (*op.inputs, *op.outputs):
            homes.setdefault(name, Place(op.ipu, op.stage))
    return homes


def _calls(op: Op, depending: Set[str]) -> _Calls:
    # Nothing is differentiated by running statistics, which follow the first three inputs of a batch norm.
    inputs = op.inputs[:3] if op.type == "BatchNormalization" else op.inputs
    places = [place for place, name in enumerate(inputs) if name in depending]
    if op.type == "MultiConv":
        # One op for the data of all convolutions, and one for all their weights.
        halves = [(f"MultiConv{half}Grad", [p for p in places if p % 2 == odd]) for odd, half in enumerate(_PAIR)]
        return [(kind, chosen) for kind, chosen in halves if chosen]
    if op.type not in BY_INPUT:
        return [(FOR_ALL.get(op.type, f"{op.type}Grad"), places)] if places else []
    kinds = BY_INPUT[op.type]
    by_input = [(kinds[min(place, len(kinds) - 1)], [place]) for place in places]
    return [(kind, places) for kind, places in by_input if kind]


def _inputs(kind: str, op: Op, place: int, gradients: Sequence[str]) -> List[str]:
    """The tensors that a gradient op reads, each once."""
    values = {
        "dy": gradients,
        "x": op.inputs,
        "y": op.outputs,
        "own": op.inputs[place : place + 1],
        "first": op.inputs[::2],
        "second": op.inputs[1::2],
        "other": op.inputs[1 - place : 2 - place] if place < 2 else (),
        **{f"x{index}": (name,) for index, name in enumerate(op.inputs)},
        **{f"y{index}": (name,) for index, name in enumerate(op.outputs)},
    }
    read = [name for token in READS.get(kind, "dy x").split() for name in values.get(token, ())]
    return list(dict.fromkeys(name for name in read if name))
