"""From Paddle's ops to those of ONNX and PopART: a row for each op of Paddle writes the ops that it becomes.

Rows know nothing of Paddle itself: a saved program, a Program in memory and the emulated compiler all go through the
same table. The ops are those of ONNX opset 11 where it has them, and PopART's own elsewhere.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

from ipu_conformance.ir.graph import Op
from ipu_conformance.ir.tensor import IRError, Literal, Shape, Tensor

DTYPES: Mapping[int, str] = {
    0: "BOOL", 1: "INT16", 2: "INT32", 3: "INT64", 4: "FLOAT16", 5: "FLOAT", 6: "DOUBLE", 19: "UINT64", 20: "UINT8",
    21: "INT8", 22: "BFLOAT16", 23: "COMPLEX64", 24: "COMPLEX128",
}  # fmt: skip
"""The dtypes by the numbers that Paddle writes."""

FLOATS = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
_PACKED = {
    "FLOAT": "f", "FLOAT16": "e", "DOUBLE": "d", "INT64": "q", "INT32": "i", "INT16": "h", "INT8": "b", "UINT8": "B",
    "UINT64": "Q", "BOOL": "?",
}  # fmt: skip
LARGEST_CONSTANT = 2**16
"""The most elements that are written out; a larger constant is a number that is expanded."""

LONGEST_LIST = 2**12
"""The most outputs or dimensions that one op may ask for."""


@dataclass(frozen=True)
class Call:
    """One op of Paddle's: variables by slot, attributes by name, and where it is placed."""

    type: str
    inputs: Mapping[str, Tuple[str, ...]]
    outputs: Mapping[str, Tuple[str, ...]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ipu: Optional[int] = None
    stage: Optional[int] = None

    def read(self, slot: str) -> str:
        """The first variable of an input slot; it is an error if there is none."""
        names = self.inputs.get(slot, ())
        if not names:
            raise IRError(f"{self.type} has no input {slot!r}; every op of that type has one")
        return names[0]

    def optional(self, *slots: str) -> str:
        """The first variable of the first slot that has one, or the empty name."""
        return next((self.inputs[slot][0] for slot in slots if self.inputs.get(slot)), "")

    def made(self, *slots: str) -> str:
        """The first variable of the first output slot that has one; it is an error if there is none."""
        for slot in slots or ("Out",):
            if self.outputs.get(slot):
                return self.outputs[slot][0]
        raise IRError(f"{self.type} has no output {' or '.join(slots or ('Out',))!r}; every op of that type has one")

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default where it is not written."""
        return self.attributes.get(name, default)

    def ints(self, name: str, default: Sequence[int] = ()) -> Tuple[int, ...]:
        """An attribute that is a list of integers, or one that stands for a list of one."""
        value = self.attributes.get(name, default)
        found = tuple(int(item) for item in value) if isinstance(value, (list, tuple)) else (int(value),)
        if len(found) > LONGEST_LIST:
            raise IRError(
                f"attribute {name!r} of {self.type} has {len(found)} numbers; at most {LONGEST_LIST} are read"
            )
        return found


class Writer:
    """Collects the ops that calls become; the tensors of the program are known from the start."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors: Dict[str, Tensor] = dict(tensors)
        self.ops: List[Op] = []
        self._call = Call("", {}, {})
        self._counts: Dict[str, int] = {}

    def begin(self, call: Call) -> None:
        """The ops added from now on belong to this call."""
        self._call = call

    def dtype(self, name: str) -> str:
        """The dtype of a tensor."""
        return self._tensor(name).dtype

    def shape(self, name: str) -> Shape:
        """The shape of a tensor, with None for what is unknown; an unknown rank is an error."""
        shape = self._tensor(name).shape
        if shape is None:
            raise IRError(f"{self._call.type} needs the rank of {name!r}, which is unknown")
        return shape

    def sizes(self, name: str) -> Tuple[int, ...]:
        """The shape of a tensor as ONNX writes one that is reshaped to: at most one unknown length, as -1."""
        sizes = tuple(-1 if length is None else length for length in self.shape(name))
        if sizes.count(-1) > 1:
            raise IRError(f"{self._call.type} needs the shape of {name!r}, of which several lengths are unknown")
        return sizes

    def axis(self, axis: int, name: str) -> int:
        """An axis of a tensor counted from the front."""
        rank = len(self.shape(name))
        if not -max(rank, 1) <= axis < max(rank, 1):
            raise IRError(f"{self._call.type} has axis {axis} for {name!r}, which has {rank} dimensions")
        return axis % max(rank, 1)

    def add(
        self,
        type: str,
        inputs: Sequence[str],
        output: Union[str, Sequence[str], None] = None,
        attributes: Optional[Mapping[str, Any]] = None,
        *,
        dtype: Optional[str] = None,
        shape: Optional[Sequence[Optional[int]]] = None,
    ) -> str:
        """Add an op and return its first output; without ``output`` a new tensor, like the first input unless told."""
        for name in filter(None, inputs):
            self._tensor(name)
        outputs = (output,) if isinstance(output, str) else tuple(output or ())
        if not outputs:
            like = self._tensor(inputs[0]) if inputs else Tensor("like")
            outputs = (self.fresh(type, dtype or like.dtype, like.shape if shape is None else tuple(shape)),)
        for name in outputs:
            if name and name not in self.tensors:
                self.tensors[name] = Tensor(name)
        call = self._call
        self.ops.append(
            Op(type, outputs[0], tuple(inputs), outputs, dict(attributes or {}), ipu=call.ipu, stage=call.stage)
        )
        return outputs[0]

    def fresh(self, what: str, dtype: str, shape: Optional[Sequence[Optional[int]]]) -> str:
        """A new tensor, named after what the call makes."""
        stem = next((names[0] for names in self._call.outputs.values() if names), self._call.type)
        base = f"{stem}/{what}"
        while True:
            count = self._counts.get(base, 0)
            self._counts[base] = count + 1
            name = f"{base}_{count}" if count else base
            if name not in self.tensors:
                self.tensors[name] = Tensor(name, dtype, None if shape is None else tuple(shape))
                return name

    def constant(self, values: Any, dtype: str, shape: Optional[Sequence[int]] = None, output: str = "") -> str:
        """A tensor of numbers: one, or a list of them; ``shape`` is that of the list unless given."""
        numbers = list(values) if isinstance(values, (list, tuple)) else [values]
        sizes = tuple(shape) if shape is not None else (len(numbers),) if isinstance(values, (list, tuple)) else ()
        literal = Literal(dtype, sizes, packed(numbers, dtype))
        name = output or self.fresh("Constant", dtype, sizes)
        return self.add("Constant", (), name, {"value": literal})

    def number(self, value: float, like: str) -> str:
        """A number of the dtype of a tensor."""
        dtype = self.dtype(like)
        return self.constant(value, dtype if dtype in _PACKED else "FLOAT")

    def full(self, value: float, dtype: str, sizes: Sequence[int], output: str = "") -> str:
        """A tensor that holds one number everywhere."""
        count = 1
        for size in sizes:
            count *= max(int(size), 0)
        if not sizes or count <= LARGEST_CONSTANT:
            return self.constant([value] * count if sizes else value, dtype, tuple(sizes), output)
        scalar = self.constant(value, dtype)
        made = output or self.fresh("Expand", dtype, sizes)
        return self.add("Expand", (scalar, self.constant(list(sizes), "INT64")), made)

    def reshape(self, source: str, sizes: Sequence[int], output: str = "") -> str:
        """A tensor in another shape; -1 stands for what is left."""
        target = self.constant([int(size) for size in sizes], "INT64")
        made = output or self.fresh("Reshape", self.dtype(source), [None if size < 0 else size for size in sizes])
        return self.add("Reshape", (source, target), made)

    def transpose(self, source: str, order: Sequence[int], output: str = "") -> str:
        """A tensor with its dimensions in another order."""
        shape = self.shape(source)
        if sorted(order) != list(range(len(shape))):
            raise IRError(
                f"{self._call.type} has the order {tuple(order)} for {source!r}, which has {len(shape)} dimensions"
            )
        made = output or self.fresh("Transpose", self.dtype(source), [shape[place] for place in order])
        return self.add("Transpose", (source,), made, {"perm": tuple(order)})

    def cast(self, source: str, dtype: str, output: str = "") -> str:
        """A tensor in another dtype."""
        made = output or self.fresh("Cast", dtype, self._tensor(source).shape)
        return self.add("Cast", (source,), made, {"to": ONNX_NUMBERS[dtype]})

    def _tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise IRError(f"{self._call.type} uses {name!r}, which the program does not declare")
        return self.tensors[name]


ONNX_NUMBERS: Mapping[str, int] = {
    "FLOAT": 1, "UINT8": 2, "INT8": 3, "INT16": 5, "INT32": 6, "INT64": 7, "BOOL": 9, "FLOAT16": 10, "DOUBLE": 11,
    "UINT64": 13, "COMPLEX64": 14, "COMPLEX128": 15, "BFLOAT16": 16,
}  # fmt: skip
"""The dtypes by the numbers that ONNX writes."""

Rule = Callable[[Call, Writer], None]

ROWS: Dict[str, Rule] = {}
"""What each op of Paddle becomes."""


def row(*types: str) -> Callable[[Rule], Rule]:
    """Enter a function for these types."""

    def enter(rule: Rule) -> Rule:
        for type in types:
            ROWS[type] = rule
        return rule

    return enter


def length_of(length: Optional[int], name: str) -> int:
    """A length that must be known."""
    if length is None:
        raise IRError(f"the lengths of {name!r} that are needed are not known")
    return length


def dtype_of(number: Any) -> str:
    """The dtype that Paddle writes as a number."""
    if not isinstance(number, int) or number not in DTYPES:
        raise IRError(f"{number!r} is not the number of one of Paddle's dtypes")
    return DTYPES[number]


def packed(numbers: Sequence[Any], dtype: str) -> bytes:
    """Numbers as little-endian bytes."""
    if dtype not in _PACKED:
        raise IRError(f"constants of dtype {dtype} are not written; use one of {', '.join(_PACKED)}")
    values = [
        float(number) if dtype in FLOATS else bool(number) if dtype == "BOOL" else int(number) for number in numbers
    ]
    try:
        return struct.pack(f"<{len(values)}{_PACKED[dtype]}", *values)
    except (struct.error, OverflowError):
        raise IRError(f"a constant does not fit into {dtype}") from None


def missing(calls: Iterable[Call]) -> Tuple[str, ...]:
    """The types that have no row, each once, in the order in which they occur."""
    return tuple(dict.fromkeys(call.type for call in calls if call.type not in ROWS))


def translate(call: Call, writer: Writer) -> None:
    """Write the ops that one call becomes; a call that is not as Paddle makes them is an error."""
    writer.begin(call)
    try:
        ROWS[call.type](call, writer)
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise IRError(f"op {call.type} that makes {_first(call)!r} is not as Paddle makes them ({reason})") from None


def _first(call: Call) -> str:
    return next((names[0] for names in call.outputs.values() if names), "")


def renamed(
    ops: Sequence[Op], given: Iterable[str], tensors: Mapping[str, Tensor]
) -> Tuple[List[Op], Dict[str, Tensor], Dict[str, str]]:
    """The ops with a name for every value: a name that is written again gets a number, and what follows reads that.

    Also the tensors, those of the new names included, and the last name of everything that was renamed.
    """
    taken: Set[str] = set(given)
    known = dict(tensors)
    latest: Dict[str, str] = {}
    counts: Dict[str, int] = {}
    made: List[Op] = []
    for op in ops:
        inputs = tuple(latest.get(name, name) for name in op.inputs)
        outputs = []
        for name in op.outputs:
            unique = name
            while unique and unique in taken:
                counts[name] = counts.get(name, 0) + 1
                unique = f"{name}_{counts[name]}"
            if unique != name:
                latest[name] = unique
                known[unique] = replace(known[name], name=unique)
            if unique:
                taken.add(unique)
            outputs.append(unique)
        made.append(replace(op, inputs=inputs, outputs=tuple(outputs)))
    return made, known, latest
