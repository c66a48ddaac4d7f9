"""Writing ONNX: a model that passes onnx.checker and opens in Netron.

Op types that ONNX defines in the graph's opset are written to its own domain, all others to PopART's "ai.graphcore".
The placement is written as PopART does, in the node attributes ``__ipu_number`` and ``__pipeline_stage``. Weights
without values become graph inputs, after the others, and the model's metadata lists them.

What the format holds: everything, except that floats in attributes are rounded to float32, an empty list is a list of
integers, a tensor that is neither input nor output loses its shape or dtype when the other is unknown, a domain in
front of a type is dropped where it is implied, and dtype and rank of graph outputs, which ONNX asks for, are
inferred when they are unknown.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Dict, List

from ipu_conformance.ir import shapes
from ipu_conformance.ir.formats import json_text
from ipu_conformance.ir.graph import IPU_ATTRIBUTE, STAGE_ATTRIBUTE, Graph, Op
from ipu_conformance.ir.readers.onnx import CUSTOM_DOMAIN, KEPT_PREFIX, ONNX_DOMAINS, WEIGHTS_KEY, domain_and_name
from ipu_conformance.ir.tensor import UNDEFINED, Attribute, IRError, Literal, Tensor, describe

PRODUCER = "ipu_conformance"
_IR_VERSION = 8
_NEWER_DTYPES = {"FLOAT8E4M3FN": 9, "FLOAT8E4M3FNUZ": 9, "FLOAT8E5M2": 9, "FLOAT8E5M2FNUZ": 9, "INT4": 10, "UINT4": 10}


def dump(graph: Graph) -> bytes:
    """The graph as an ONNX model; a graph that onnx.checker refuses is an error."""
    model = _model(_with_known_outputs(graph))
    _check(model, full=all(tensor.dtype != UNDEFINED for tensor in graph.tensors.values()))
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _with_known_outputs(graph: Graph) -> Graph:
    unknown = [name for name in graph.outputs if not _is_known(graph.tensors[name])]
    if not unknown:
        return graph
    inferred = shapes.completed(graph).tensors
    return replace(graph, tensors={**graph.tensors, **{name: inferred[name] for name in unknown}})


def _is_known(tensor: Tensor) -> bool:
    return tensor.dtype != UNDEFINED and tensor.shape is not None


def _model(graph: Graph) -> Any:
    import onnx

    model = onnx.ModelProto()
    dtypes = {tensor.dtype for tensor in graph.tensors.values()}
    model.ir_version = max([_IR_VERSION, *(version for name, version in _NEWER_DTYPES.items() if name in dtypes)])
    model.producer_name = PRODUCER
    model.graph.name = graph.name
    domains = {""}
    for op in graph.ops:
        node = model.graph.node.add()
        _fill_node(node, op, graph.opset)
        domains.add("" if node.domain in ONNX_DOMAINS else node.domain)
    for domain in sorted(domains):
        model.opset_import.add(domain=domain, version=graph.opset if domain == "" else 1)
    unfilled = [name for name, data in graph.initializers.items() if data is None]
    for name in (*graph.inputs, *unfilled):
        _fill_boundary(model.graph.input.add(), graph.tensors[name])
    for name in graph.outputs:
        _fill_boundary(model.graph.output.add(), graph.tensors[name])
    for name, data in graph.initializers.items():
        if data is not None:
            _fill_tensor(model.graph.initializer.add(), name, graph.tensors[name], data)
    boundary = {*graph.inputs, *graph.outputs, *graph.initializers}
    for tensor in graph.tensors.values():
        if tensor.name not in boundary and _is_known(tensor):
            _fill_info(model.graph.value_info.add(), tensor)
    if unfilled:
        model.metadata_props.add(key=WEIGHTS_KEY, value=json_text.text_of(unfilled))
    return model


def _check(model: Any, *, full: bool) -> None:
    from onnx import checker, shape_inference

    refusals = (checker.ValidationError, shape_inference.InferenceError, ValueError)
    try:
        checker.check_model(model, full_check=full)
    except refusals as error:
        reason = " ".join(str(error).split())[:300]
        raise IRError(f"the graph is not valid ONNX of its opset, as onnx.checker finds: {reason}") from None


def _fill_node(node: Any, op: Op, opset: int) -> None:
    from onnx import defs

    domain, node.op_type = domain_and_name(op.type)
    known = defs.has(node.op_type, opset, "")
    node.domain = domain or ("" if known else CUSTOM_DOMAIN)
    node.name = op.name
    node.input.extend(op.inputs)
    node.output.extend(op.outputs)
    schema = set(defs.get_schema(node.op_type, opset, "").attributes) if known and node.domain in ONNX_DOMAINS else None
    attributes: Dict[str, Attribute] = {}
    for name, value in op.attributes.items():
        foreign = schema is not None and name not in schema
        attributes[KEPT_PREFIX + name if foreign or name.startswith(KEPT_PREFIX) else name] = value
    if op.ipu is not None:
        attributes[IPU_ATTRIBUTE] = op.ipu
    if op.stage is not None:
        attributes[STAGE_ATTRIBUTE] = op.stage
    for name, value in attributes.items():
        _fill_attribute(node.attribute.add(), name, value, op)


def _fill_attribute(proto: Any, name: str, value: Attribute, op: Op) -> None:
    proto.name = name
    if isinstance(value, Literal):
        proto.type = proto.TENSOR
        _fill_tensor(proto.t, "", Tensor("literal", value.dtype, value.shape), value.data)
        return
    items: List[Any] = list(value) if isinstance(value, tuple) else [value]
    one = not isinstance(value, tuple)
    if any(isinstance(item, str) for item in items):
        proto.type = proto.STRING if one else proto.STRINGS
        encoded = [item.encode("utf-8") for item in items]
        if one:
            proto.s = encoded[0]
        else:
            proto.strings.extend(encoded)
    elif any(isinstance(item, float) for item in items):
        proto.type = proto.FLOAT if one else proto.FLOATS
        numbers = [_float32(item, name, op) for item in items]
        if one:
            proto.f = numbers[0]
        else:
            proto.floats.extend(numbers)
    else:
        proto.type = proto.INT if one else proto.INTS
        if one:
            proto.i = items[0]
        else:
            proto.ints.extend(items)


def _float32(value: float, name: str, op: Op) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise IRError(f"attribute {name!r} of {op} is {value!r}; ONNX holds floats of 32 bits") from None
    return rounded


def _fill_tensor(proto: Any, name: str, tensor: Tensor, data: bytes) -> None:
    import onnx

    proto.name = name
    proto.data_type = onnx.TensorProto.DataType.Value(tensor.dtype)
    proto.dims.extend(tensor.shape)
    proto.raw_data = data


def _fill_boundary(info: Any, tensor: Tensor) -> None:
    if not _is_known(tensor):
        raise IRError(f"ONNX asks for dtype and rank of every graph input and output; give those of {describe(tensor)}")
    _fill_info(info, tensor)


def _fill_info(info: Any, tensor: Tensor) -> None:
    import onnx

    info.name = tensor.name
    held = info.type.tensor_type
    held.elem_type = onnx.TensorProto.DataType.Value(tensor.dtype)
    held.shape.SetInParent()
    for dimension in tensor.shape or ():
        dim = held.shape.dim.add()
        if dimension is not None:
            dim.dim_value = dimension
