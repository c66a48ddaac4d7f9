"""From XLA's instructions to the ops of ONNX: a row for each opcode writes the ops that it becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from ipu_conformance.ir.readers import op_writer
from ipu_conformance.ir.readers.hlo.text import Instruction, Module
from ipu_conformance.ir.readers.op_writer import LARGEST_CONSTANT, LONGEST_LIST, ONNX_NUMBERS
from ipu_conformance.ir.tensor import Literal, count


class UnsupportedError(Exception):
    """ONNX cannot express this use of an instruction."""


@dataclass(frozen=True)
class Call:
    """An instruction, the tensors that it reads and the one that it makes, and where it is placed."""

    instruction: Instruction
    inputs: Tuple[str, ...]
    output: str
    ipu: Optional[int] = None
    stage: Optional[int] = None

    @property
    def type(self) -> str:
        """The opcode."""
        return self.instruction.opcode

    @property
    def stem(self) -> str:
        """The name of what is made."""
        return self.output or self.instruction.name

    def read(self, place: int = 0) -> str:
        """One of the tensors that are read."""
        if place >= len(self.inputs):
            raise UnsupportedError
        return self.inputs[place]

    def ints(self, key: str) -> Tuple[int, ...]:
        """An attribute that is a list of integers."""
        text = self.instruction.attributes.get(key, "").strip()
        if not re.fullmatch(r"(?:\d{1,19}(?:,\s*\d{1,19})*)?", text) or text.count(",") >= LONGEST_LIST:
            raise UnsupportedError
        return tuple(int(number) for number in text.split(",")) if text else ()


class Writer(op_writer.Writer):
    """Collects the ops of a module; reducers are looked up in it."""

    def __init__(self, module: Module) -> None:
        super().__init__({}, Call(Instruction("", None, "", ()), (), ""))  # type: ignore[arg-type]
        self.module = module
        self.literals: Dict[str, str] = {}
        """The constants that are scalars, as they are written."""
        self.initializers: List[str] = []

    def mark(self, before: int, attributes: Mapping[str, Any]) -> None:
        """Give further attributes to the last op that was written since."""
        if attributes and len(self.ops) > before:
            last = self.ops[-1]
            self.ops[-1] = replace(last, attributes={**last.attributes, **attributes})

    def reducer(self, call: Call) -> str:
        """The opcode of a computation that does one thing to its two parameters."""
        computation = self.module.computations.get(call.instruction.attributes.get("to_apply", ""))
        if computation is None or len(computation.instructions) != 3:
            raise UnsupportedError
        kinds = {each.name: each.opcode for each in computation.instructions}
        root = next(each for each in computation.instructions if each.name == computation.root)
        if len(root.operands) != 2 or any(kinds.get(name) != "parameter" for name in root.operands):
            raise UnsupportedError
        return root.opcode if len(set(root.operands)) == 2 else ""


Rule = Callable[[Call, Writer], None]

ROWS: op_writer.RuleTable[Rule] = op_writer.RuleTable()
"""What each opcode becomes."""

row = ROWS.row


CHAINS: Mapping[str, Tuple[str, ...]] = {
    "abs": ("Abs",), "add": ("Add",), "and": ("And",), "ceil": ("Ceil",), "cosine": ("Cos",), "copy": ("Identity",),
    "divide": ("Div",), "erf": ("Erf",), "exponential": ("Exp",), "floor": ("Floor",), "log": ("Log",),
    "logistic": ("Sigmoid",), "maximum": ("Max",), "minimum": ("Min",), "multiply": ("Mul",), "negate": ("Neg",),
    "not": ("Not",), "or": ("Or",), "power": ("Pow",), "round-nearest-even": ("Round",),
    "rsqrt": ("Sqrt", "Reciprocal"), "select": ("Where",), "sign": ("Sign",), "sine": ("Sin",), "sqrt": ("Sqrt",),
    "subtract": ("Sub",),
    "tan": ("Tan",), "tanh": ("Tanh",), "xor": ("Xor",),
}  # fmt: skip
"""Opcodes that work element by element, with the ops that they become one after the other."""

_LOGICAL = ("and", "or", "xor", "not")
_COMPARED: Mapping[str, Tuple[str, ...]] = {
    "EQ": ("Equal",), "NE": ("Equal", "Not"), "LT": ("Less",), "GT": ("Greater",), "LE": ("Greater", "Not"),
    "GE": ("Less", "Not"),
}  # fmt: skip
_REDUCED: Mapping[str, Tuple[str, Tuple[str, ...]]] = {
    "add": ("ReduceSum", ("0", "-0")), "multiply": ("ReduceProd", ("1",)), "maximum": ("ReduceMax", ("-inf",)),
    "minimum": ("ReduceMin", ("inf",)),
}  # fmt: skip
"""The opcodes of reducers, each with the op that it becomes and the values that it may begin with."""


def _chain(types: Tuple[str, ...]) -> Rule:
    def rule(call: Call, to: Writer) -> None:
        source = call.read()
        if call.type in _LOGICAL and to.dtype(source) != "BOOL":
            raise UnsupportedError  # on whole numbers they work bit by bit
        names: Sequence[str] = call.inputs
        for type in types[:-1]:
            names = (to.add(type, names, dtype=to.dtype(call.output), shape=to.shape(call.output)),)
        to.add(types[-1], names, call.output)

    return rule


ROWS.update({opcode: _chain(types) for opcode, types in CHAINS.items()})


@row("compare")
def _compare(call: Call, to: Writer) -> None:
    types = _COMPARED.get(call.instruction.attributes.get("direction", ""))
    if types is None or call.instruction.attributes.get("type", "FLOAT") == "TOTALORDER":
        raise UnsupportedError
    _chain(types)(call, to)


@row("constant")
def _constant(call: Call, to: Writer) -> None:
    text, tensor = call.instruction.literal, to.tensors[call.output]
    elements = count(tensor.shape)
    if elements is None or elements > LARGEST_CONSTANT or "..." in text or tensor.dtype not in ONNX_NUMBERS:
        to.initializers.append(call.output)  # a constant whose values are left out
        return
    words = re.findall(r"[^\s,{}]+", text)
    if len(words) != elements:
        raise UnsupportedError
    truths = {"true": 1.0, "false": 0.0}
    if tensor.dtype in op_writer.FLOATS:
        numbers: List[Any] = [float(word) for word in words]
    else:
        numbers = [int(truths[word]) if word in truths else int(word[:40]) for word in words]
    sizes = tuple(length or 0 for length in tensor.shape or ())
    to.add(
        "Constant", (), call.output, {"value": Literal(tensor.dtype, sizes, op_writer.packed(numbers, tensor.dtype))}
    )
    if not sizes:
        to.literals[call.output] = words[0]


@row("convert")
def _convert(call: Call, to: Writer) -> None:
    if to.dtype(call.output) not in ONNX_NUMBERS:
        raise UnsupportedError
    to.cast(call.read(), to.dtype(call.output), call.output)
    if call.read() in to.literals:
        to.literals[call.output] = to.literals[call.read()]


@row("reshape", "bitcast")
def _reshape(call: Call, to: Writer) -> None:
    sizes = _sizes(call.output, to)
    if call.type == "bitcast" and (
        to.dtype(call.read()) != to.dtype(call.output) or _elements(call.read(), to) != sizes[1]
    ):
        raise UnsupportedError
    to.reshape(call.read(), sizes[0], call.output)


def _sizes(name: str, to: Writer) -> Tuple[Tuple[int, ...], int]:
    """The lengths of a tensor, which must be known, and how many elements that makes."""
    shape = to.shape(name)
    if None in shape:
        raise UnsupportedError
    return tuple(length or 0 for length in shape), count(shape) or 0


def _elements(name: str, to: Writer) -> int:
    return _sizes(name, to)[1]


@row("transpose")
def _transpose(call: Call, to: Writer) -> None:
    order = call.ints("dimensions")
    if sorted(order) != list(range(len(to.shape(call.read())))):
        raise UnsupportedError
    to.transpose(call.read(), order, call.output)


@row("broadcast")
def _broadcast(call: Call, to: Writer) -> None:
    source, places = call.read(), call.ints("dimensions")
    sizes = _sizes(call.output, to)[0]
    source_shape = to.shape(source)
    ascending = list(places) == sorted(set(places)) and all(place < len(sizes) for place in places)
    if len(places) != len(source_shape) or not ascending:
        raise UnsupportedError
    first = places[0] if places else len(sizes)
    axes = tuple(place - first for place in range(first, len(sizes)) if place not in places)
    if axes:
        shape = [source_shape[places.index(place)] if place in places else 1 for place in range(first, len(sizes))]
        source = to.add("Unsqueeze", (source,), None, {"axes": axes}, shape=shape)
    to.add("Expand", (source, to.constant(list(sizes), "INT64")), call.output)


@row("concatenate")
def _concatenate(call: Call, to: Writer) -> None:
    (axis,) = call.ints("dimensions")
    to.add("Concat", call.inputs, call.output, {"axis": axis})


@row("clamp")
def _clamp(call: Call, to: Writer) -> None:
    low, source, high = (call.read(place) for place in range(3))
    if to.shape(low) or to.shape(high):
        to.add("Min", (to.add("Max", (source, low)), high), call.output)
    else:
        to.add("Clip", (source, low, high), call.output)


@row("slice")
def _slice(call: Call, to: Writer) -> None:
    ranges = re.findall(r"\[(\d{1,18}):(\d{1,18})(?::(\d{1,18}))?\]", call.instruction.attributes.get("slice", ""))
    if len(ranges) != len(to.shape(call.read())):
        raise UnsupportedError
    bounds = [[int(item[place] or 1) for item in ranges] for place in (0, 1, 2)]
    axes = list(range(len(ranges)))
    if not axes:
        raise UnsupportedError
    lists = [to.constant(values, "INT64") for values in (bounds[0], bounds[1], axes, bounds[2])]
    to.add("Slice", (call.read(), *lists), call.output)


@row("reduce")
def _reduce(call: Call, to: Writer) -> None:
    type, begins = _REDUCED.get(to.reducer(call), ("", ()))
    if not type or len(call.inputs) != 2 or to.literals.get(call.read(1)) not in begins:
        raise UnsupportedError
    to.add(type, (call.read(),), call.output, {"axes": tuple(sorted(call.ints("dimensions"))), "keepdims": 0})


def _window(call: Call) -> Dict[str, List[Tuple[int, ...]]]:
    """The parts of a window, each a list of numbers, or of pairs, over its dimensions."""
    window: Dict[str, List[Tuple[int, ...]]] = {}
    for key, text in re.findall(r"(\w+)=([\d_x\-]+)", call.instruction.attributes.get("window", "")):
        parts = text.split("x")
        if len(parts) > LONGEST_LIST or not all(re.fullmatch(r"-?\d{1,9}(_-?\d{1,9})?", part) for part in parts):
            raise UnsupportedError
        window[key] = [tuple(int(number) for number in part.split("_")) for part in parts]
    return window


def _windowed(call: Call, rank: int) -> Tuple[List[int], List[int], List[int], List[Tuple[int, ...]]]:
    """Sizes, strides, dilations and paddings of a window; what ONNX lacks is unsupported."""
    window = _window(call)
    ones = [(1,)] * rank
    sizes, strides, dilations = (window.get(key, ones) for key in ("size", "stride", "rhs_dilate"))
    pads = window.get("pad", [(0, 0)] * rank)
    plain = window.get("lhs_dilate", ones) == ones and window.get("rhs_reversal", [(0,)] * rank) == [(0,)] * rank
    if not plain or {len(sizes), len(strides), len(dilations), len(pads)} != {rank}:
        raise UnsupportedError
    if any(len(pair) != 2 or min(pair) < 0 for pair in pads):
        raise UnsupportedError
    return [size for (size,) in sizes], [step for (step,) in strides], [step for (step,) in dilations], pads


@row("reduce-window")
def _reduce_window(call: Call, to: Writer) -> None:
    source = call.read()
    rank = len(to.shape(source))
    if to.reducer(call) != "maximum" or to.literals.get(call.read(1)) != "-inf" or rank < 3:
        raise UnsupportedError
    sizes, strides, dilations, pads = _windowed(call, rank)
    still = [
        size == step == gap == 1 and pad == (0, 0) for size, step, gap, pad in zip(sizes, strides, dilations, pads)
    ]
    if not still[0] or not (still[1] or still[-1]):
        raise UnsupportedError
    order = list(range(rank)) if still[1] else [0, rank - 1, *range(1, rank - 1)]
    space = order[2:]
    attributes = {
        "kernel_shape": tuple(sizes[place] for place in space),
        "strides": tuple(strides[place] for place in space),
        "dilations": tuple(dilations[place] for place in space),
        "pads": (*(pads[place][0] for place in space), *(pads[place][1] for place in space)),
        "ceil_mode": 0,
    }
    _turned_around("MaxPool", call, to, order, (), order, attributes)


def _turned_around(
    type: str,
    call: Call,
    to: Writer,
    order: Sequence[int],
    others: Sequence[str],
    made_order: Sequence[int],
    attributes: Mapping[str, Any],
) -> None:
    """One op between Transposes; an order lists where batch, channels and space are found."""
    if list(order) == sorted(order) and list(made_order) == sorted(made_order):
        to.add(type, (call.read(), *others), call.output, attributes)
        return
    first = to.transpose(call.read(), order)
    shape = to.shape(call.output)
    inner = to.add(type, (first, *others), None, attributes, shape=[shape[place] for place in made_order])
    to.transpose(inner, [list(made_order).index(place) for place in range(len(shape))], call.output)


@row("convolution")
def _convolution(call: Call, to: Writer) -> None:
    labels = re.fullmatch(
        r"([bf\d]{3,9})_([io\d]{3,9})->([bf\d]{3,9})", call.instruction.attributes.get("dim_labels", "")
    )
    rank = len(to.shape(call.read())) - 2
    if labels is None or call.instruction.attributes.get("batch_group_count", "1") != "1":
        raise UnsupportedError
    digits = "".join(map(str, range(rank)))
    wanted = ("bf" + digits, "oi" + digits, "bf" + digits)
    if any(sorted(label) != sorted(want) for label, want in zip(labels.groups(), wanted)):
        raise UnsupportedError
    orders = [[label.index(letter) for letter in want] for label, want in zip(labels.groups(), wanted)]
    sizes, strides, dilations, pads = _windowed(call, rank)
    group = call.instruction.attributes.get("feature_group_count", "1")
    attributes = {
        "kernel_shape": tuple(sizes),
        "strides": tuple(strides),
        "dilations": tuple(dilations),
        "pads": (*(low for low, _ in pads), *(high for _, high in pads)),
        "group": int(group[:9]),
    }
    weight = call.read(1)
    turned = weight if orders[1] == sorted(orders[1]) else to.transpose(weight, orders[1])
    _turned_around("Conv", call, to, orders[0], (turned,), orders[2], attributes)


@row("dot")
def _dot(call: Call, to: Writer) -> None:
    batch, others = call.ints("lhs_batch_dims"), call.ints("rhs_batch_dims")
    sides = call.read(0), call.read(1)
    ranks = [len(to.shape(side)) for side in sides]
    depth = len(batch)
    if batch != tuple(range(depth)) or others != batch or ranks != [depth + 2] * 2:
        raise UnsupportedError
    contracted = [call.ints(f"{side}_contracting_dims") for side in ("lhs", "rhs")]
    if any(len(axes) != 1 or axes[0] not in (depth, depth + 1) for axes in contracted):
        raise UnsupportedError
    swap = [*range(depth), depth + 1, depth]
    one = sides[0] if contracted[0][0] == depth + 1 else to.transpose(sides[0], swap)
    other = sides[1] if contracted[1][0] == depth else to.transpose(sides[1], swap)
    to.add("MatMul", (one, other), call.output)
