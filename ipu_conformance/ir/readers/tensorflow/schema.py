"""TensorFlow's graph files as trees of named fields: binary (``.pb``) and text (``.pbtxt``) by one table.

A message becomes a mapping from the names of its fields to the list of their values. What the table does not name is
skipped. Depth and number of messages are bounded, so that no file takes more than a known multiple of its size.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ipu_conformance.ir.readers.protobuf import Value, Wire
from ipu_conformance.ir.tensor import IRError

Message = Dict[str, List[Any]]

MAX_MESSAGES = 2_000_000
"""The most messages, of all kinds, in one file."""

MAX_DEPTH = 40
"""How deep messages may lie in each other; TensorFlow's own files stay under twenty."""

DATA_TYPES: Mapping[int, str] = {
    1: "FLOAT", 2: "DOUBLE", 3: "INT32", 4: "UINT8", 5: "INT16", 6: "INT8", 7: "STRING", 8: "COMPLEX64", 9: "INT64",
    10: "BOOL", 14: "BFLOAT16", 17: "UINT16", 18: "COMPLEX128", 19: "FLOAT16", 20: "RESOURCE", 21: "VARIANT",
    22: "UINT32", 23: "UINT64", 24: "FLOAT8E5M2", 25: "FLOAT8E4M3FN", 29: "INT4", 30: "UINT4",
}  # fmt: skip
"""The dtypes by the numbers that TensorFlow writes; a reference to a variable has 100 more."""

_TEXT_TYPES = {
    **{f"DT_{name}": number for number, name in DATA_TYPES.items()},
    "DT_HALF": 19, "DT_FLOAT8_E5M2": 24, "DT_FLOAT8_E4M3FN": 25, "DT_INVALID": 0,
}  # fmt: skip

Fields = Mapping[int, Tuple[str, str]]

SCHEMA: Mapping[str, Fields] = {
    "GraphDef": {1: ("node", "NodeDef"), 2: ("library", "Library")},
    "NodeDef": {
        1: ("name", "text"), 2: ("op", "text"), 3: ("input", "text"), 4: ("device", "text"), 5: ("attr", "Attr"),
    },
    "Attr": {1: ("key", "text"), 2: ("value", "AttrValue")},
    "AttrValue": {
        1: ("list", "List"), 2: ("s", "bytes"), 3: ("i", "int"), 4: ("f", "float"), 5: ("b", "bool"),
        6: ("type", "type"), 7: ("shape", "Shape"), 8: ("tensor", "Tensor"), 10: ("func", "Func"),
    },
    "List": {
        2: ("s", "bytes"), 3: ("i", "int"), 4: ("f", "float"), 5: ("b", "bool"), 6: ("type", "type"),
        7: ("shape", "Shape"), 8: ("tensor", "Tensor"), 9: ("func", "Func"),
    },
    "Func": {1: ("name", "text")},
    "Shape": {2: ("dim", "Dim"), 3: ("unknown_rank", "bool")},
    "Dim": {1: ("size", "int")},
    "Tensor": {
        1: ("dtype", "type"), 2: ("tensor_shape", "Shape"), 4: ("tensor_content", "bytes"), 5: ("float_val", "float"),
        6: ("double_val", "double"), 7: ("int_val", "int"), 8: ("string_val", "bytes"), 10: ("int64_val", "int"),
        11: ("bool_val", "bool"), 13: ("half_val", "int"), 16: ("uint32_val", "int"), 17: ("uint64_val", "int"),
        9: ("scomplex_val", "float"), 12: ("dcomplex_val", "double"),
    },
    "Library": {1: ("function", "Function")},
    "Function": {
        1: ("signature", "Signature"), 3: ("node_def", "NodeDef"), 4: ("ret", "Pair"), 6: ("control_ret", "Pair"),
    },
    "Signature": {1: ("name", "text"), 2: ("input_arg", "Arg"), 3: ("output_arg", "Arg")},
    "Arg": {1: ("name", "text"), 3: ("type", "type")},
    "Pair": {1: ("key", "text"), 2: ("value", "text")},
    "SavedModel": {1: ("saved_model_schema_version", "int"), 2: ("meta_graphs", "MetaGraph")},
    "MetaGraph": {2: ("graph_def", "GraphDef"), 5: ("signature_def", "SignatureEntry")},
    "SignatureEntry": {1: ("key", "text"), 2: ("value", "SignatureDef")},
    "SignatureDef": {1: ("inputs", "TensorEntry"), 2: ("outputs", "TensorEntry")},
    "TensorEntry": {1: ("key", "text"), 2: ("value", "TensorInfo")},
    "TensorInfo": {1: ("name", "text"), 2: ("dtype", "type")},
}  # fmt: skip
"""The fields that are read of every message, by number, each with its name and its kind."""


