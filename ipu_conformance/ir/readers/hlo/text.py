"""XLA's HLO as text, taken apart: a module, its computations, and their instructions with shapes and attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Pattern, Tuple, Union

from ipu_conformance.ir.readers.op_writer import most_entries
from ipu_conformance.ir.tensor import INT64_MAX, IRError

MAX_INSTRUCTIONS = 250_000
"""The most instructions of one module."""

MAX_DEPTH = 50
"""How deep tuples, and brackets of any kind, may lie in each other."""

DTYPES: Mapping[str, str] = {
    "pred": "BOOL", "s4": "INT4", "s8": "INT8", "s16": "INT16", "s32": "INT32", "s64": "INT64", "u4": "UINT4",
    "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "u64": "UINT64", "f16": "FLOAT16", "bf16": "BFLOAT16",
    "f32": "FLOAT", "f64": "DOUBLE", "c64": "COMPLEX64", "c128": "COMPLEX128", "f8e5m2": "FLOAT8E5M2",
    "f8e4m3fn": "FLOAT8E4M3FN",
}  # fmt: skip
"""The dtypes by XLA's names; token and opaque hold no numbers."""


@dataclass(frozen=True)
class ArrayShape:
    """The shape of an array; ``layout`` lists its dimensions from the one that varies fastest."""

    dtype: str
    lengths: Tuple[Optional[int], ...] = ()
    layout: Tuple[int, ...] = ()


@dataclass(frozen=True)
class TupleShape:
    """The shape of a tuple."""

    parts: Tuple[HloShape, ...]


HloShape = Union[ArrayShape, TupleShape]


@dataclass(frozen=True)
class Instruction:
    """One instruction; attributes are kept as text, without their outer braces."""

    name: str
    shape: HloShape
    opcode: str
    operands: Tuple[str, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    literal: str = ""
    """What stands between the parentheses: of a constant its value, of a parameter its number."""


@dataclass(frozen=True)
class Computation:
    """A named list of instructions."""

    name: str
    instructions: Tuple[Instruction, ...]
    root: str


@dataclass(frozen=True)
class Module:
    """A module: its computations by name, and the one that is entered."""

    name: str
    computations: Mapping[str, Computation]
    entry: str


# A comment is short, as in /*index=5*/, so that those that never end take no time.
_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*(?:[^*]|\*(?!/)){0,80}\*/)*")
_COMMENT = re.compile(r"/\*[^*]*\*/")
_NAME = re.compile(r"%?([A-Za-z_][\w.\-]*)")
_WORD = re.compile(r"[A-Za-z_][\w.\-]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PLAIN = re.compile(r'[^"()\[\]{}]+')
_VALUE = re.compile(r"[^\s,(){}\"=][^\s,(){}\"]*")
_NUMBERS = re.compile(r"\s*(?:<=)?\s*\d{1,19}\s*(?:,\s*(?:<=)?\s*\d{1,19}\s*)*", re.ASCII)  # other blanks stop int()
_CLOSING = {"(": ")", "{": "}", "[": "]"}


