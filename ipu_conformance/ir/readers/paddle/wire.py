"""Paddle's program files: the protobuf message of a saved Program, parsed without Paddle and without its schema.

Fields that are not needed are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ipu_conformance.ir.readers.paddle.ops import Call
from ipu_conformance.ir.readers.protobuf import Value, Wire
from ipu_conformance.ir.tensor import IRError

MAX_ENTRIES = 250_000
"""The most ops and variables of one program."""

_TENSORS = frozenset((7, 8))
"""The kinds of variables that hold values: a tensor, and rows selected from one."""

_wire = Wire("a saved program of Paddle")
_fields, _message, _text, _signed = _wire.fields, _wire.message, _wire.text, _wire.signed
_numbers, _floating, _floats = _wire.numbers, _wire.floating, _wire.floats


@dataclass(frozen=True)
class Variable:
    """A variable of a program; the shape is None where it is no tensor."""

    name: str
    dtype: int = -1
    shape: Optional[Tuple[int, ...]] = None
    persistable: bool = False
    kind: int = 7


def parse(data: bytes) -> Tuple[List[Variable], List[Call]]:
    """The variables and the ops of a saved program, in the order in which they stand there."""
    blocks = [value for number, value in _fields(data, "the program") if number == 1]
    if not blocks or not all(isinstance(block, bytes) for block in blocks):
        raise IRError("the data is not a saved program of Paddle: it has no block")
    if len(blocks) > 1:
        raise IRError(f"the program has {len(blocks)} blocks; one with control flow is not read")
    return parse_block(_message(blocks[0], "a block"))


def parse_block(data: bytes) -> Tuple[List[Variable], List[Call]]:
    """The variables and the ops of one block of a program."""
    variables: List[Variable] = []
    calls: List[Call] = []
    for number, value in _fields(data, "a block"):
        if number == 3:
            variables.append(_variable(_message(value, "a variable")))
        elif number == 4:
            calls.append(_call(_message(value, "an op")))
        if len(variables) + len(calls) > MAX_ENTRIES:
            raise IRError(f"the program has more than {MAX_ENTRIES} ops and variables; that many are not read")
    names = {variable.name for variable in variables}
    if len(names) < len(variables):
        raise IRError("the program declares a variable twice")
    return variables, calls


def looks_like(data: bytes) -> bool:
    """Whether bytes begin like a saved program: a first block with its number, and a parent that is none."""
    try:
        number, value = next(_fields(data, "the program"))
        first = next(_fields(value, "a block")) if isinstance(value, bytes) else (0, 0)
    except (IRError, StopIteration):
        return False
    return number == 1 and first == (1, 0)


def _variable(data: bytes) -> Variable:
    name, kind, dtype, persistable = "", -1, -1, False
    shape: Optional[Tuple[int, ...]] = None
    for number, value in _fields(data, "a variable"):
        if number == 1:
            name = _text(value, "the name of a variable")
        elif number == 2:
            kind, dtype, shape = _type(_message(value, "the type of a variable"))
        elif number == 3:
            persistable = bool(value)
    if not name:
        raise IRError("the data is not a saved program of Paddle: a variable has no name")
    return Variable(name, dtype, shape, persistable, kind)


def _type(data: bytes) -> Tuple[int, int, Optional[Tuple[int, ...]]]:
    """The kind of a variable, and dtype and shape where it is a tensor."""
    kind, dtype = -1, -1
    shape: Optional[Tuple[int, ...]] = None
    for number, value in _fields(data, "the type of a variable"):
        if number == 1:
            kind = _signed(value)
        elif number in (2, 3):  # SelectedRows hold a tensor's description, a LoD tensor a description and a level
            inner = _message(value, "a tensor's type")
            if number == 3:
                inner = next((_message(each, "a tensor") for at, each in _fields(inner, "a tensor") if at == 1), b"")
            dtype, shape = _description(inner)
    return (kind, dtype, shape) if kind in _TENSORS else (kind, -1, None)


def _description(data: bytes) -> Tuple[int, Tuple[int, ...]]:
    dtype = -1
    lengths: List[int] = []
    for number, value in _fields(data, "a tensor"):
        if number == 1:
            dtype = _signed(value)
        elif number == 2:
            lengths += _numbers(value)
    return dtype, tuple(lengths)


def _call(data: bytes) -> Call:
    type = ""
    slots: Dict[int, Dict[str, Tuple[str, ...]]] = {1: {}, 2: {}}
    attributes: Dict[str, Any] = {}
    for number, value in _fields(data, "an op"):
        if number in slots:
            name, arguments = _slot(_message(value, "a slot of an op"))
            slots[number][name] = arguments
        elif number == 3:
            type = _text(value, "the type of an op")
        elif number == 4:
            name, held = _attribute(_message(value, "an attribute"))
            attributes[name] = held
    if not type:
        raise IRError("the data is not a saved program of Paddle: an op has no type")
    placement = [attributes.get(key) for key in ("ipu_index", "ipu_stage")]
    ipu, stage = (value if isinstance(value, int) and 0 <= value < 2**31 else None for value in placement)
    return Call(type, slots[1], slots[2], attributes, ipu, stage)


def _slot(data: bytes) -> Tuple[str, Tuple[str, ...]]:
    name = ""
    arguments: List[str] = []
    for number, value in _fields(data, "a slot of an op"):
        if number == 1:
            name = _text(value, "the name of a slot")
        elif number == 2:
            arguments.append(_text(value, "an argument of an op"))
    return name, tuple(arguments)


def _attribute(data: bytes) -> Tuple[str, Any]:
    name = ""
    single: Any = None
    several: List[Any] = []
    repeated = False
    kind = -1
    for number, value in _fields(data, "an attribute"):
        if number == 1:
            name = _text(value, "the name of an attribute")
        elif number == 2:
            kind = _signed(value)
        elif number in _SINGLE:
            single = _SINGLE[number](value)
        elif number in _REPEATED:
            repeated = True
            several += _REPEATED[number](value)
    if repeated or kind in _LISTS:
        return name, tuple(several)
    return name, single


def _scalar(value: Value) -> Any:
    """A number that brings its kind along: a truth value, an integer or a float; a complex number is left out."""
    found: Any = None
    for number, held in _fields(_message(value, "a scalar"), "a scalar"):
        if number == 2:
            found = bool(held)
        elif number == 3:
            found = _signed(held)
        elif number == 4:
            found = _floating(held, "<d")
    return found


_LISTS = frozenset((3, 4, 5, 7, 10, 11, 12, 14, 17))
"""The kinds of attributes that are lists, also when they are empty."""

_SINGLE: Mapping[int, Callable[[Value], Any]] = {
    3: _signed,
    4: lambda value: _floating(value, "<f"),
    5: lambda value: _text(value, "an attribute"),
    10: bool,
    12: _signed,
    13: _signed,
    17: lambda value: _text(value, "an attribute"),
    19: lambda value: _floating(value, "<d"),
    20: _scalar,
}
"""How the fields of an attribute are read that hold one value."""

_REPEATED: Mapping[int, Callable[[Value], List[Any]]] = {
    6: _numbers,
    7: lambda value: _floats(value, "<f"),
    8: lambda value: [_text(value, "an attribute")],
    11: lambda value: [bool(number) for number in _numbers(value)],
    14: _numbers,
    15: _numbers,
    16: lambda value: _floats(value, "<d"),
    18: lambda value: [_text(value, "an attribute")],
    21: lambda value: [_scalar(value)],
}
"""How the fields of an attribute are read that hold one value of several, or several that are packed."""
