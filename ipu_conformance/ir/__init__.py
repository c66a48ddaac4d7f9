"""The neutral graph of a network: what three front ends are compared in."""

from ipu_conformance.ir.graph import Graph, Op, in_order
from ipu_conformance.ir.tensor import IRError, Literal, Tensor

__all__ = ["Graph", "IRError", "Literal", "Op", "Tensor", "in_order"]
