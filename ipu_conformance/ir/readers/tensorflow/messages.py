"""TensorFlow's graphs as data: nodes, functions, and the values of their attributes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ipu_conformance.ir.readers.op_writer import LARGEST_CONSTANT, packed
from ipu_conformance.ir.readers.tensorflow.schema import DATA_TYPES, Message
from ipu_conformance.ir.tensor import BITS, INT64_MAX, UNDEFINED, IRError, Literal, Shape, count

MAX_NODES = 250_000
"""The most nodes of one graph."""

HALVES = ("FLOAT16", "BFLOAT16")


class Kind(str):
    """An attribute that is a dtype, by its ONNX name, RESOURCE or VARIANT."""


class Called(str):
    """An attribute that is the name of a function."""


@dataclass(frozen=True)
class Dims:
    """An attribute that is a shape; None is an unknown rank."""

    shape: Optional[Shape]


@dataclass(frozen=True)
class Filled:
    """A constant too large to be written out: one number everywhere."""

    dtype: str
    shape: Tuple[int, ...]
    value: float


Constant = Union[Literal, Filled]


@dataclass(frozen=True)
class Node:
    """One node; an input is a name, with ``:n`` for a later output and ``^`` in front for an order alone."""

    name: str
    op: str
    inputs: Tuple[str, ...] = ()
    device: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Function:
    """A function of a graph's library; in its body an input is an argument, or ``node:output:n``."""

    name: str
    arguments: Tuple[str, ...]
    results: Tuple[str, ...]
    """What each result is in the body."""

    nodes: Tuple[Node, ...]
    effects: Tuple[str, ...] = ()
    """Nodes that are executed for what they do."""


@dataclass(frozen=True)
class Document:
    """A graph file: nodes, the library, and outputs if the file names any."""

    nodes: Tuple[Node, ...]
    functions: Mapping[str, Function]
    outputs: Tuple[str, ...] = ()


def document(tree: Message, outputs: Sequence[str] = ()) -> Document:
    """What the tree of a GraphDef says."""
    nodes = _nodes(tree.get("node", ()))
    functions: Dict[str, Function] = {}
    total = len(nodes)
    for library in tree.get("library", ()):
        for message in library.get("function", ()):
            function = _function(message)
            functions[function.name] = function
            total += len(function.nodes)
    if total > MAX_NODES:
        raise IRError(f"the graph has {total} nodes; at most {MAX_NODES} are read")
    return Document(nodes, functions, tuple(outputs))


def saved_model(tree: Message) -> Document:
    """What the tree of a SavedModel says: its first graph, and the outputs of the signature that is served."""
    graphs = tree.get("meta_graphs", ())
    if not graphs or not graphs[0].get("graph_def"):
        raise IRError("the data is not a SavedModel of TensorFlow: it has no graph")
    signatures = {_text(entry, "key"): entry for entry in graphs[0].get("signature_def", ())}
    names = ["serving_default", *(name for name in sorted(signatures) if not name.startswith("__"))]
    chosen = next((signatures[name] for name in names if name in signatures), None)
    outputs: List[str] = []
    for value in (chosen or {}).get("value", ())[:1]:
        entries = sorted(value.get("outputs", ()), key=lambda entry: _text(entry, "key"))
        outputs = [_text(info, "name") for entry in entries for info in entry.get("value", ())[:1]]
    return document(graphs[0]["graph_def"][0], [name for name in outputs if name])


def _text(message: Message, name: str) -> str:
    values = message.get(name, ())
    found: str = values[-1] if values else ""
    return found


def _nodes(messages: Sequence[Message]) -> Tuple[Node, ...]:
    nodes = tuple(
        Node(
            _text(message, "name"),
            _text(message, "op"),
            tuple(message.get("input", ())),
            _text(message, "device"),
            _attributes(message.get("attr", ())),
        )
        for message in messages
    )
    names = {node.name for node in nodes}
    if len(names) < len(nodes):
        raise IRError("the graph has two nodes of one name")
    for node in nodes:
        if not node.name or not node.op:
            raise IRError(f"the graph has a node {node.name[:80]!r} without a name or a type")
    return nodes


