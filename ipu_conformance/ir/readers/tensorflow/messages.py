"""TensorFlow's graphs as data: nodes, functions, and the values of their attributes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ipu_conformance.ir.readers.op_writer import LARGEST_CONSTANT, most_entries, packed
from ipu_conformance.ir.readers.protobuf import Budget, Schema
from ipu_conformance.ir.tensor import BITS, UNDEFINED, IRError, Literal, Shape, count

MAX_NODES = 250_000
"""The most nodes of one graph."""

MAX_MESSAGES = 2_000_000
"""The most messages, of all kinds, in one file."""

HALVES = ("FLOAT16", "BFLOAT16")

_TYPES = (
    "INVALID", "FLOAT", "DOUBLE", "INT32", "UINT8", "INT16", "INT8", "STRING", "COMPLEX64", "INT64", "BOOL",
    "QINT8", "QUINT8", "QINT32", "BFLOAT16", "QINT16", "QUINT16", "UINT16", "COMPLEX128", "HALF", "RESOURCE",
    "VARIANT", "UINT32", "UINT64", "FLOAT8_E5M2", "FLOAT8_E4M3FN", "FLOAT8_E4M3FNUZ", "FLOAT8_E4M3B11FNUZ",
    "FLOAT8_E5M2FNUZ", "INT4", "UINT4", "INT2", "UINT2", "FLOAT4_E2M1FN",
)  # fmt: skip
"""TensorFlow's names of dtypes, in the order of their numbers; a reference to a variable has 100 more."""

_ENUMS = {
    "DataType": {
        **{f"DT_{name}": number for number, name in enumerate(_TYPES)},
        **{f"DT_{name}_REF": number + 100 for number, name in enumerate(_TYPES) if number},
    }
}

GRAPH = Schema(
    "a graph of TensorFlow",
    {
        "SavedModel": {1: "int64 saved_model_schema_version", 2: "repeated MetaGraph meta_graphs"},
        "MetaGraph": {2: "GraphDef graph_def", 5: "repeated SignatureEntry signature_def"},
        "SignatureEntry": {1: "string key", 2: "SignatureDef value"},
        "SignatureDef": {2: "repeated OutputEntry outputs"},
        "OutputEntry": {1: "string key", 2: "TensorInfo value"},
        "TensorInfo": {1: "string name"},
        "GraphDef": {1: "repeated NodeDef node", 2: "repeated Library library"},
        "NodeDef": {
            1: "string name", 2: "string op", 3: "repeated string input", 4: "string device", 5: "repeated Attr attr",
        },
        "Attr": {1: "string key", 2: "AttrValue value"},
        "AttrValue": {
            1: "oneof List list", 2: "oneof bytes s", 3: "oneof int64 i", 4: "oneof float f", 5: "oneof bool b",
            6: "oneof DataType type", 7: "oneof Shape shape", 8: "oneof Tensor tensor", 10: "oneof Func func",
        },
        "List": {
            2: "repeated bytes s", 3: "repeated int64 i", 4: "repeated float f", 5: "repeated bool b",
            6: "repeated DataType type", 7: "repeated Shape shape", 8: "repeated Tensor tensor",
            9: "repeated Func func",
        },
        "Func": {1: "string name"},
        "Shape": {2: "repeated Dim dim", 3: "bool unknown_rank"},
        "Dim": {1: "int64 size"},
        "Tensor": {
            1: "DataType dtype", 2: "Shape tensor_shape", 4: "bytes tensor_content", 5: "repeated float float_val",
            6: "repeated double double_val", 7: "repeated int64 int_val", 10: "repeated int64 int64_val",
            11: "repeated bool bool_val", 13: "repeated int64 half_val", 16: "repeated int64 uint32_val",
            17: "repeated uint64 uint64_val",
        },
        "Library": {1: "repeated Function function"},
        "Function": {
            1: "Signature signature", 3: "repeated NodeDef node_def", 4: "repeated Pair ret",
            6: "repeated Pair control_ret",
        },
        "Signature": {1: "string name", 2: "repeated Arg input_arg", 3: "repeated Arg output_arg"},
        "Arg": {1: "string name"},
        "Pair": {1: "string key", 2: "string value"},
        "OpSharding": {1: "int64 type", 4: "repeated int64 tile_assignment_devices"},
    },
    _ENUMS,
)  # fmt: skip
"""The fields that are read, by the names that TensorFlow gives them."""