class _Count:
    """How many messages may still be read."""

    def __init__(self) -> None:
        self.left = MAX_MESSAGES

    def one(self, depth: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise IRError(f"the graph is made of more than {MAX_MESSAGES} messages; that many are not read")
        if depth > MAX_DEPTH:
            raise IRError(f"the graph has messages more than {MAX_DEPTH} deep in each other; that deep is not read")


def from_bytes(data: bytes, root: str, document: str = "a graph of TensorFlow") -> Message:
    """The tree of a binary file."""
    return _Binary(Wire(document)).message(data, root, 0)


class _Binary:
    """Reads the bytes of messages by the table."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.count = _Count()

    def message(self, data: bytes, kind: str, depth: int) -> Message:
        self.count.one(depth)
        found: Message = {}
        fields = SCHEMA[kind]
        for number, value in self.wire.fields(data, f"a {kind}"):
            if number in fields:
                name, inner = fields[number]
                found.setdefault(name, []).extend(self._values(value, inner, depth))
        return found

    def _values(self, value: Value, kind: str, depth: int) -> List[Any]:
        wire = self.wire
        if kind in SCHEMA:
            return [self.message(wire.message(value, f"a {kind}"), kind, depth + 1)]
        if kind == "text":
            return [wire.text(value, "a name")]
        if kind == "bytes":
            return [wire.message(value, "a string")]
        if kind in ("float", "double"):
            return list(wire.floats(value, "<f" if kind == "float" else "<d"))
        numbers = wire.numbers(value)
        return [bool(number) for number in numbers] if kind == "bool" else list(numbers)


_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_TOKEN = re.compile(
    r"""(?: (?P<word>[-+]?[A-Za-z0-9_.][A-Za-z0-9_.+-]*|-(?=[A-Za-z]))
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<mark>[{}\[\]<>:,;]) | (?P<end>\Z) )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, '"': 34, "'": 39, "\\": 92, "?": 63}
_CLOSING = {"{": "}", "<": ">"}


class _Token(NamedTuple):
    kind: str
    text: str


