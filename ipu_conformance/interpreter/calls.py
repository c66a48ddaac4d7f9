"""One op of a graph on its values, and the tables of functions that compute ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.errors import ConformanceError
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Literal
from ipu_conformance.oracle.ops import OPS

Array = np.ndarray

NUMPY: Mapping[str, str] = {
    "FLOAT": "<f4", "FLOAT16": "<f2", "DOUBLE": "<f8", "INT64": "<i8", "INT32": "<i4", "INT16": "<i2", "INT8": "<i1",
    "UINT64": "<u8", "UINT32": "<u4", "UINT16": "<u2", "UINT8": "<u1", "BOOL": "?",
}  # fmt: skip
"""How the bytes of a dtype are read."""
FLOATS = ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16")


class ExecutionError(ConformanceError):
    """A graph cannot be executed: an op that is not known, a value that is not where it is read."""


@dataclass(frozen=True)
class Call:
    """An op and the values that it reads, None for an omitted one."""

    op: Op
    inputs: Tuple[Optional[Array], ...]
    graph: Graph

    @property
    def x(self) -> Array:
        """The first value."""
        return self[0]

    def __getitem__(self, place: int) -> Array:
        value = self.get(place)
        if value is None:
            raise ExecutionError(f"{self.place} has no input {place}, which it needs.")
        return value

    def get(self, place: int) -> Optional[Array]:
        """A value, None where it is omitted."""
        return self.inputs[place] if place < len(self.inputs) else None

    @property
    def given(self) -> List[Array]:
        """The values that are not omitted."""
        return [value for value in self.inputs if value is not None]

    @property
    def place(self) -> str:
        """The op and where it is, for sentences."""
        return placed(self.op)

    def attribute(self, *names: str, default: Any = None) -> Any:
        """The first attribute of these names; without a default there must be one."""
        for name in names:
            if name in self.op.attributes:
                value = self.op.attributes[name]
                return literal(value) if isinstance(value, Literal) else value
        if default is None:
            raise ExecutionError(
                f"{self.place} lacks the attribute {names[0]!r}: the dump does not say what it computes."
            )
        return default

    def shape(self, output: int = 0) -> Tuple[int, ...]:
        """The declared shape of an output."""
        shape = self.graph.tensors[self.op.outputs[output]].shape
        if shape is None or None in shape:
            raise ExecutionError(f"{self.place} makes {self.op.outputs[output]!r}, whose shape the dump does not say.")
        return tuple(length or 0 for length in shape)


Function = Callable[[Call], Any]
"""Computes an op: an array for one output, a tuple for several."""
Table = Dict[str, Function]


def placed(op: Op) -> str:
    """An op with its IPU and its stage."""
    where = [f"IPU {op.ipu}"] * (op.ipu is not None) + [f"stage {op.stage}"] * (op.stage is not None)
    return f"{op}" + (f" ({', '.join(where)})" if where else "")


def literal(value: Literal) -> Array:
    """The array that a graph holds in place."""
    return decoded(value.data, value.dtype, value.shape)


def decoded(data: bytes, dtype: str, shape: Sequence[Optional[int]]) -> Array:
    """An array from little-endian bytes, in 64 bits."""
    if dtype not in NUMPY:
        raise ExecutionError(f"values of dtype {dtype} cannot be computed with; there are {', '.join(NUMPY)}.")
    return wide(np.frombuffer(data, NUMPY[dtype]).reshape([length or 0 for length in shape]))


def wide(value: Any) -> Array:
    """The numbers in 64 bits, truth values as they are."""
    array = np.asarray(value)
    return array.astype({"f": np.float64, "i": np.int64, "u": np.int64}.get(array.dtype.kind, array.dtype))


def oracle(name: str, *inputs: Any, **attributes: Any) -> Any:
    """What the oracle's op makes of values."""
    return OPS[name].forward(*inputs, **attributes)


def vjp(name: str, cotangent: Any, *inputs: Any, **attributes: Any) -> Sequence[Any]:
    """The gradients of the oracle's op."""
    gradient = OPS[name].vjp
    if gradient is None:
        raise ExecutionError(f"the oracle's {name} has no gradient.")
    return gradient(cotangent, *inputs, **attributes)