_SAVED_MODEL = b"saved_model_schema_version"


class DType(str):
    """An attribute that is a dtype, by its ONNX name, RESOURCE or VARIANT."""


class FunctionName(str):
    """An attribute that is the name of a function."""


@dataclass(frozen=True)
class ShapeAttribute:
    """An attribute that is a shape; None is an unknown rank."""

    shape: Optional[Shape]


@dataclass(frozen=True)
class FilledConstant:
    """A constant too large to be written out: one number everywhere."""

    dtype: str
    shape: Tuple[int, ...]
    value: float


Constant = Union[Literal, FilledConstant]


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


def parse(data: bytes) -> Document:
    """The content of a binary file: a GraphDef or a SavedModel."""
    return _saved_model(data) if data.startswith(b"\x08\x01\x12") else _Parser().document(data)


def parse_text(data: bytes) -> Document:
    """The content of a text file: a GraphDef or a SavedModel."""
    if _SAVED_MODEL in data[:4096]:
        return _saved_model(GRAPH.encode("SavedModel", data, MAX_MESSAGES))
    return _Parser().document(GRAPH.encode("GraphDef", data, MAX_MESSAGES))


def dtype_of(number: int) -> str:
    """A dtype that TensorFlow writes as a number: its ONNX name, RESOURCE, VARIANT or UNDEFINED."""
    number -= 100 if number > 100 else 0
    name = _TYPES[number] if 0 < number < len(_TYPES) else UNDEFINED
    name = "FLOAT16" if name == "HALF" else name.replace("8_E", "8E")
    return name if name in BITS or name in ("RESOURCE", "VARIANT") else UNDEFINED


def _saved_model(data: bytes) -> Document:
    """The first graph of a SavedModel, and the outputs of the signature that is served."""
    parser = _Parser()
    graphs = parser.parse("SavedModel", data).meta_graphs
    graph = parser.parse("MetaGraph", graphs[0] if graphs else b"")
    if not graph.graph_def:
        raise IRError("the data is not a SavedModel of TensorFlow: it has no graph")
    signatures = {entry.key: entry.value for entry in parser.each("SignatureEntry", graph.signature_def)}
    names = ["serving_default", *(name for name in sorted(signatures) if not name.startswith("__"))]
    served = next((signatures[name] for name in names if name in signatures), b"")
    outputs = parser.each("OutputEntry", parser.parse("SignatureDef", served).outputs)
    infos = [parser.parse("TensorInfo", entry.value) for entry in sorted(outputs, key=lambda entry: entry.key)]
    return parser.document(graph.graph_def, [info.name for info in infos if info.name])