def from_text(data: bytes, root: str) -> Message:
    """The tree of a text file."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise IRError("the data is not a graph of TensorFlow as text: it is not UTF-8") from None
    return _Text(text).message(root, "", 0)


class _Text:
    """Reads the text form of messages by the table."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.count = _Count()
        self.next = self._token()

    def message(self, kind: Optional[str], closing: str, depth: int) -> Message:
        """The fields up to the closing mark; without a kind they are skipped."""
        self.count.one(depth)
        known = dict(SCHEMA[kind].values()) if kind else {}
        found: Message = {}
        while True:
            token = self._take()
            if token.kind == "mark" and token.text in ",;":
                continue
            if token.text == closing and token.kind in ("mark", "end"):
                return found
            if token.kind != "word":
                raise self._refused(
                    f"{token.text or 'the end'!r} stands where a field or {closing or 'the end'!r} should"
                )
            inner = known.get(token.text)
            values = self._field(token.text, inner, depth)
            if inner is not None:
                found.setdefault(token.text, []).extend(values)

    def _field(self, name: str, kind: Optional[str], depth: int) -> List[Any]:
        if self.next.text == ":" and self.next.kind == "mark":
            self._take()
        if self.next.text == "[" and self.next.kind == "mark":
            self._take()
            values: List[Any] = []
            while not (self.next.kind == "mark" and self.next.text == "]"):
                values.append(self._value(name, kind, depth))
                if self.next.kind == "mark" and self.next.text == ",":
                    self._take()
            self._take()
            return values
        return [self._value(name, kind, depth)]

    def _value(self, name: str, kind: Optional[str], depth: int) -> Any:
        token = self._take()
        if token.kind == "mark" and token.text in _CLOSING:
            if kind is not None and kind not in SCHEMA:
                raise self._refused(f"{name} is a message")
            return self.message(kind, _CLOSING[token.text], depth + 1)
        if token.kind == "string":
            parts = [token.text]
            while self.next.kind == "string":
                parts.append(self._take().text)
            joined = b"".join(_unescaped(part[1:-1]) for part in parts)
            return self._string(name, kind, joined)
        if token.kind != "word":
            raise self._refused(f"{name} has no value")
        return None if kind is None else self._scalar(name, kind, token.text)

    def _string(self, name: str, kind: Optional[str], data: bytes) -> Any:
        if kind == "text":
            try:
                return data.decode("utf-8")
            except UnicodeDecodeError:
                raise self._refused(f"{name} is not UTF-8") from None
        if kind in ("bytes", None):
            return data
        raise self._refused(f"{name} is a string")

    def _scalar(self, name: str, kind: str, word: str) -> Any:
        try:
            if kind == "type":
                return _TEXT_TYPES[word] if word in _TEXT_TYPES else self._reference(word)
            if kind == "bool":
                return {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}[word.lower()]
            if kind in ("float", "double"):
                return float(word[:-1] if word[-1:] in "fF" and not word.lower().endswith("inf") else word)
            if kind == "int" and len(word) < 24:
                return int(word, 0)
        except (KeyError, ValueError):
            pass
        raise self._refused(f"{name} is {word[:40]!r}")

    @staticmethod
    def _reference(word: str) -> int:
        if word.endswith("_REF") and word[:-4] in _TEXT_TYPES:
            return _TEXT_TYPES[word[:-4]] + 100
        return 0 if word.startswith("DT_") else int(word)

    def _take(self) -> _Token:
        token = self.next
        if token.kind != "end":
            self.next = self._token()
        return token

    def _token(self) -> _Token:
        space = _SPACE.match(self.text, self.place)  # matched alone, so that nothing is ever tried twice
        assert space is not None
        self.place = space.end()
        found = _TOKEN.match(self.text, self.place)
        if found is None or found.lastgroup is None:
            raise self._refused(f"{self.text[self.place : self.place + 20].strip()!r} is no part of it")
        self.place = found.end()
        return _Token(found.lastgroup, found[found.lastgroup])

    def _refused(self, why: str) -> IRError:
        line = self.text.count("\n", 0, self.place) + 1
        return IRError(f"the data is not a graph of TensorFlow as text: {why} (line {line})")


def _unescaped(text: str) -> bytes:
    """The bytes that a string of the text form stands for."""
    found: List[bytes] = []
    place = 0
    for escape in _ESCAPE.finditer(text):
        found.append(text[place : escape.start()].encode("utf-8", "replace"))
        octal, hexadecimal, short, long, letter = escape.groups()
        if octal or hexadecimal:
            found.append(bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)]))
        elif short or long:
            number = int(short or long, 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise IRError("the data is not a graph of TensorFlow as text: a string has an escape for no character")
            found.append(chr(number).encode("utf-8"))
        elif letter in _LETTERS:
            found.append(bytes([_LETTERS[letter]]))
        else:
            raise IRError(f"the data is not a graph of TensorFlow as text: a string has the escape {letter!r}")
        place = escape.end()
    found.append(text[place:].encode("utf-8", "replace"))
    return b"".join(found)
