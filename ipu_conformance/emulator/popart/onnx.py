"""A program as ONNX: which of its ops are ONNX's own, and which are PopART's."""

from __future__ import annotations

from dataclasses import replace

from ipu_conformance.ir import files
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import IRError

DOMAIN = "ai.graphcore"


def write(graph: Graph, path: str) -> None:
    """Write a graph as ONNX, with every op that is not as ONNX defines its type marked PopART's.

    Such ops are a Reshape by attribute, or a batch norm that holds statistics in another type than its data.
    """
    ops = tuple(op if _is_onnx(op, graph) else _of_popart(op) for op in graph.ops)
    files.write(replace(graph, ops=ops), path, "onnx")


def _of_popart(op: Op) -> Op:
    return op if "::" in op.type else replace(op, type=f"{DOMAIN}::{op.type}")


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
        # Values matter where they say a shape; those of large weights would only take time.
        initializers={name: data if graph.tensors[name].dtype == "INT64" else None for name, data in held.items()},
        opset=graph.opset,
    )
    try:
        files.dumps(alone, "onnx")
    except IRError:
        return False
    return True
