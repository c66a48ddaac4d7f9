"""The program as ONNX, in the file that ``POPTORCH_EXPORT_PROTO_FILE`` names."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Mapping, Optional

from ipu_conformance.emulator.poptorch.ir import lowering
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.ir import files
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import IRError

VARIABLE = "POPTORCH_EXPORT_PROTO_FILE"
POPART_DOMAIN = "ai.graphcore"


def export(compiled: Any, options: Any, environment: Optional[Mapping[str, str]] = None) -> None:
    """Write the program of a compiled model, if the environment names a file for it."""
    given: Mapping[str, str] = os.environ if environment is None else environment
    path = given.get(VARIABLE)
    if not path:
        return
    try:
        files.write(in_domains(lowering.lower(compiled, options, compiled.training)), path, "onnx")
    except IRError as error:
        raise Error(f"{VARIABLE} is {path}: {error}") from error


def in_domains(graph: Graph) -> Graph:
    """The graph with every op that is not as ONNX defines its type, such as a Reshape by attribute, marked PopART's."""
    return replace(graph, ops=tuple(op if _is_onnx(op, graph) else _of_popart(op) for op in graph.ops))


def _of_popart(op: Op) -> Op:
    return op if "::" in op.type else replace(op, type=f"{POPART_DOMAIN}::{op.type}")


def _is_onnx(op: Op, graph: Graph) -> bool:
    """Whether the op alone is a valid model."""
    inputs = tuple(dict.fromkeys(name for name in op.inputs if name))
    held = {name: graph.initializers[name] for name in inputs if name in graph.initializers}
    alone = Graph(
        name=graph.name,
        ops=(op,),
        inputs=tuple(name for name in inputs if name not in held),
        outputs=tuple(name for name in op.outputs if name),
        tensors={name: graph.tensors[name] for name in (*inputs, *op.outputs) if name},
        initializers=held,
        opset=graph.opset,
    )
    try:
        files.dumps(alone, "onnx")
    except IRError:
        return False
    return True
