"""Writing graphs op by op: what the readers of frameworks' programs share.

A reader begins a call of the framework and adds the ops that it becomes. The ops are those of ONNX
opset 11 where it has them, and PopART's own elsewhere.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple, TypeVar, Union

import numpy as np

from ipu_conformance.ir.graph import Op
from ipu_conformance.ir.tensor import IRError, Literal, Shape, Tensor

FLOATS = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
_PACKED = {
    "FLOAT": "f", "FLOAT16": "e", "DOUBLE": "d", "INT64": "q", "INT32": "i", "INT16": "h", "INT8": "b", "UINT8": "B",
    "UINT64": "Q", "BOOL": "?",
}  # fmt: skip
LARGEST_CONSTANT = 2**16
"""The most elements that are written out; a larger constant is a number that is expanded."""

LONGEST_LIST = 2**12
"""The most outputs or dimensions that one op may ask for."""

MAX_FRAMES = 100
"""How deep functions may call each other."""

MAX_CALLED = 250_000
"""The most ops after functions have become parts of their callers."""

FREE = 5_000
"""Ops, weights or strings that any file may have, and ops by which a graph may grow when functions become parts of
their callers: more of them cost bytes, so that the work for a file is bounded by its size."""

MAX_CHARACTERS = 2**26
"""The most characters of all names of tensors together: a name lists all calls that lead to it."""


class Origin(Protocol):
    """The call of a framework that ops come from."""

    @property
    def type(self) -> str:
        """The framework's name for what is called."""

    @property
    def stem(self) -> str:
        """What tensors are named after that the call needs for itself."""

    @property
    def ipu(self) -> Optional[int]:
        """The IPU that the call is placed on."""

    @property
    def stage(self) -> Optional[int]:
        """The stage that the call is placed in."""


Rule = TypeVar("Rule", bound=Callable[..., None])


class RuleTable(Dict[str, Rule]):
    """By the type of a call, the function that writes the ops that it becomes."""

    def row(self, *types: str) -> Callable[[Rule], Rule]:
        """Enter the decorated function for these types."""

        def enter(rule: Rule) -> Rule:
            self.update(dict.fromkeys(types, rule))
            return rule

        return enter


class Writer:
    """Collects the ops that calls become; the tensors of the program are known from the start."""

    def __init__(self, tensors: Mapping[str, Tensor], first: Origin) -> None:
        self.tensors: Dict[str, Tensor] = dict(tensors)
        self.ops: List[Op] = []
        self._call = first
        self._counts: Dict[str, int] = {}
        self._characters = 0

    def begin(self, call: Origin) -> None:
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
            raise IRError(f"{self._call.type} needs the shape of {name!r}, and several of its lengths are unknown")
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
        """Add an op and return its first output; without ``output`` a new tensor, like the first input unless given."""
        inputs = [self.resolve(name) for name in inputs]
        outputs = (output,) if isinstance(output, str) else tuple(output or ())
        if not outputs:
            like = self._tensor(inputs[0]) if inputs else Tensor("like")
            outputs = (self.fresh(type, dtype or like.dtype, like.shape if shape is None else tuple(shape)),)
        for name in outputs:
            if name and name not in self.tensors:
                self.tensors[name] = Tensor(name)
        call = self._call
        op = Op(type, outputs[0], tuple(inputs), outputs, dict(attributes or {}), ipu=call.ipu, stage=call.stage)
        self.ops.append(op)
        self.infer(op)
        return outputs[0]

    def resolve(self, name: str) -> str:
        """The tensor that an op reads under a name; an empty name stands for an input that is left out."""
        return self._tensor(name).name if name else name

    def infer(self, op: Op) -> None:
        """Complete the tensors that an op makes, where a reader does not know them from the program."""

    def unique(self, name: str, taken: Container[str]) -> str:
        """A name that is not taken yet; too many characters in all of them are an error."""
        candidate, number = name, 0
        while candidate in taken:
            number += 1
            candidate = f"{name}_{number}"
        self._characters += len(candidate)
        if self._characters > MAX_CHARACTERS:
            raise IRError(f"the names of the graph have more than {MAX_CHARACTERS} characters; that many are not read")
        return candidate

    def fresh(self, what: str, dtype: str, shape: Optional[Sequence[Optional[int]]]) -> str:
        """A new tensor, named after what the call makes."""
        base = f"{self._call.stem}/{what}"
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
        target = output or self.fresh("Expand", dtype, sizes)
        return self.add("Expand", (scalar, self.constant(list(sizes), "INT64")), target)

    def reshape(self, source: str, sizes: Sequence[int], output: str = "") -> str:
        """A tensor in another shape; -1 stands for what is left."""
        target = self.constant([int(size) for size in sizes], "INT64")
        reshaped = output or self.fresh("Reshape", self.dtype(source), self._reshaped(source, sizes))
        return self.add("Reshape", (source, target), reshaped)

    def _reshaped(self, source: str, sizes: Sequence[int]) -> Shape:
        """A target shape with None where -1 stands for a length that is not known."""
        whole, rest = self._tensor(source).elements, math.prod(size for size in sizes if size >= 0)
        known = whole is not None and rest > 0 and sum(size < 0 for size in sizes) == 1
        left = whole // rest if known and whole is not None else None
        return tuple(left if size < 0 else size for size in sizes)

    def transpose(self, source: str, order: Sequence[int], output: str = "") -> str:
        """A tensor with its dimensions in another order."""
        shape = self.shape(source)
        if sorted(order) != list(range(len(shape))):
            raise IRError(
                f"{self._call.type} has the order {tuple(order)} for {source!r}, which has {len(shape)} dimensions"
            )
        target = output or self.fresh("Transpose", self.dtype(source), [shape[place] for place in order])
        return self.add("Transpose", (source,), target, {"perm": tuple(order)})

    def cast(self, source: str, dtype: str, output: str = "") -> str:
        """A tensor in another dtype."""
        target = output or self.fresh("Cast", dtype, self._tensor(source).shape)
        return self.add("Cast", (source,), target, {"to": ONNX_NUMBERS[dtype]})

    def _tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise IRError(f"{self._call.type} uses {name!r}, which the program does not declare")
        return self.tensors[name]


