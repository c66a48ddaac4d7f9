"""Tensors: their dtypes, shapes and sizes, and the checks that everything given to the graph passes through."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, Mapping, Optional, Tuple, TypeVar, Union

from ipu_conformance.errors import ConformanceError

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(Mapping[K, V]):
    """A mapping that never changes; it compares equal to any mapping with the same items, and it can be pickled."""

    __slots__ = ("_items",)
    _items: Dict[K, V]

    def __init__(self, items: Mapping[K, V]) -> None:
        object.__setattr__(self, "_items", dict(items))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a FrozenDict has no settable attribute {name!r}; build a new one")

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> Tuple[type, Tuple[Dict[K, V]]]:
        return FrozenDict, (self._items,)


UNDEFINED = "UNDEFINED"
"""The dtype of a tensor about which nothing is known."""

BITS: Mapping[str, Optional[int]] = FrozenDict(
    {
        UNDEFINED: None,
        "STRING": None,
        "BOOL": 8,
        "UINT4": 4,
        "INT4": 4,
        "UINT8": 8,
        "INT8": 8,
        "UINT16": 16,
        "INT16": 16,
        "UINT32": 32,
        "INT32": 32,
        "UINT64": 64,
        "INT64": 64,
        "FLOAT8E4M3FN": 8,
        "FLOAT8E4M3FNUZ": 8,
        "FLOAT8E5M2": 8,
        "FLOAT8E5M2FNUZ": 8,
        "FLOAT16": 16,
        "BFLOAT16": 16,
        "FLOAT": 32,
        "DOUBLE": 64,
        "COMPLEX64": 64,
        "COMPLEX128": 128,
    }
)
"""Every dtype by its ONNX name, with the bits of one element; None where an element has no fixed size."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

Shape = Tuple[Optional[int], ...]


class IRError(ConformanceError):
    """A graph, or a file that should hold one, cannot be used."""


@dataclass(frozen=True)
class Tensor:
    """A named value; a dimension of None is unknown, a shape of None has unknown rank."""

    name: str
    dtype: str = UNDEFINED
    shape: Optional[Shape] = None

    def __post_init__(self) -> None:
        require_text(self.name, "a tensor's name")
        if not self.name:
            raise IRError("a tensor has no name; the empty name stands for an omitted input of an op")
        if not isinstance(self.dtype, str) or self.dtype not in BITS:
            raise IRError(f"tensor {self.name!r} has dtype {self.dtype!r}; use one of {', '.join(sorted(BITS))}")
        if self.shape is not None:
            object.__setattr__(self, "shape", checked_shape(self.shape, f"tensor {self.name!r}"))

    @property
    def elements(self) -> Optional[int]:
        """The number of elements, None when a dimension or the rank is unknown."""
        return count(self.shape)

    @property
    def nbytes(self) -> Optional[int]:
        """The size of the values in bytes (4-bit types packed), None when shape or dtype leave it open."""
        return size(self.dtype, self.shape)


@dataclass(frozen=True)
class Literal:
    """A tensor given in place as an attribute, such as the value of a Constant; ``data`` is little-endian."""

    dtype: str
    shape: Tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        tensor = Tensor("literal", self.dtype, self.shape)
        object.__setattr__(self, "shape", tensor.shape)
        require_data(tensor, self.data)


Scalar = Union[int, float, str]
Attribute = Union[Scalar, Tuple[Scalar, ...], Literal]


def count(shape: Optional[Shape]) -> Optional[int]:
    """The number of elements of a shape, None when it is not fully known."""
    if shape is None:
        return None
    total = 1
    for dimension in shape:
        if dimension is None:
            return None
        total *= dimension
    return total


def size(dtype: str, shape: Optional[Shape]) -> Optional[int]:
    """The bytes that values of a dtype and shape take, None when that is not known."""
    elements, bits = count(shape), BITS[dtype]
    return None if elements is None or bits is None else (elements * bits + 7) // 8


def shape_text(shape: Optional[Shape]) -> str:
    """A shape as sentences show it: ``(5, ?)``, ``(5,)``, ``unknown``."""
    if shape is None:
        return "unknown"
    inside = ", ".join("?" if dimension is None else str(dimension) for dimension in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


def describe(tensor: Tensor) -> str:
    """A tensor as sentences show it: ``'x' FLOAT (5, 40)``."""
    return f"{tensor.name!r} {tensor.dtype} {shape_text(tensor.shape)}"


def is_int(value: object) -> bool:
    """Whether a value is an integer, Python's or NumPy's; truth values are none."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value for a sentence; an integer may be too long for Python to print."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def require_text(value: object, what: str) -> None:
    """Refuse what is not a string that every format can hold."""
    if type(value) is str and value.isascii():
        return
    if not isinstance(value, str):
        raise IRError(f"{what} is a {type(value).__name__}; give a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise IRError(f"{what} is {value!r}, which has no UTF-8 form; leave out lone surrogates") from None


def checked_names(names: object, what: str) -> Tuple[str, ...]:
    """The names as a tuple of strings; a lone string is refused."""
    if type(names) is tuple and all(type(name) is str and name.isascii() for name in names):
        return names
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise IRError(f"{what} are {names!r}; give a sequence of tensor names")
    checked = tuple(names)
    for name in checked:
        require_text(name, f"a name among {what}")
    return checked


def checked_shape(shape: object, what: str) -> Shape:
    """The dimensions as Python integers or None, each one that an int64 holds."""
    if type(shape) is not tuple and (isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable)):
        raise IRError(f"{what} has shape {shape!r}; give a sequence of dimensions, or None")
    return tuple(None if dimension is None else _dimension(dimension, what) for dimension in shape)


def _dimension(dimension: object, what: str) -> int:
    if is_int(dimension):
        length = operator.index(dimension)  # type: ignore[arg-type]
        if 0 <= length <= INT64_MAX:
            return length
    raise IRError(f"{what} has dimension {shown(dimension)}; give an integer from 0 to 2^63-1, or None")


def checked_scalar(value: object, what: str) -> Scalar:
    """The value as an integer of 64 bits, a float that equals itself, or a string."""
    if isinstance(value, bool):
        return int(value)
    if is_int(value):
        number = operator.index(value)  # type: ignore[arg-type]
        if not INT64_MIN <= number <= INT64_MAX:
            raise IRError(f"{what} is {shown(number)}; an integer has at most 64 bits")
        return number
    if isinstance(value, float):
        if value != value:
            raise IRError(f"{what} is NaN, which equals nothing; leave it out")
        return float(value)
    require_text(value, what)
    return str(value)


def require_data(tensor: Tensor, data: object) -> None:
    """Refuse values whose length is not the size of the tensor."""
    if not isinstance(data, bytes):
        raise IRError(f"the values of tensor {tensor.name!r} are a {type(data).__name__}; give little-endian bytes")
    if tensor.nbytes != len(data):
        needed = "no known number of" if tensor.nbytes is None else str(tensor.nbytes)
        raise IRError(f"tensor {describe(tensor)} takes {needed} bytes, and {len(data)} are given")


def merged(one: Optional[Tensor], other: Tensor) -> Tensor:
    """Two mentions of a tensor as one; a contradiction is an error."""
    if one is None or one == other:
        return other
    dtypes = {one.dtype, other.dtype} - {UNDEFINED}
    shapes = {one.shape, other.shape} - {None}
    if len(dtypes) > 1 or len(shapes) > 1:
        raise IRError(f"a tensor is described twice in different ways, as {describe(one)} and as {describe(other)}")
    return Tensor(one.name, dtypes.pop() if dtypes else UNDEFINED, shapes.pop() if shapes else None)
