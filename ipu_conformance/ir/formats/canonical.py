"""Canonical JSON: the project's own format, one line per tensor and per op, made for golden files and ``diff``.

It holds every graph completely. Keys and tensors are sorted, ops keep their order, and the same graph is always the
same bytes.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Dict, Iterable, Optional

from ipu_conformance.ir.formats import json_text
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Attribute, IRError, Literal, Scalar, Tensor

FORMAT = "ipu_conformance.ir"
VERSION = 1
_KEYS = ("format", "initializers", "inputs", "name", "ops", "opset", "outputs", "tensors", "version")
_OP_KEYS = ("attributes", "inputs", "ipu", "name", "outputs", "stage", "type")


def dump(graph: Graph) -> bytes:
    """The graph as canonical JSON."""
    line = json_text.text_of
    initializers = (
        f"{line(name)}: {line(None if data is None else _base64(data))}"
        for name, data in sorted(graph.initializers.items())
    )
    tensors = (f"{line(t.name)}: {line([t.dtype, t.shape])}" for _, t in sorted(graph.tensors.items()))
    lines = [
        f'{{"format": {line(FORMAT)}, "version": {VERSION},',
        f'"name": {line(graph.name)}, "opset": {graph.opset},',
        f'"inputs": {line(graph.inputs)},',
        f'"outputs": {line(graph.outputs)},',
        f'"initializers": {{{_block(initializers)}}},',
        f'"tensors": {{{_block(tensors)}}},',
        f'"ops": [{_block(line(_op_fields(op)) for op in graph.ops)}]}}',
        "",
    ]
    return "\n".join(lines).encode("utf-8")


def load(document: Any) -> Graph:
    """The graph that parsed canonical JSON holds."""
    top = json_text.require_object(document, "the document")
    _require_keys(top, _KEYS, "the document")
    if top["format"] != FORMAT or type(top["version"]) is not int or top["version"] != VERSION:
        raise IRError(f"the document is not of format {FORMAT!r}, version {VERSION}; no other is read")
    initializers = json_text.require_object(top["initializers"], "'initializers'")
    return Graph(
        name=top["name"],
        ops=[_op(fields, index) for index, fields in enumerate(json_text.require_list(top["ops"], "'ops'"))],
        inputs=json_text.require_list(top["inputs"], "'inputs'"),
        outputs=json_text.require_list(top["outputs"], "'outputs'"),
        tensors=[_tensor(*item) for item in json_text.require_object(top["tensors"], "'tensors'").items()],
        initializers={name: _data(text, name) for name, text in initializers.items()},
        opset=top["opset"],
    )


def _block(lines: Iterable[str]) -> str:
    inside = ",\n".join(lines)
    return f"\n{inside}\n" if inside else ""


def _op_fields(op: Op) -> Dict[str, Any]:
    fields: Dict[str, Any] = {"type": op.type, "name": op.name, "inputs": op.inputs, "outputs": op.outputs}
    if op.ipu is not None:
        fields["ipu"] = op.ipu
    if op.stage is not None:
        fields["stage"] = op.stage
    if op.attributes:
        fields["attributes"] = {name: _attribute_json(value) for name, value in op.attributes.items()}
    return fields


def _op(fields: Any, index: int) -> Op:
    what = f"op {index}"
    fields = json_text.require_object(fields, what)
    _require_keys(fields, _OP_KEYS, what, optional=("attributes", "ipu", "stage"))
    attributes = json_text.require_object(fields.get("attributes", {}), f"'attributes' of {what}")
    return Op(
        type=fields["type"],
        name=fields["name"],
        inputs=tuple(json_text.require_list(fields["inputs"], f"'inputs' of {what}")),
        outputs=tuple(json_text.require_list(fields["outputs"], f"'outputs' of {what}")),
        attributes={name: _attribute(value, f"attribute {name!r} of {what}") for name, value in attributes.items()},
        ipu=fields.get("ipu"),
        stage=fields.get("stage"),
    )


def _tensor(name: str, fields: Any) -> Tensor:
    if not isinstance(fields, list) or len(fields) != 2:
        raise IRError(f"tensor {name!r} is not a list of a dtype and a shape")
    dtype, shape = fields
    if shape is not None:
        shape = tuple(json_text.require_list(shape, f"the shape of tensor {name!r}"))
    return Tensor(name, dtype, shape)


def _attribute_json(value: Attribute) -> Any:
    if isinstance(value, Literal):
        return {"dtype": value.dtype, "shape": value.shape, "data": _base64(value.data)}
    return [_scalar_json(item) for item in value] if isinstance(value, tuple) else _scalar_json(value)


def _scalar_json(value: Scalar) -> Any:
    # JSON has no infinity.
    return {"float": str(value)} if isinstance(value, float) and math.isinf(value) else value


def _attribute(value: Any, what: str) -> Attribute:
    if isinstance(value, dict) and "data" in value:
        _require_keys(value, ("data", "dtype", "shape"), what)
        data = _data(value["data"], what)
        if data is None:
            raise IRError(f"{what} has no values; give them as base64")
        return Literal(value["dtype"], tuple(json_text.require_list(value["shape"], f"the shape of {what}")), data)
    return tuple(_scalar(item, what) for item in value) if isinstance(value, list) else _scalar(value, what)


def _scalar(value: Any, what: str) -> Scalar:
    if isinstance(value, dict):
        _require_keys(value, ("float",), what)
        if value["float"] not in ("inf", "-inf"):
            raise IRError(f"{what} has a float that is neither 'inf' nor '-inf'; write it as a number")
        return float(value["float"])
    if type(value) not in (int, float, str):
        raise IRError(f"{what} is not a number, a string, a list of these or a tensor")
    scalar: Scalar = value
    return scalar


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _data(text: Any, what: str) -> Optional[bytes]:
    if text is None:
        return None
    try:
        return base64.b64decode(json_text.require_string(text, f"the data of {what!r}"), validate=True)
    except ValueError:
        raise IRError(f"the data of {what!r} is not base64") from None


def _require_keys(fields: Dict[str, Any], known: Iterable[str], what: str, optional: Iterable[str] = ()) -> None:
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise IRError(f"{what} has the unknown key {unknown[0][:80]!r}")
    missing = sorted(set(known) - set(optional) - set(fields))
    if missing:
        raise IRError(f"{what} lacks the key {missing[0]!r}")