ONNX_NUMBERS: Mapping[str, int] = {
    "FLOAT": 1, "UINT8": 2, "INT8": 3, "INT16": 5, "INT32": 6, "INT64": 7, "BOOL": 9, "FLOAT16": 10, "DOUBLE": 11,
    "UINT64": 13, "COMPLEX64": 14, "COMPLEX128": 15, "BFLOAT16": 16,
}  # fmt: skip
"""The dtypes by the numbers that ONNX writes."""


def length_of(length: Optional[int], name: str) -> int:
    """A length that must be known."""
    if length is None:
        raise IRError(f"the lengths of {name!r} that are needed are not known")
    return length


def packed(numbers: Sequence[Any], dtype: str) -> bytes:
    """Numbers as little-endian bytes; those of floating point are rounded, beyond the largest to infinity."""
    if dtype not in _PACKED:
        raise IRError(f"constants of dtype {dtype} are not written; use one of {', '.join(_PACKED)}")
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            return np.array([float(number) for number in numbers]).astype(f"<{_PACKED[dtype]}").tobytes()
    values = [bool(number) if dtype == "BOOL" else int(number) for number in numbers]
    try:
        return struct.pack(f"<{len(values)}{_PACKED[dtype]}", *values)
    except (struct.error, OverflowError):
        raise IRError(f"a constant does not fit into {dtype}") from None


def most_entries(size: int, each: int, most: int) -> int:
    """How many entries a file of a size may have, where a real one takes at least ``each`` bytes."""
    return min(most, FREE + size // each)


def most_called(written: int) -> int:
    """How many ops a graph that is written with some may have once functions are parts of their callers."""
    return min(MAX_CALLED, FREE + written)


def expanded(calls: Sequence[str], functions: Mapping[str, Sequence[str]]) -> int:
    """How many steps a program has, counting those of the functions that it calls.

    ``calls`` has the name of a function, or an empty one, for each step; ``functions`` has the same for each function.
    One that calls itself, and calls that go too deep, are errors.
    """
    sizes: Dict[str, int] = {}
    return _size(calls, functions, sizes, ())


def _size(
    calls: Sequence[str], functions: Mapping[str, Sequence[str]], sizes: Dict[str, int], stack: Sequence[str]
) -> int:
    total = len(calls)
    for name in calls:
        if name not in functions:
            continue
        if name not in sizes:
            if name in stack or len(stack) >= MAX_FRAMES:
                raise IRError(f"{name[:80]!r} calls itself, or calls go more than {MAX_FRAMES} deep")
            sizes[name] = _size(functions[name], functions, sizes, (*stack, name))
        total += sizes[name]
    return total
