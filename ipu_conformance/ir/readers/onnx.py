"""Reading ONNX: one graph of plain tensors, taken from the protobuf message without running any of it.

A weight whose values lie in another file, or are missing, is read without values: no other file is ever opened. An
initializer that is also listed among the graph inputs, as older files do, is an initializer alone. What a graph cannot
hold is refused: subgraphs, local functions, sparse tensors, sequences and maps. Symbolic dimensions are unknown ones.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, Iterable, List, Optional, Tuple

from ipu_conformance.ir.formats import json_text
from ipu_conformance.ir.graph import IPU_ATTRIBUTE, STAGE_ATTRIBUTE, Graph, Op
from ipu_conformance.ir.readers.op_writer import most_entries
from ipu_conformance.ir.tensor import Attribute, IRError, Literal, Tensor, merged

CUSTOM_DOMAIN = "ai.graphcore"
"""The domain of the op types that PopART adds to ONNX."""

ONNX_DOMAINS = ("", "ai.onnx")

MAX_ENTRIES = 250_000
"""The most ops, inputs, outputs, described tensors or weights of one graph: five bytes are enough for each."""

KEPT_PREFIX = "__attribute_"
"""Stands before an attribute that the ONNX schema does not know; the checker lets names with two underscores pass."""

WEIGHTS_KEY = "ipu_conformance.weights"
"""The metadata property that lists the weights which are written without values, as graph inputs."""

_INT32_HELD = {
    "INT32": "<u4", "INT16": "<u2", "UINT16": "<u2", "FLOAT16": "<u2", "BFLOAT16": "<u2", "INT8": "u1", "UINT8": "u1",
    "BOOL": "u1", "INT4": "u1", "UINT4": "u1", "FLOAT8E4M3FN": "u1", "FLOAT8E4M3FNUZ": "u1", "FLOAT8E5M2": "u1",
    "FLOAT8E5M2FNUZ": "u1",
}  # fmt: skip
"""The dtypes whose values ONNX may store one by one in int32_data, with the NumPy type that cuts them to size."""

_WIDE = {
    "FLOAT": ("float_data", "<f4"), "COMPLEX64": ("float_data", "<f4"), "DOUBLE": ("double_data", "<f8"),
    "COMPLEX128": ("double_data", "<f8"), "INT64": ("int64_data", "<i8"), "UINT32": ("uint64_data", "<u4"),
    "UINT64": ("uint64_data", "<u8"),
}  # fmt: skip
"""The other dtypes, with the field that ONNX stores their values in."""


def load(data: bytes) -> Graph:
    """The graph that an ONNX file holds."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
        return _graph(model, len(data))
    except (DecodeError, UnicodeDecodeError) as error:
        raise IRError(f"the data is not an ONNX model: {' '.join(str(error).split())[:200]}") from None


def domain_and_name(op_type: str) -> Tuple[str, str]:
    """The domain that a type carries in front, and the name after it; the domain is empty when there is none."""
    domain, _, name = op_type.rpartition("::")
    return domain, name


def _graph(model: Any, size: int) -> Graph:
    graph = model.graph
    most = most_entries(size, 24, MAX_ENTRIES)
    for what, there in (
        ("no graph", not model.HasField("graph")),
        ("local functions", model.functions),
        ("training information", model.training_info),
        ("sparse initializers", graph.sparse_initializer),
    ):
        if there:
            raise IRError(f"the data is an ONNX model with {what}; give one with a plain graph")
    for entries in (graph.node, graph.input, graph.output, graph.value_info, graph.initializer):
        if len(entries) > most:
            raise IRError(f"the data lists {len(entries)} ops or tensors of a kind; at most {most} are read")
    _require_text(model)
    opset = _opset(model)
    ops = [_op(node, f"node {index}", opset) for index, node in enumerate(graph.node)]
    initializers = _initializers(graph)
    known: Dict[str, Tensor] = {}
    for info in chain(graph.input, graph.output, graph.value_info):
        known[info.name] = merged(known.get(info.name), _tensor(info))
    for proto in graph.initializer:
        tensor = Tensor(proto.name, _dtype(proto.data_type), tuple(proto.dims))
        known[proto.name] = merged(known.get(proto.name), tensor)
    inputs = [info.name for info in graph.input if info.name not in initializers]
    weights = _weights(model, inputs)
    inputs = [name for name in inputs if name not in weights]
    initializers.update(weights)
    used = dict.fromkeys((*inputs, *initializers, *(name for op in ops for name in op.outputs if name)))
    return Graph(
        name=graph.name,
        ops=ops,
        inputs=inputs,
        outputs=[info.name for info in graph.output],
        tensors=[known.get(name) or Tensor(name) for name in used],
        initializers=initializers,
        opset=opset,
    )


def _require_text(model: Any) -> None:
    """Refuse names that are not UTF-8: the protobuf library hands them out as bytes."""
    waiting = [model]
    while waiting:
        for field, value in waiting.pop().ListFields():
            # protobuf 6 deprecates the label for is_repeated, which protobuf 4 does not have
            repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
            values = value if repeated else (value,)
            if field.type == field.TYPE_MESSAGE:
                waiting.extend(values)
            elif field.type == field.TYPE_STRING and any(isinstance(text, bytes) for text in values):
                raise IRError(f"the data is not an ONNX model: {field.full_name} holds bytes that are not UTF-8 text")


def _opset(model: Any) -> int:
    versions = [entry.version for entry in model.opset_import if entry.domain in ONNX_DOMAINS]
    if len(versions) != 1:
        raise IRError(f"the data is an ONNX model that imports {len(versions)} ONNX opsets; it should import one")
    version: int = versions[0]
    return version