def _function(message: Message) -> Function:
    signature = message.get("signature", [{}])[-1]
    returned = {_text(pair, "key"): _text(pair, "value") for pair in message.get("ret", ())}
    results = [_text(argument, "name") for argument in signature.get("output_arg", ())]
    missing = [name for name in results if name not in returned]
    if missing:
        raise IRError(f"function {_text(signature, 'name')!r} does not say what it returns as {missing[0]!r}")
    return Function(
        _text(signature, "name"),
        tuple(_text(argument, "name") for argument in signature.get("input_arg", ())),
        tuple(returned[name] for name in results),
        _nodes(message.get("node_def", ())),
        tuple(_text(pair, "value") for pair in message.get("control_ret", ())),
    )


def _attributes(entries: Sequence[Message]) -> Dict[str, Any]:
    return {_text(entry, "key"): _value(entry.get("value", [{}])[-1]) for entry in entries}


def _value(message: Message) -> Any:
    """The value of an attribute; None where it is of a kind that is not read."""
    for name, read in _READ.items():
        if message.get(name):
            return read(message[name][-1])
    if message.get("list"):
        held = message["list"][-1]
        return tuple(read(item) for name, read in _READ.items() for item in held.get(name, ()))
    return None


def _kind(number: int) -> Kind:
    return Kind(DATA_TYPES.get(number - 100 if number > 100 else number, UNDEFINED))


def shape_of(message: Message) -> Optional[Shape]:
    """A shape: a length below zero is unknown."""
    if message.get("unknown_rank", [False])[-1]:
        return None
    sizes = [dim.get("size", [0])[-1] for dim in message.get("dim", ())]
    return tuple(None if length < 0 or length > INT64_MAX else length for length in sizes)


def _tensor(message: Message) -> Optional[Constant]:
    """A constant; None where it holds text, or a dtype that a graph cannot hold."""
    dtype = _kind(message.get("dtype", [0])[-1])
    shape = shape_of(message.get("tensor_shape", [{}])[-1])
    if dtype not in BITS or not BITS[dtype] or shape is None or None in shape:
        return None
    lengths = tuple(length or 0 for length in shape)
    content = message.get("tensor_content", [b""])[-1]
    if content:
        return Literal(str(dtype), lengths, content)
    values, code = _listed(message, dtype)
    elements = count(lengths) or 0
    if len(values) > max(elements, 1):
        raise IRError(f"a constant of {elements} elements has {len(values)} values")
    if elements > LARGEST_CONSTANT and len(values) <= 1 and not (code and any(values)):
        _bytes(values[:1], dtype, code)
        return Filled(str(dtype), lengths, float(values[0]) if values and not code else 0.0)
    if elements > LARGEST_CONSTANT + len(values):
        raise IRError(f"a constant of {elements} elements has {len(values)} values; a large one is written in full")
    if not elements:
        return Literal(str(dtype), lengths, b"")
    filled = [*values, *[values[-1] if values else 0] * (elements - len(values))]
    return Literal(str(dtype), lengths, _bytes(filled, dtype, code))


def _listed(message: Message, dtype: str) -> Tuple[List[Any], str]:
    """The values that stand one by one, and how half floats, which are stored as their bits, are packed."""
    if dtype in HALVES:
        return [value & 0xFFFF for value in message.get("half_val", ())], "H"
    names = ("float_val", "double_val", "int_val", "int64_val", "bool_val", "uint32_val", "uint64_val")
    return [value for name in names for value in message.get(name, ())], ""


def _bytes(values: Sequence[Any], dtype: str, code: str) -> bytes:
    """Values as little-endian bytes; whole numbers are cut to size, since all but the widest are stored as signed."""
    code = code or {"UINT16": "H", "UINT32": "I", "UINT64": "Q"}.get(dtype, "")
    try:
        if not code:
            return packed(values, dtype)
        mask = 2 ** (BITS[dtype] or 0) - 1
        return struct.pack(f"<{len(values)}{code}", *(int(value) & mask for value in values))
    except (ValueError, OverflowError):
        raise IRError(f"a constant of dtype {dtype} holds what is no number of that dtype") from None


_READ: Mapping[str, Callable[[Any], Any]] = {
    "s": lambda value: value,
    "i": lambda value: value,
    "f": lambda value: value,
    "b": lambda value: value,
    "type": _kind,
    "shape": lambda value: Dims(shape_of(value)),
    "tensor": _tensor,
    "func": lambda value: Called(_text(value, "name")),
}
"""How the kinds of attributes are read."""
