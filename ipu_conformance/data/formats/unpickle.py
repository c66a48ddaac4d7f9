"""Reads pickles as data: plain containers and NumPy arrays of numbers, and no code of anyone's.

The opcodes that describe data are carried out here, and any other is refused; Python's unpickler has no part in it. The
few names that NumPy's pickles mention stand for records of what they are given. Work is bounded: there are only so many
opcodes, what is shared is looked at once, a key of a dictionary is a name or a number, and a text is not encoded over
and over again.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, Dict, List, NoReturn, Tuple

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
_BY_CODE = {opcode.code: opcode for opcode in pickletools.opcodes}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MAX_OPCODES = 200_000
"""A batch of CIFAR-10 has some 40,000."""
_DTYPES = frozenset(("u1", "|u1", "f4", "<f4", "i8", "<i8"))
_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")


def load_plain(data: bytes) -> Any:
    """The object in ``data``; a pickle that is more than containers and arrays raises ``pickle.UnpicklingError``."""
    try:
        return _Finish().of(_Machine(data).run())
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise pickle.UnpicklingError(f"the pickle is damaged: {error}") from None


def _refuse(why: str) -> NoReturn:
    raise pickle.UnpicklingError(f"the pickle {why}")


class _Record:
    """What stands for an object of NumPy: what it was made with, and the state that follows."""

    def __init__(self, arguments: Tuple[Any, ...]) -> None:
        self.arguments = arguments
        self.state: Any = None


class _Array(_Record):
    """A NumPy array as it was pickled."""


class _Dtype(_Record):
    """A NumPy dtype as it was pickled."""


class _Named:
    """A function or class that a pickle names."""

    def __init__(self, module: str, name: str) -> None:
        if (module, name) == ("_codecs", "encode"):
            self.product: Any = None
        elif (module, name) == ("numpy", "dtype"):
            self.product = _Dtype
        elif name == "_reconstruct" and module in _NUMPY:
            self.product = _Array
        elif (module, name) == ("numpy", "ndarray"):
            self.product = _Record
        else:
            _refuse(f"names {module}.{name}, which is not run")


class _Machine:
    """Carries out the opcodes of one pickle."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)
        self._room = len(data)
        self._stack: List[Any] = []
        self._marked: List[List[Any]] = []
        self._memo: Dict[int, Any] = {}

    def run(self) -> Any:
        """The object that is left at the end."""
        for _ in range(_MAX_OPCODES):
            code = self._stream.read(1).decode("latin1")
            opcode = _BY_CODE.get(code)
            if opcode is None or opcode.name not in _OPCODES:
                _refuse(f"uses {opcode.name if opcode else repr(code)}, which plain data does not need")
            argument = opcode.arg.reader(self._stream) if opcode.arg is not None else None
            if opcode.name == "STOP":
                return self._stack.pop()
            self._step(opcode.name, argument)
        _refuse(f"has more than {_MAX_OPCODES} steps")

    def _step(self, name: str, argument: Any) -> None:
        stack, memo = self._stack, self._memo
        if name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            number = len(memo) if argument is None else argument
            if not 0 <= number <= _MAX_OPCODES:
                raise pickle.UnpicklingError(f"the pickle's memo number {number} is out of range")
            memo[number] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in ("BINSTRING", "SHORT_BINSTRING"):  # Python 2's strings are the arrays' contents
            stack.append(argument.encode("latin1"))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            if argument:
                module, _, function = argument.partition(" ")
            else:
                module, function = self._last(2, str)
                del stack[-2:]
            stack.append(_Named(module, function))
        elif argument is not None:
            if name not in ("PROTO", "FRAME"):
                stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            self._marked.append(stack)
            self._stack = []
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._to_mark()
        else:
            self._contain(name)

    def _contain(self, name: str) -> None:
        """Carry out an opcode of containers or records."""
        stack = self._stack
        if name.startswith("EMPTY_"):
            stack.append({"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}[name]())
        elif name in _TUPLES:
            stack[-_TUPLES[name] :] = [tuple(self._last(_TUPLES[name]))]
        elif name in ("LIST", "TUPLE"):
            items = self._to_mark()
            self._stack.append(items if name == "LIST" else tuple(items))
        elif name == "DICT":
            items = self._to_mark()
            self._stack.append({})
            self._fill(items)
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self._to_mark()
            self._top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else self._to_mark()
            self._fill(items)
        elif name == "REDUCE":
            arguments = stack.pop()
            named = stack.pop()
            if not isinstance(named, _Named) or not isinstance(arguments, tuple):
                _refuse("calls something that is not a function")
            stack.append(named.product(arguments) if named.product else self._encoded(arguments))
        else:
            state = stack.pop()
            if isinstance(stack[-1], _Named):
                _refuse("sets the state of a function")
            self._top(_Record).state = state

    def _last(self, count: int, kind: type = object) -> List[Any]:
        """The last items of the stack, which have to be of a kind."""
        items = self._stack[-count:]
        if len(items) < count or not all(isinstance(item, kind) for item in items):
            _refuse("lacks what an opcode needs")
        return items

    def _top(self, kind: type) -> Any:
        return self._last(1, kind)[0]

    def _to_mark(self) -> List[Any]:
        """Take all items after the last mark off the stack."""
        items, self._stack = self._stack, self._marked.pop()
        return items

    def _fill(self, items: List[Any]) -> None:
        keys, values = items[::2], items[1::2]
        if len(keys) != len(values) or not all(isinstance(key, (str, bytes, int)) for key in keys):
            _refuse("has a key that is neither a name nor a number")
        self._top(dict).update(zip(keys, values))

    def _encoded(self, arguments: Tuple[Any, ...]) -> bytes:
        """What ``_codecs.encode(text, 'latin1')`` gives: how Python 3 writes bytes in protocol 2."""
        if len(arguments) != 2 or not isinstance(arguments[0], str) or arguments[1] != "latin1":
            _refuse("encodes something other than bytes")
        self._room -= len(arguments[0])
        if self._room < 0:
            _refuse("encodes more than it holds")
        return arguments[0].encode("latin1")


class _Finish:
    """Makes recorded arrays real; what is shared is looked at once."""

    def __init__(self) -> None:
        self._done: Dict[int, Any] = {}

    def of(self, value: Any, depth: int = 0) -> Any:
        """``value`` with real arrays; containers deeper than a data set's are refused."""
        if value is None or isinstance(value, (int, float, bytes, str)):
            return value
        if depth > 4:
            _refuse("nests its containers too deeply")
        if id(value) not in self._done:
            self._done[id(value)] = self._made(value, depth)
        return self._done[id(value)]

    def _made(self, value: Any, depth: int) -> Any:
        if isinstance(value, _Array):
            return _real_array(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.of(item, depth + 1) for item in value)
        if isinstance(value, dict):
            return {
                (key.decode("latin1") if isinstance(key, bytes) else key): self.of(item, depth + 1)
                for key, item in value.items()
            }
        _refuse("holds something that is neither a container nor an array")


def _real_array(record: _Array) -> np.ndarray:
    """The array of a recorded state (version, shape, dtype, Fortran order, bytes), whose parts have to agree."""
    if not isinstance(record.state, tuple) or len(record.state) != 5:
        _refuse("holds an array without a state")
    _, shape, dtype, fortran, content = record.state
    if not isinstance(shape, tuple) or not isinstance(dtype, _Dtype) or not dtype.arguments:
        _refuse("holds an array without a shape or a type")
    code = dtype.arguments[0]
    code = code.decode("ascii") if isinstance(code, bytes) else code
    numbers = isinstance(code, str) and code in _DTYPES and isinstance(content, bytes)
    if not numbers or not all(isinstance(extent, int) for extent in shape):
        _refuse("holds an array of something other than numbers")
    order = dtype.state[1] if dtype.state else "<"
    if order not in ("<", "|", "=", b"<", b"|", b"="):
        _refuse("holds an array of big-endian numbers")
    array = np.frombuffer(content, np.dtype(code.lstrip("<|")).newbyteorder("<"))
    return array.reshape(shape, order="F" if fortran else "C")
