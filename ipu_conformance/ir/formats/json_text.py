"""Strict JSON from untrusted bytes: what Python's parser would accept, crash on or take forever for is refused."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Tuple

from ipu_conformance.ir.tensor import IRError

MAX_DEPTH = 16
"""Deeper nesting than any of our formats has; Python's own parser recurses once per level."""

MAX_INTEGER_CHARACTERS = 20
"""A sign and the 19 digits of an int64; parsing an integer takes time quadratic in its digits."""

_STRING = re.compile(rb'"[^"]*"?')
_NOT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))


def parse(data: bytes) -> Any:
    """The value that JSON text holds, with duplicate keys, NaN, huge integers and deep nesting refused."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise IRError(f"the text is not UTF-8: byte {error.start} does not fit") from None
    _require_shallow(data)
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=float, parse_constant=_constant
        )
    except ValueError as error:
        raise IRError(f"the text is not JSON: {error}") from None


def text_of(value: Any) -> str:
    """A value as JSON on one line, the same text for the same value; strings stay readable."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def require_object(value: Any, what: str) -> Dict[str, Any]:
    """The value as a mapping, or an error that names the place."""
    if not isinstance(value, dict):
        raise IRError(f"{what} is {_kind(value)}; it should be an object")
    return value


def require_list(value: Any, what: str) -> List[Any]:
    """The value as a list, or an error that names the place."""
    if not isinstance(value, list):
        raise IRError(f"{what} is {_kind(value)}; it should be a list")
    return value


def require_string(value: Any, what: str) -> str:
    """The value as a string, or an error that names the place."""
    if not isinstance(value, str):
        raise IRError(f"{what} is {_kind(value)}; it should be a string")
    return value


def _require_shallow(data: bytes) -> None:
    # Without strings and everything else but brackets, balanced text loses one level of nesting per round.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = _STRING.sub(b"", bare).translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        left = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(left) == len(brackets):
            break
        brackets = left
    if brackets:
        raise IRError(f"the text is not JSON: its brackets do not match, or nest deeper than {MAX_DEPTH} levels")


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise IRError(f"the key {key[:80]!r} stands twice in one object; which one is meant is not known")
            seen.add(key)
    return fields


def _integer(text: str) -> int:
    if len(text) > MAX_INTEGER_CHARACTERS:
        raise IRError(f"an integer has {len(text)} digits; at most 64 bits are held")
    return int(text)


def _constant(text: str) -> Any:
    raise IRError(f"{text} is not JSON; leave the value out")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