class _Parser(Budget):
    """Turns the messages of one file into nodes and functions."""

    def __init__(self) -> None:
        super().__init__(GRAPH, MAX_MESSAGES)
        self._read: Mapping[str, Callable[[Any], Any]] = {
            "s": lambda value: value,
            "i": lambda value: value,
            "f": lambda value: value,
            "b": lambda value: value,
            "type": lambda value: DType(dtype_of(value)),
            "shape": lambda value: ShapeAttribute(self.shape(value)),
            "tensor": self.tensor,
            "func": lambda value: FunctionName(self.parse("Func", value).name),
        }
        """How the kinds of attributes are read."""

    def document(self, data: bytes, outputs: Sequence[str] = ()) -> Document:
        """The content of a GraphDef."""
        graph = self.parse("GraphDef", data)
        nodes = self.nodes(graph.node)
        libraries = self.each("Library", graph.library)
        listed = [self.function(entry) for library in libraries for entry in library.function]
        total = len(nodes) + sum(len(function.nodes) for function in listed)
        most = most_entries(len(data), 64, MAX_NODES)
        if total > most:
            raise IRError(f"the graph has {total} nodes in {len(data)} bytes; at most {most} are read")
        return Document(nodes, {function.name: function for function in listed}, tuple(outputs))

    def nodes(self, entries: Sequence[bytes]) -> Tuple[Node, ...]:
        """The nodes of a graph or of a function's body."""
        nodes = tuple(
            Node(node.name, node.op, tuple(node.input), node.device, self.attributes(node.attr))
            for node in self.each("NodeDef", entries)
        )
        if len({node.name for node in nodes}) < len(nodes):
            raise IRError("the graph has two nodes of one name")
        for node in nodes:
            if not node.name or not node.op:
                raise IRError(f"the graph has a node {node.name[:80]!r} without a name or a type")
        return nodes

    def function(self, data: bytes) -> Function:
        """A function of the library."""
        function = self.parse("Function", data)
        signature = self.parse("Signature", function.signature)
        returned = {pair.key: pair.value for pair in self.each("Pair", function.ret)}
        results = [argument.name for argument in self.each("Arg", signature.output_arg)]
        missing = [name for name in results if name not in returned]
        if missing:
            raise IRError(f"function {signature.name!r} returns nothing as {missing[0]!r}")
        return Function(
            signature.name,
            tuple(argument.name for argument in self.each("Arg", signature.input_arg)),
            tuple(returned[name] for name in results),
            self.nodes(function.node_def),
            tuple(pair.value for pair in self.each("Pair", function.control_ret)),
        )

    def attributes(self, entries: Sequence[bytes]) -> Dict[str, Any]:
        """The attributes of a node; None where one is of a kind that is not read."""
        return {entry.key: self.value(entry.value) for entry in self.each("Attr", entries)}

    def value(self, data: bytes) -> Any:
        """The value of an attribute."""
        message = self.parse("AttrValue", data)
        kind = message.WhichOneof("value")
        if kind == "list":
            listed = self.parse("List", message.list)
            return tuple(read(item) for name, read in self._read.items() for item in getattr(listed, name))
        return self._read[kind](getattr(message, kind)) if kind else None

    def shape(self, data: bytes) -> Optional[Shape]:
        """A shape: a length below zero is unknown."""
        message = self.parse("Shape", data)
        if message.unknown_rank:
            return None
        return tuple(None if dim.size < 0 else dim.size for dim in self.each("Dim", message.dim))

    def tensor(self, data: bytes) -> Optional[Constant]:
        """A constant; None where it holds text, or a dtype that a graph cannot hold."""
        message = self.parse("Tensor", data)
        dtype, shape = dtype_of(message.dtype), self.shape(message.tensor_shape)
        if not BITS.get(dtype) or shape is None or None in shape:
            return None
        lengths = tuple(length or 0 for length in shape)
        if message.tensor_content:
            return Literal(dtype, lengths, message.tensor_content)
        return _listed_constant(message, dtype, lengths)


def _listed_constant(message: Any, dtype: str, lengths: Tuple[int, ...]) -> Constant:
    """A constant whose values stand one by one; the last one is repeated as often as the shape asks for."""
    values, code = _listed(message, dtype)
    elements = count(lengths) or 0
    if len(values) > max(elements, 1):
        raise IRError(f"a constant of {elements} elements has {len(values)} values")
    if elements > LARGEST_CONSTANT and len(values) <= 1 and not (code and any(values)):
        _bytes(values[:1], dtype, code)
        return FilledConstant(dtype, lengths, float(values[0]) if values and not code else 0.0)
    if elements > LARGEST_CONSTANT + len(values):
        raise IRError(f"a constant of {elements} elements has {len(values)} values; a large one is written in full")
    if not elements:
        return Literal(dtype, lengths, b"")
    filled = [*values, *[values[-1] if values else 0] * (elements - len(values))]
    return Literal(dtype, lengths, _bytes(filled, dtype, code))


def _listed(message: Any, dtype: str) -> Tuple[List[Any], str]:
    """The values that stand one by one, and how half floats, which are stored as their bits, are packed."""
    if dtype in HALVES:
        return [value & 0xFFFF for value in message.half_val], "H"
    names = ("float_val", "double_val", "int_val", "int64_val", "bool_val", "uint32_val", "uint64_val")
    return [value for name in names for value in getattr(message, name)], ""


def _bytes(values: Sequence[Any], dtype: str, code: str) -> bytes:
    """Values as little-endian bytes; whole numbers are cut to size, since all but the widest are stored as signed."""
    code = code or {"UINT16": "H", "UINT32": "I", "UINT64": "Q"}.get(dtype, "")
    try:
        if not code:
            return packed(values, dtype)
        mask = 2 ** (BITS[dtype] or 0) - 1
        return struct.pack(f"<{len(values)}{code}", *(int(value) & mask for value in values))
    except (ValueError, OverflowError):
        raise IRError(f"a constant of dtype {dtype} holds a value that is not a number of that dtype") from None
