"""A restricted unpickler: plain containers and NumPy arrays of numbers, and no code of anyone's.

Two fences. Before anything is built, the opcodes are listed and only those that describe data are let through, with
every length and memo number bounded by the file. Then the few names that NumPy's pickles mention are bound to the
stand-ins below, which record what they are given; neither NumPy's functions nor any other are called by the pickle.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, Dict, Tuple

import numpy as np

_OPCODES = frozenset(
    (
        "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1",
        "BININT2", "LONG1", "BINFLOAT", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
        "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "APPEND", "APPENDS", "LIST", "EMPTY_TUPLE",
        "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "BINGET", "LONG_BINGET",
        "BINPUT", "LONG_BINPUT", "MEMOIZE", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
    )
)  # fmt: skip
_MEMO_OPCODES = frozenset(("BINPUT", "LONG_BINPUT"))
_MAX_OPCODES = 1_000_000
_DTYPES = frozenset(("u1", "|u1", "f4", "<f4", "i8", "<i8"))


def load_plain(data: bytes) -> Any:
    """The object in ``data``; a pickle that is more than containers and arrays raises ``pickle.UnpicklingError``."""
    _check_opcodes(data)
    # Python 2's strings stay bytes: they are the arrays' contents.
    return _finish(_Unpickler(io.BytesIO(data), encoding="bytes").load())


def _check_opcodes(data: bytes) -> None:
    """Refuse opcodes that can do more than describe data, and memo numbers that make a huge memo."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if opcode.name not in _OPCODES or count > _MAX_OPCODES:
            raise pickle.UnpicklingError(f"the pickle uses {opcode.name}, which plain data does not need")
        if opcode.name in _MEMO_OPCODES and not 0 <= int(argument or 0) <= _MAX_OPCODES:
            raise pickle.UnpicklingError(f"the pickle's memo number {argument} is out of range")


class _Record:
    """A stand-in's product: remembers what it was made with, and the state that follows."""

    def __init__(self, arguments: Tuple[Any, ...]) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_Record):
    """A NumPy array as it was pickled."""


class _Dtype(_Record):
    """A NumPy dtype as it was pickled."""


class _StandIn:
    """Called in place of the function that a pickle names; has no state for a pickle to set."""

    def __init__(self, product: type) -> None:
        self._product = product

    def __call__(self, *arguments: Any) -> Any:
        return self._product(arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("the pickle sets the state of a function")


def _encoded(arguments: Tuple[Any, ...]) -> bytes:
    """What ``_codecs.encode(text, 'latin1')`` gives: how Python 3 writes bytes in protocol 2."""
    if len(arguments) != 2 or not isinstance(arguments[0], str) or arguments[1] != "latin1":
        raise pickle.UnpicklingError("the pickle encodes something other than bytes")
    return arguments[0].encode("latin1")


class _Unpickler(pickle.Unpickler):
    """Finds stand-ins only."""

    def find_class(self, module: str, name: str) -> Any:
        stand_in = _STAND_INS.get((module, name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"the pickle names {module}.{name}, which is not run")
        return stand_in


_STAND_INS: Dict[Tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _StandIn(_Array),
    ("numpy._core.multiarray", "_reconstruct"): _StandIn(_Array),
    ("numpy", "dtype"): _StandIn(_Dtype),
    ("numpy", "ndarray"): _StandIn(_Record),
    ("_codecs", "encode"): _StandIn(_encoded),  # type: ignore[arg-type]
}


def _finish(value: Any, depth: int = 0) -> Any:
    """``value`` with its recorded arrays made real; containers deeper than a data set's are refused."""
    if depth > 4:
        raise pickle.UnpicklingError("the pickle nests its containers too deeply")
    if isinstance(value, _Array):
        return _real_array(value)
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, (int, bytes, str)) for item in value):
            return value
        return type(value)(_finish(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return {
            (key.decode("latin1") if isinstance(key, bytes) else key): _finish(item, depth + 1)
            for key, item in value.items()
        }
    if value is None or isinstance(value, (int, float, bytes, str)):
        return value
    raise pickle.UnpicklingError("the pickle holds something that is neither a container nor an array")


def _real_array(record: _Array) -> np.ndarray:
    """The array of a recorded state (version, shape, dtype, Fortran order, bytes), whose parts have to agree."""
    _, shape, dtype, fortran, content = record.state
    code = dtype.arguments[0]
    code = code.decode("ascii") if isinstance(code, bytes) else code
    if code not in _DTYPES or not isinstance(content, bytes) or not all(isinstance(extent, int) for extent in shape):
        raise pickle.UnpicklingError("the pickle holds an array of something other than numbers")
    order = dtype.state[1] if dtype.state else "<"
    if order not in ("<", "|", "=", b"<", b"|", b"="):
        raise pickle.UnpicklingError("the pickle holds an array of big-endian numbers")
    array = np.frombuffer(content, np.dtype(code.lstrip("<|")).newbyteorder("<"))
    return array.reshape(shape, order="F" if fortran else "C")