def _op(node: Any, what: str, opset: int) -> Op:
    attributes: Dict[str, Attribute] = {}
    for proto in node.attribute:
        name = proto.name[len(KEPT_PREFIX) :] if proto.name.startswith(KEPT_PREFIX) else proto.name
        if name in attributes:
            raise IRError(f"{what} has the attribute {name[:80]!r} twice")
        attributes[name] = _attribute(proto, f"attribute {name[:80]!r} of {what}")
    placement: List[Optional[int]] = []
    for name in (IPU_ATTRIBUTE, STAGE_ATTRIBUTE):
        value = attributes.pop(name, None)
        if value is not None and not isinstance(value, int):
            raise IRError(f"attribute {name!r} of {what} is not an integer")
        placement.append(value)
    return Op(
        type=_type(node, what, opset),
        name=node.name,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        attributes=attributes,
        ipu=placement[0],
        stage=placement[1],
    )


def _type(node: Any, what: str, opset: int) -> str:
    from onnx import defs

    name: str = node.op_type
    if "::" in name or name.endswith(":"):
        raise IRError(f"{what} has type {name[:80]!r}; the domain has a field of its own")
    if node.domain in ONNX_DOMAINS or (node.domain == CUSTOM_DOMAIN and not defs.has(name, opset, "")):
        return name
    return f"{node.domain}::{name}"


def _attribute(proto: Any, what: str) -> Attribute:
    import onnx

    kinds = onnx.AttributeProto
    if proto.ref_attr_name:
        raise IRError(f"{what} refers to an attribute of a function; give its value")
    if proto.type == kinds.STRING:
        return _text(proto.s, what)
    if proto.type == kinds.STRINGS:
        return tuple(_text(item, what) for item in proto.strings)
    if proto.type == kinds.TENSOR:
        dtype, shape = _dtype(proto.t.data_type), tuple(proto.t.dims)
        data = _data(proto.t, dtype)
        if data is None:
            raise IRError(f"{what} is a tensor without values in this file; store them inside it")
        return Literal(dtype, shape, data)
    fields = {kinds.INT: "i", kinds.FLOAT: "f", kinds.INTS: "ints", kinds.FLOATS: "floats"}
    if proto.type not in fields:
        raise IRError(f"{what} is not a number, a string, a tensor or a list of numbers or strings")
    value = getattr(proto, fields[proto.type])
    attribute: Attribute = value if isinstance(value, (int, float)) else tuple(value)
    return attribute


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise IRError(f"{what} is a string that is not UTF-8") from None


def _initializers(graph: Any) -> Dict[str, Optional[bytes]]:
    initializers: Dict[str, Optional[bytes]] = {}
    for proto in graph.initializer:
        if proto.name in initializers:
            raise IRError(f"the initializer {proto.name[:80]!r} stands twice in the graph")
        initializers[proto.name] = _data(proto, _dtype(proto.data_type))
    return initializers


def _data(proto: Any, dtype: str) -> Optional[bytes]:
    """The values as little-endian bytes, None where they are elsewhere, missing or text; no file is opened."""
    import numpy as np

    if proto.data_location == proto.EXTERNAL or dtype in ("STRING", "UNDEFINED"):
        return None
    if proto.HasField("raw_data"):
        raw: bytes = proto.raw_data
        return raw
    if dtype in _INT32_HELD:
        return np.array(proto.int32_data, dtype="<i4").astype(_INT32_HELD[dtype]).tobytes() or _nothing(proto)
    field, stored = _WIDE[dtype]
    held = np.array(getattr(proto, field), dtype="<u8" if field == "uint64_data" else stored)
    return held.astype(stored).tobytes() or _nothing(proto)


def _nothing(proto: Any) -> Optional[bytes]:
    return b"" if 0 in proto.dims else None


def _tensor(info: Any) -> Tensor:
    kind = info.type.WhichOneof("value")
    if kind not in (None, "tensor_type"):
        raise IRError(f"{info.name[:80]!r} is not a plain tensor but has {kind}; give a graph of tensors")
    if kind is None:
        return Tensor(info.name)
    held = info.type.tensor_type
    shape = tuple(_dimensions(held.shape.dim)) if held.HasField("shape") else None
    return Tensor(info.name, _dtype(held.elem_type), shape)


def _dimensions(dims: Iterable[Any]) -> Iterable[Optional[int]]:
    for dim in dims:
        yield dim.dim_value if dim.WhichOneof("value") == "dim_value" else None


def _dtype(number: int) -> str:
    import onnx

    try:
        name: str = onnx.TensorProto.DataType.Name(number)
    except ValueError:
        raise IRError(f"the data holds a tensor of type number {number}, which ONNX does not define") from None
    return name


def _weights(model: Any, inputs: List[str]) -> Dict[str, None]:
    """The graph inputs that the metadata calls weights."""
    listed = [entry.value for entry in model.metadata_props if entry.key == WEIGHTS_KEY]
    names: List[str] = []
    for text in listed:
        names.extend(
            json_text.require_string(name, f"an entry of {WEIGHTS_KEY}")
            for name in json_text.require_list(json_text.parse(text.encode("utf-8", "surrogatepass")), WEIGHTS_KEY)
        )
    weights = dict.fromkeys(names)
    if len(weights) < len(names) or not set(inputs).issuperset(weights):
        raise IRError(f"the metadata property {WEIGHTS_KEY} names a tensor twice, or one that is not a graph input")
    return weights
