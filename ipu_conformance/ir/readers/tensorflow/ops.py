"""From TensorFlow's ops to those of ONNX and PopART: a row for each op of TensorFlow writes the ops that it becomes.

TensorFlow's layouts are kept true: an op on channels that come last stands between Transposes, since ONNX has them
first, and a filter is transposed too.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ipu_conformance.ir import shapes
from ipu_conformance.ir.graph import Op
from ipu_conformance.ir.readers import op_writer
from ipu_conformance.ir.readers.op_writer import FLOATS, LONGEST_LIST
from ipu_conformance.ir.readers.tensorflow.messages import Constant, DType, FilledConstant, ShapeAttribute
from ipu_conformance.ir.tensor import UNDEFINED, IRError, Literal, Tensor, count

_CODES = {"INT32": "i", "INT64": "q", "FLOAT": "f", "DOUBLE": "d", "BOOL": "?", "INT16": "h", "INT8": "b", "UINT8": "B"}


@dataclass(frozen=True)
class Call:
    """One node of TensorFlow's: tensors that it reads and makes, attributes by name, and where it is placed."""

    type: str
    name: str
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ipu: Optional[int] = None
    stage: Optional[int] = None

    @property
    def stem(self) -> str:
        """The full name of the node."""
        return self.name

    def read(self, place: int = 0) -> str:
        """One of the tensors that are read; it is an error if there is none."""
        if not -len(self.inputs) <= place < len(self.inputs) or not self.inputs[place]:
            raise IRError(f"{self.type} {self.name!r} has no input {place}; every op of that type has one")
        return self.inputs[place]

    @property
    def output(self) -> str:
        """The first tensor that is made."""
        if not self.outputs:
            raise IRError(f"{self.type} {self.name!r} makes nothing; every op of that type does")
        return self.outputs[0]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default where it is not written; text is decoded."""
        value = self.attributes.get(name)
        if value is None:
            return default
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def ints(self, name: str) -> Tuple[int, ...]:
        """An attribute that is a list of integers."""
        value = self.attributes.get(name, ())
        if not isinstance(value, tuple) or len(value) > LONGEST_LIST or not all(type(item) is int for item in value):
            raise IRError(f"attribute {name!r} of {self.type} {self.name!r} is not a short list of integers")
        return value


class Writer(op_writer.Writer):
    """Collects ops; constants are written where they are read, and shapes that the file leaves out are inferred."""

    def __init__(self) -> None:
        super().__init__({}, Call("", "", (), ()))
        self.constants: Dict[str, Constant] = {}
        self.written: Dict[str, str] = {}
        self.initializers: Dict[str, Optional[bytes]] = {}

    def resolve(self, name: str) -> str:
        """A tensor; a constant is written now if it was not before."""
        if name not in self.constants or name in self.written:
            return self.written.get(name) or super().resolve(name)
        self.written[name] = name
        held = self.constants[name]
        self.tensors[name] = Tensor(name, held.dtype, held.shape)
        if isinstance(held, FilledConstant):
            self.full(held.value, held.dtype, held.shape, name)
        elif held.shape and held.dtype in FLOATS:
            self.initializers[name] = held.data  # the weights of a frozen graph
        else:
            self.add("Constant", (), name, {"value": held})
        return name

    def mark(self) -> Tuple[int, int, int]:
        """How much was written so far."""
        return len(self.ops), len(self.written), len(self.initializers)

    def back_to(self, mark: Tuple[int, int, int]) -> None:
        """Forget what was written since; tensors that nothing makes any more are in nobody's way."""
        del self.ops[mark[0] :]
        while len(self.written) > mark[1]:
            self.written.popitem()
        while len(self.initializers) > mark[2]:
            self.initializers.popitem()

    def values(self, name: str) -> Tuple[int, ...]:
        """The integers of a constant; it is an error if the tensor is none, or is long."""
        held = self.constants.get(name)
        if (
            not isinstance(held, Literal)
            or held.dtype not in ("INT32", "INT64")
            or (count(held.shape) or 0) > LONGEST_LIST
        ):
            raise IRError(f"{self._call.type} {self._call.stem!r} needs {name!r} as a short constant of integers")
        return struct.unpack(f"<{count(held.shape)}{_CODES[held.dtype]}", held.data)

    def is_known(self, name: str) -> bool:
        """Whether a tensor is a constant whose integers can be read."""
        held = self.constants.get(name)
        return isinstance(held, Literal) and held.dtype in ("INT32", "INT64")

    def infer(self, op: Op) -> None:
        """Infer the shapes and dtypes that the file leaves out."""
        outputs = [self.tensors[name] for name in op.outputs if name]
        if not any(tensor.shape is None or tensor.dtype == UNDEFINED for tensor in outputs):
            return
        try:
            inferred = shapes.infer(op, shapes.inputs_of(op, self.tensors))
        except shapes.MismatchError as mismatch:
            raise IRError(f"{op}: {mismatch}") from None
        for name, value in zip(op.outputs, inferred):
            if name:
                old = self.tensors[name]
                dtype = value.dtype if old.dtype == UNDEFINED else old.dtype
                self.tensors[name] = Tensor(name, dtype, value.shape if old.shape is None else old.shape)


