"""What must hold of a dump before it can mean a computation: every op is known, and reads what is where it is."""

from __future__ import annotations

from typing import Container, Dict

from ipu_conformance.interpreter.calls import FLOATS, ExecutionError, placed
from ipu_conformance.interpreter.updates import CHANGING
from ipu_conformance.ir.graph import Graph, Op

COPY = "IpuCopy"
ONE_TYPE = frozenset(
    ("Add", "Sub", "Mul", "Div", "MatMul", "Gemm", "Conv", "ConvTranspose", "Sum", "Concat", "Relu", "Tanh", "Sigmoid",
     "Softmax", "LogSoftmax", "Nll", "MaxPool", "AveragePool", "Reshape", "Flatten", "Transpose", "Identity",
     "MatMulLhsGrad", "MatMulRhsGrad", "ConvDataGrad", "ConvWeightsGrad", "AddArg0Grad", "AddArg1Grad", "ReluGrad",
     "TanhGrad", "NllGrad", "LogSoftmaxGrad", "TransposeGrad", "ReshapeGrad", "MaxPoolGrad", "AveragePoolGrad")
)  # fmt: skip
"""Ops whose floating-point values, read and made, are of one type: only a Cast changes it."""


def require_known(graph: Graph, known: Container[str], engine: str) -> None:
    """Refuse a graph with an op that an engine does not know."""
    unknown = [op for op in graph.ops if op.type not in known]
    if unknown:
        more = f" ({len(unknown)} ops are not known)" if len(unknown) > 1 else ""
        raise ExecutionError(f"{placed(unknown[0])} is not known to the engine {engine}{more}.")


def require_types(graph: Graph) -> None:
    """Refuse a graph in which values of two floating-point types meet without a Cast."""
    for op in graph.ops:
        if op.type not in ONE_TYPE:
            continue
        types: Dict[str, str] = {}
        for name in (*op.inputs, *op.outputs):
            if name and graph.tensors[name].dtype in FLOATS:
                types.setdefault(graph.tensors[name].dtype, name)
        if len(types) > 1:
            (one, first), (other, second) = list(types.items())[:2]
            raise ExecutionError(f"{placed(op)} has {first!r} in {one} and {second!r} in {other}: nothing casts them.")


def compiled(graph: Graph) -> bool:
    """Is this a program that a compiler has finished, with its copies, or the model that it was given?"""
    return any(op.type == COPY or op.type in CHANGING for op in graph.ops)


def require_places(graph: Graph) -> None:
    """Refuse a compiled program in which an op reads what is on another IPU."""
    homes: Dict[str, int] = {}
    for op in graph.ops if compiled(graph) else ():
        if op.ipu is None:
            continue
        for name in op.inputs:
            # What no op makes is where it is read first.
            if name and homes.setdefault(name, op.ipu) != op.ipu:
                raise ExecutionError(f"{placed(op)} reads {name!r}, which is on IPU {homes[name]}: nothing copies it.")
        homes.update(dict.fromkeys(op.outputs, _target(op)))


def _target(op: Op) -> int:
    return int(str(op.attributes["__destIpu"])) if op.type == COPY and "__destIpu" in op.attributes else op.ipu or 0
