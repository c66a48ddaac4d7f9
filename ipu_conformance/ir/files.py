"""Reading and writing graph files: which format a file has, how large it may be, and never half a file."""

from __future__ import annotations

import importlib
import os
import re
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple, Union

from ipu_conformance.atomic_write import replacing
from ipu_conformance.ir.formats import canonical, json_text, popart
from ipu_conformance.ir.graph import Graph
from ipu_conformance.ir.tensor import IRError
from ipu_conformance.ir.writers import dot

DEFAULT_LIMIT = 64 * 2**20
"""The largest file that is read unless another limit is given.

Parsing an ordinary file takes some ten times its size in memory, and one made to take much takes eighty times.
"""

Source = Union[str, "os.PathLike[str]", bytes]


class Format(NamedTuple):
    """A row of the table of formats."""

    extensions: Tuple[str, ...]
    dump: Optional[Callable[[Graph], bytes]]
    load: Optional[Callable[[bytes], Graph]]


def _lazy(module: str, function: str) -> Callable[[Any], Any]:
    """A function of a module here that is imported when it is called: other formats do not pay for onnx or protobuf."""

    def call(argument: Any) -> Any:
        return getattr(importlib.import_module(f"ipu_conformance.ir.{module}"), function)(argument)

    return call


_TF_TEXT = re.compile(rb"(?:node|library|versions|saved_model_schema_version|meta_graphs)[ \t\r\n]*[:{<]")
_BLANK = re.compile(rb"\s+|#[^\n]*\n")
_TF_SAVED_MODEL = re.compile(rb"\x08\x01\x12[\x80-\xff]*[\x00-\x7f]\n")
"""The version of a SavedModel, its first graph, and the description of that."""

_PADDLE = re.compile(rb"\n[\x80-\xff]{0,9}[\x00-\x7f]\x08\x00")
"""The first block of a saved program, which begins with its number."""


def _is_tensorflow_text(data: bytes) -> bool:
    """Whether bytes begin like a graph in text, after blanks and comments.

    One expression for all of them would remember each blank, to try again without it.
    """
    place = 0
    blank = _BLANK.match(data)
    while blank:
        place = blank.end()
        blank = _BLANK.match(data, place)
    return _TF_TEXT.match(data, place) is not None


def _load_tensorflow(data: bytes) -> Graph:
    from ipu_conformance.ir.readers.tensorflow import graph as tf_graph

    return tf_graph.load_text(data) if _is_tensorflow_text(data) else tf_graph.load(data)


FORMATS: Mapping[str, Format] = {
    "popart": Format((".popart.json", ".popart"), popart.dump, lambda data: popart.load(json_text.parse(data))),
    "json": Format((".json",), canonical.dump, lambda data: canonical.load(json_text.parse(data))),
    "onnx": Format((".onnx",), _lazy("writers.onnx", "dump"), _lazy("readers.onnx", "load")),
    "paddle": Format((".pdmodel", "__model__"), None, _lazy("readers.paddle.program", "load")),
    "tensorflow": Format((".pb", ".pbtxt"), None, _load_tensorflow),
    "hlo": Format((".hlo",), None, _lazy("readers.hlo.module", "load")),
    "dot": Format((".dot", ".gv"), dot.dump, None),
    "svg": Format((".svg",), dot.dump_svg, None),
}
"""Every format by its name; the first whose extension fits a path is meant."""

_BY_EXTENSION = ("tensorflow", "hlo")
"""The formats that are read by a path's extension too, since the content does not always show them."""


def read(source: Source, format: Optional[str] = None, *, limit: int = DEFAULT_LIMIT) -> Graph:
    """The graph in a file, or in bytes; without a format, the content decides.

    More than ``limit`` bytes are refused before anything is parsed.
    """
    if format is not None:
        _row(format, reading=True)
    if isinstance(source, bytes):
        where, data = "the data", source
    else:
        where, data = os.fspath(source), _bytes_of(source, limit)
        shown = (name for name in _BY_EXTENSION if where.lower().endswith(FORMATS[name].extensions))
        format = format or next(shown, None)
    if len(data) > limit:
        raise IRError(f"{where}: more than {limit} bytes; give a higher limit if that is meant")
    try:
        return loads(data, format)
    except IRError as error:
        raise IRError(f"{where}: {error}") from None


def loads(data: bytes, format: Optional[str] = None) -> Graph:
    """The graph in bytes of a format, or of the one that the content shows."""
    if format is not None:
        load = _row(format, reading=True).load
        assert load is not None
        return load(data)
    start = data[:4096].lstrip()
    if not start:
        raise IRError(f"it is empty; give a graph as {', '.join(n for n, row in FORMATS.items() if row.load)}")
    if not start.startswith(b"{"):
        return loads(data, _format_of_content(data, start))
    document: Any = json_text.parse(data)
    return popart.load(document) if popart.MAINGRAPH in document else canonical.load(document)


def _format_of_content(data: bytes, start: bytes) -> str:
    """The format of bytes that are not JSON, by how they begin."""
    if start.startswith(b"HloModule"):
        return "hlo"
    if _is_tensorflow_text(data[:4096]) or _TF_SAVED_MODEL.match(data):
        return "tensorflow"
    if data.startswith(b"\n"):  # no ONNX model begins so
        return "paddle" if _PADDLE.match(data) else "tensorflow"
    return "onnx"


def write(graph: Graph, path: Union[str, os.PathLike[str]], format: Optional[str] = None) -> None:
    """Write the graph to a file whole or not at all; without a format, the path's extension decides."""
    name = os.fspath(path)
    data = dumps(graph, format if format is not None else format_of(name))
    try:
        _replace(os.path.realpath(name), data)
    except OSError as error:
        raise IRError(f"{name} cannot be written: {error.strerror or error}") from None


def dumps(graph: Graph, format: str) -> bytes:
    """The graph as the bytes of a format."""
    dump = _row(format).dump
    assert dump is not None
    return dump(graph)


def format_of(path: str) -> str:
    """The format that a path's extension stands for."""
    for name, row in FORMATS.items():
        if path.lower().endswith(row.extensions):
            return name
    known = ", ".join(extension for row in FORMATS.values() for extension in row.extensions)
    raise IRError(f"{path} has none of the extensions {known}; use one, or name the format")


def _row(format: str, *, reading: bool = False) -> Format:
    allowed: Dict[str, Format] = {name: row for name, row in FORMATS.items() if (row.load if reading else row.dump)}
    if format not in allowed:
        verb = "read" if reading else "written"
        raise IRError(f"graphs are not {verb} as {format!r}; use one of {', '.join(allowed)}")
    return allowed[format]


def _bytes_of(path: Union[str, os.PathLike[str]], limit: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise IRError(f"{os.fspath(path)} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _replace(path: str, data: bytes) -> None:
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as device:  # a pipe or /dev/stdout has no old content to protect
            device.write(data)
        return
    with replacing(path) as part, part.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