Rule = Callable[[Call, Writer], None]

ROWS: op_writer.RuleTable[Rule] = op_writer.RuleTable()
"""What each op of TensorFlow becomes."""

row = ROWS.row


SAME: Mapping[str, str] = {
    **{name: name for name in (
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor",
        "Identity", "IsInf", "Log", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
        "Softsign", "Sqrt", "Tan", "Tanh", "Elu", "Selu",
    )},
    "IsNan": "IsNaN", "LogicalNot": "Not", "Inv": "Reciprocal", "StopGradient": "Detach", "Rint": "Round",
    "PreventGradient": "Identity", "CheckNumerics": "Identity", "Snapshot": "Identity", "ZerosLike": "",
}  # fmt: skip
"""Ops of one tensor that become one op without attributes."""

BINARY: Mapping[str, Tuple[str, ...]] = {
    "Add": ("Add",), "AddV2": ("Add",), "Sub": ("Sub",), "Mul": ("Mul",), "RealDiv": ("Div",), "Div": ("Div",),
    "Pow": ("Pow",), "Maximum": ("Max",), "Minimum": ("Min",), "Equal": ("Equal",), "Greater": ("Greater",),
    "Less": ("Less",), "NotEqual": ("Equal", "Not"), "GreaterEqual": ("Less", "Not"), "LessEqual": ("Greater", "Not"),
    "LogicalAnd": ("And",), "LogicalOr": ("Or",),
}  # fmt: skip
"""Ops of two tensors, each with the op that it becomes and the one that follows."""

REDUCTIONS: Mapping[str, str] = {
    "Sum": "ReduceSum", "Mean": "ReduceMean", "Max": "ReduceMax", "Min": "ReduceMin", "Prod": "ReduceProd",
}  # fmt: skip


def _one(type: str) -> Rule:
    def rule(call: Call, to: Writer) -> None:
        to.add(type, (call.read(),), call.output)

    return rule


def _two(types: Tuple[str, ...]) -> Rule:
    def rule(call: Call, to: Writer) -> None:
        inputs = call.read(0), call.read(1)
        if len(types) == 1:
            to.add(types[0], inputs, call.output)
        else:
            between = to.add(types[0], inputs, dtype="BOOL", shape=to.tensors[call.output].shape)
            to.add(types[1], (between,), call.output)

    return rule


def _reduction(type: str) -> Rule:
    def rule(call: Call, to: Writer) -> None:
        source = call.read(0)
        axes = sorted({to.axis(axis, source) for axis in to.values(call.read(1))})
        attributes: Dict[str, Any] = {"keepdims": int(bool(call.get("keep_dims", False)))}
        if axes:
            to.add(type, (source,), call.output, {"axes": tuple(axes), **attributes})
        else:
            to.add("Identity", (source,), call.output)  # no axis at all is none to reduce over

    return rule