def parse(data: bytes) -> Module:
    """The module that a text holds."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise IRError("the data is not HLO text: it is not UTF-8") from None
    return _Parser(text).module()


class _Parser:
    """Reads from the front to the back, each character a bounded number of times."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.count = 0
        self.most = most_entries(len(text), 64, MAX_INSTRUCTIONS)

    def module(self) -> Module:
        if self._word() != "HloModule":
            raise self._refused("it does not begin with HloModule")
        name = self._name()
        while self._accept(","):
            self._attribute()
        computations: Dict[str, Computation] = {}
        entry = ""
        while self._skip() < len(self.text):
            entered, computation = self._computation()
            if computation.name in computations:
                raise self._refused(f"computation {computation.name!r} stands there twice")
            computations[computation.name] = computation
            entry = computation.name if entered else entry
        if not entry and len(computations) == 1:
            entry = next(iter(computations))
        if not entry:
            raise self._refused("it has no ENTRY computation")
        return Module(name, computations, entry)

    def _computation(self) -> Tuple[bool, Computation]:
        entered = self._accept("ENTRY ")
        name = self._name()
        if self._peek() == "(":  # parameters and result, which the instructions repeat
            self._balanced()
            if self._accept("->"):
                self._shape(0)
        self._expect("{")
        instructions: List[Instruction] = []
        root = ""
        while not self._accept("}"):
            is_root = self._accept("ROOT ")
            instructions.append(self._instruction())
            root = instructions[-1].name if is_root else root
            self.count += 1
            if self.count > self.most:
                raise IRError(f"the module has more than {self.most} instructions; that many are not read")
        while self._accept(","):
            self._attribute()
        if not instructions:
            raise self._refused(f"computation {name!r} has no instruction")
        names = {instruction.name for instruction in instructions}
        if len(names) < len(instructions):
            raise self._refused(f"computation {name!r} has two instructions of one name")
        return entered, Computation(name, tuple(instructions), root or instructions[-1].name)

    def _instruction(self) -> Instruction:
        name = self._name()
        self._expect("=")
        shape = self._shape(0)
        opcode = self._word()
        begun = self._skip()
        self._balanced()
        inside = self.text[begun + 1 : self.place - 1]
        attributes: Dict[str, str] = {}
        while self._accept(","):
            key, value = self._attribute()
            attributes[key] = value
        literal = inside.strip() if opcode in ("constant", "parameter") else ""
        operands = () if literal or not inside.strip() else _operands(inside)
        return Instruction(name, shape, opcode, operands, attributes, literal)

    def _attribute(self) -> Tuple[str, str]:
        key = self._word()
        self._expect("=")
        if self._peek() == "{":
            begun = self._skip()
            self._balanced()
            return key, self.text[begun + 1 : self.place - 1]
        if self._peek() == '"':
            return key, self._take(_STRING, "a string")[1:-1]
        return key, self._take(_VALUE, f"a value of {key}").lstrip("%")

    def _shape(self, depth: int) -> HloShape:
        if depth > MAX_DEPTH:
            raise self._refused(f"a shape has tuples more than {MAX_DEPTH} deep in each other")
        if self._accept("("):
            parts: List[HloShape] = []
            while not self._accept(")"):
                parts.append(self._shape(depth + 1))
                self._accept(",")
            return TupleShape(tuple(parts))
        name = self._word()
        self._expect("[")
        lengths = self._lengths("]")
        layout: Tuple[int, ...] = ()
        if self.text[self.place : self.place + 1] == "{":
            begun = self.place
            self._balanced()
            numbers = self.text[begun + 1 : self.place - 1].split(":")[0]
            if numbers.strip():
                if not _NUMBERS.fullmatch(numbers) or "<" in numbers:
                    raise self._refused(f"{numbers[:40]!r} is not a layout")
                layout = tuple(int(number) for number in numbers.split(","))
        return ArrayShape(DTYPES.get(name, name), lengths, layout)

    def _lengths(self, closing: str) -> Tuple[Optional[int], ...]:
        end = self.text.find(closing, self.place, self.place + 2_000)
        inside = self.text[self.place : end] if end >= 0 else "?"
        self.place = end + 1
        if not inside.strip():
            return ()
        if not _NUMBERS.fullmatch(inside):
            raise self._refused(f"{inside[:40]!r} are not the lengths of a shape")
        # A bound, as in "<=8", is the most that a length can be, not what it is.
        lengths = [None if "<" in part else int(part) for part in inside.split(",")]
        if any(length is not None and length > INT64_MAX for length in lengths):
            raise self._refused(f"{inside[:40]!r} are not the lengths of a shape")
        return tuple(lengths)

    def _balanced(self) -> None:
        """Go past a bracket, all that is in it, and its partner."""
        waiting: List[str] = []
        while True:
            self._skip()
            here = self._peek()
            if here == '"':
                self._take(_STRING, "a string")
            elif here in _CLOSING:
                waiting.append(_CLOSING[here])
                self.place += 1
                if len(waiting) > MAX_DEPTH:
                    raise self._refused(f"brackets are more than {MAX_DEPTH} deep in each other")
            elif waiting and here == waiting[-1]:
                waiting.pop()
                self.place += 1
                if not waiting:
                    return
            elif not waiting or not here or here in ")]}":
                raise self._refused("brackets do not match")
            else:
                self._take(_PLAIN, "brackets that match")

    def _skip(self) -> int:
        space = _SPACE.match(self.text, self.place)
        assert space is not None
        self.place = space.end()
        return self.place

    def _peek(self) -> str:
        self._skip()
        return self.text[self.place : self.place + 1]

    def _accept(self, mark: str) -> bool:
        self._skip()
        if not self.text.startswith(mark, self.place):
            return False
        self.place += len(mark)
        return True

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            raise self._refused(f"{mark!r} is missing")

    def _name(self) -> str:
        return self._take(_NAME, "a name").lstrip("%")

    def _word(self) -> str:
        return self._take(_WORD, "a word")

    def _take(self, pattern: Pattern[str], what: str) -> str:
        self._skip()
        matched = pattern.match(self.text, self.place)
        if matched is None:
            raise self._refused(f"{what} is missing")
        self.place = matched.end()
        return matched[0]

    def _refused(self, why: str) -> IRError:
        line = self.text.count("\n", 0, max(self.place, 0)) + 1
        return IRError(f"the data is not HLO text: {why} (line {line})")


def _operands(text: str) -> Tuple[str, ...]:
    """The names of operands, with or without their shapes in front."""
    text = _COMMENT.sub("", text)
    parts: List[str] = []
    depth, begun = 0, 0
    for place, letter in enumerate(text):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[begun:place])
            begun = place + 1
    parts.append(text[begun:])
    names = []
    for part in parts:
        words = part.split()
        name = _NAME.fullmatch(words[-1]) if words else None
        if name is None:
            raise IRError(f"the data is not HLO text: {part.strip()[:40]!r} is not an operand")
        names.append(name[1])
    return tuple(names)
