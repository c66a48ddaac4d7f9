"""Protobuf messages by a table of their fields: the protobuf runtime parses them, and no generated code is needed.

A message inside a message is parsed when it is asked for. Until then it is a slice of bytes, so that a file of many
tiny messages is counted, and refused, before it takes memory.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
)
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ipu_conformance.ir.readers.op_writer import most_entries
from ipu_conformance.ir.tensor import IRError

MAX_DEPTH = 40
"""How deep messages may nest in text, whose parser recurses; TensorFlow's own files stay under twenty."""

MAX_DIGITS = 400
"""The most digits in a row in text: parsing an integer takes time quadratic in its digits."""

Table = Mapping[str, Mapping[int, str]]
"""The fields by message and number, as ``.proto`` files declare them: ``"repeated int64 dims"``, ``"string name"``.

A field declared ``oneof`` is an alternative in the message's oneof ``value``. What a table leaves out is skipped.
"""

MAX_UNKNOWN = 50_000
"""The most values of fields that the table leaves out: the text parser takes longest to skip them."""

_LONG_LINE = 1024
"""Where a line gets too long: the text parser copies the line of each value in an unknown field."""

_LONG = re.compile(rb"[^\n]{%d}" % (_LONG_LINE + 1))
_QUOTED = rb"""(?:"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|\#[^\n]*)"""
_BREAKS = re.compile(_QUOTED + rb"|\s+|[,;\]}>]")
_TOKENS = re.compile(
    rb"""(?P<skipped>%s)
      | (?P<opening>[{<]) | (?P<closing>[}>]) | (?P<digits>[0-9]{%d,}) | (?P<word>\w+) | (?P<value>[:,])"""
    % (_QUOTED, MAX_DIGITS + 1),
    re.VERBOSE,
)


class Schema:
    """The messages of one kind of document; ``document`` completes "the data is not …"."""

    def __init__(self, document: str, table: Table, enums: Mapping[str, Mapping[str, int]] = {}) -> None:
        self.document, self._table, self._enums = document, table, enums
        self._shallow = _classes(table, enums)
        self._deep: Mapping[str, Any] = {}
        self._fields = {
            kind: {d.split()[-1].encode(): d.split()[-2] for d in rows.values()} for kind, rows in table.items()
        }

    def parse(self, kind: str, data: bytes) -> Any:
        """The message of a kind that bytes hold; the messages inside it are still bytes."""
        message = self._shallow[kind]()
        try:
            message.ParseFromString(data)
        except (DecodeError, RecursionError, UnicodeDecodeError):
            raise IRError(
                f"the data is not {self.document}: its {kind} is cut short, malformed or not UTF-8 text"
            ) from None
        return message

    def encode(self, kind: str, text: bytes, max_messages: int) -> bytes:
        """The bytes of a message that is written as text."""
        refusal = f"the data is not {self.document} as text"
        self._require_bounded(kind, text, refusal, max_messages)
        self._deep = self._deep or _classes(self._table, self._enums, deep=True)
        message = self._deep[kind]()
        text = text.strip()
        if _LONG.search(text):
            text = _BREAKS.sub(rb"\g<0>\n", text)
        try:
            text_format.Merge(text.decode("utf-8"), message, allow_unknown_field=True)
            encoded: bytes = message.SerializeToString()
        except UnicodeDecodeError:
            raise IRError(f"{refusal}: it is not UTF-8") from None
        except (text_format.ParseError, ValueError) as error:
            raise IRError(f"{refusal}: {' '.join(str(error).split())[:200]}") from None
        return encoded

    def _require_bounded(self, kind: str, text: bytes, refusal: str, max_messages: int) -> None:
        """Refuse text that the parser would recurse deeply into, or spend too much memory or time on."""
        messages = unknown = strings = entered = 0
        most_strings = most_entries(len(text), 8, len(text))
        most_entered = most_entries(len(text), 64, max_messages)
        kinds: List[Optional[str]] = [kind]
        """The kinds of the messages that are open; None is one that the table leaves out."""
        word: Optional[bytes] = None
        field: Optional[str] = None
        for token in _TOKENS.finditer(text):
            group = token.lastgroup
            if group == "word":
                word = token[0]
                continue
            if group == "skipped":
                strings += 1
                if strings > most_strings:
                    raise IRError(f"{refusal}: it has more than {most_strings} strings and comments")
                continue
            if group == "digits":
                raise IRError(f"{refusal}: a number has more than {MAX_DIGITS} digits")
            if group in ("value", "opening"):
                if word is not None and token[0] != b",":
                    field, word = self._fields.get(kinds[-1] or "", {}).get(word), None
                unknown += field is None
                if unknown > MAX_UNKNOWN:
                    raise IRError(f"{refusal}: more than {MAX_UNKNOWN} values are of unknown fields")
            if group == "opening":
                entered += len(kinds) == 1
                kinds.append(field)
                messages += 1
                if messages > max_messages or entered > most_entered:
                    most = max_messages if messages > max_messages else most_entered
                    raise IRError(f"the data holds more than {most} messages; that many are not read")
                if len(kinds) > MAX_DEPTH + 1:
                    raise IRError(f"{refusal}: its messages nest more than {MAX_DEPTH} deep; that deep is not read")
            elif group == "closing" and len(kinds) > 1:
                field = kinds.pop()


class Budget:
    """Parses the messages of one file, up to a number."""

    def __init__(self, schema: Schema, max_messages: int) -> None:
        self._schema, self._most, self._left = schema, max_messages, max_messages

    def parse(self, kind: str, data: bytes) -> Any:
        """The message of a kind that bytes hold."""
        self._left -= 1
        if self._left < 0:
            raise IRError(f"the data holds more than {self._most} messages; that many are not read")
        return self._schema.parse(kind, data)

    def each(self, kind: str, entries: Iterable[bytes]) -> Iterator[Any]:
        """The messages that a field lists."""
        return (self.parse(kind, entry) for entry in entries)


def _classes(table: Table, enums: Mapping[str, Mapping[str, int]], *, deep: bool = False) -> Dict[str, Any]:
    """A message class for each row of a table, in a pool that knows no other; ``deep`` ones hold each other."""
    file = descriptor_pb2.FileDescriptorProto(name="table.proto", package="table", syntax="proto3")
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for label, number in values.items():
            enum.value.add(name=label, number=number)
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for number, declaration in fields.items():
            *labels, kind, field_name = declaration.split()
            field = message.field.add(name=field_name, number=number)
            field.label = field.LABEL_REPEATED if "repeated" in labels else field.LABEL_OPTIONAL
            if "oneof" in labels:
                field.oneof_index = 0
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
            if kind in enums or (deep and kind in table):
                field.type = field.TYPE_ENUM if kind in enums else field.TYPE_MESSAGE
                field.type_name = f".table.{kind}"
            else:
                scalar = "bytes" if kind in table else kind
                field.type = getattr(field, f"TYPE_{scalar.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: _message_class(pool, f"table.{name}") for name in table}


def _message_class(pool: Any, name: str) -> Any:
    descriptor = pool.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and later
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)