ROWS.update({name: _one(type) for name, type in SAME.items() if type})
ROWS.update({name: _two(types) for name, types in BINARY.items()})
ROWS.update({name: _reduction(type) for name, type in REDUCTIONS.items()})


@row("AddN")
def _sum(call: Call, to: Writer) -> None:
    to.add("Sum" if len(call.inputs) > 1 else "Identity", call.inputs, call.output)


@row("Square")
def _square(call: Call, to: Writer) -> None:
    to.add("Mul", (call.read(), call.read()), call.output)


@row("SquaredDifference")
def _squared_difference(call: Call, to: Writer) -> None:
    less = to.add("Sub", (call.read(0), call.read(1)), shape=to.tensors[call.output].shape)
    to.add("Mul", (less, less), call.output)


@row("Rsqrt")
def _rsqrt(call: Call, to: Writer) -> None:
    to.add("Reciprocal", (to.add("Sqrt", (call.read(),)),), call.output)


@row("FloorDiv")
def _floor_div(call: Call, to: Writer) -> None:
    if to.dtype(call.output) not in FLOATS:
        raise IRError(f"FloorDiv {call.name!r} is of whole numbers, for which ONNX has no division that rounds down")
    to.add("Floor", (to.add("Div", (call.read(0), call.read(1)), shape=to.tensors[call.output].shape),), call.output)


@row("LeakyRelu")
def _leaky(call: Call, to: Writer) -> None:
    to.add("LeakyRelu", (call.read(),), call.output, {"alpha": float(call.get("alpha", 0.2))})


@row("Relu6")
def _relu6(call: Call, to: Writer) -> None:
    source = call.read()
    to.add("Clip", (source, to.number(0, source), to.number(6, source)), call.output)


@row("ClipByValue")
def _clip(call: Call, to: Writer) -> None:
    to.add("Max", (to.add("Min", (call.read(0), call.read(2))), call.read(1)), call.output)


@row("Softmax", "LogSoftmax")
def _softmax(call: Call, to: Writer) -> None:
    to.add(call.type, (call.read(),), call.output, {"axis": len(to.shape(call.read())) - 1})


@row("Select", "SelectV2")
def _select(call: Call, to: Writer) -> None:
    if call.type == "Select" and len(to.shape(call.read(0))) < len(to.shape(call.read(1))):
        raise IRError(f"Select {call.name!r} chooses by rows; give SelectV2")
    to.add("Where", (call.read(0), call.read(1), call.read(2)), call.output)


@row("Cast")
def _cast(call: Call, to: Writer) -> None:
    wanted = call.get("DstT")
    if not isinstance(wanted, DType) or wanted not in op_writer.ONNX_NUMBERS:
        raise IRError(f"Cast {call.name!r} is to {wanted!r}, which no graph can hold")
    to.cast(to.resolve(call.read()), str(wanted), call.output)


def integer(call: Call, name: str, default: int) -> int:
    """An attribute that is an integer."""
    value = call.get(name, default)
    if type(value) is not int:
        raise IRError(f"attribute {name!r} of {call.type} {call.name!r} is {value!r}; it is an integer")
    return value


def plain(attributes: Mapping[str, Any]) -> Dict[str, Any]:
    """What a graph can hold of the attributes of an op that keeps its own name."""
    kept: Dict[str, Any] = {}
    for name, value in attributes.items():
        turned = [_held(item) for item in value[:LONGEST_LIST]] if isinstance(value, tuple) else _held(value)
        nested = isinstance(turned, list) and any(isinstance(item, (tuple, Literal)) for item in turned)
        if name and turned is not None and not nested and not (isinstance(turned, list) and None in turned):
            kept[name] = tuple(turned) if isinstance(turned, list) else turned
    return kept


def _held(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, ShapeAttribute):
        return None if value.shape is None else tuple(-1 if length is None else length for length in value.shape)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return None if value != value else value
    if isinstance(value, str):
        return str(value)
    return value if isinstance(value, (int, Literal)) else None
