"""The neutral graph of a network: what three front ends are compared in."""

from ipu_conformance.ir.compare.difference import Difference, diff
from ipu_conformance.ir.compare.isomorphism import Outcome, isomorphic
from ipu_conformance.ir.compare.normal import normal
from ipu_conformance.ir.compare.pattern import Step, match
from ipu_conformance.ir.files import DEFAULT_LIMIT, FORMATS, dumps, format_of, read, write
from ipu_conformance.ir.graph import Graph, Op, in_order
from ipu_conformance.ir.tensor import IRError, Literal, Tensor

__all__ = [
    "DEFAULT_LIMIT",
    "FORMATS",
    "Difference",
    "Graph",
    "IRError",
    "Literal",
    "Op",
    "Outcome",
    "Step",
    "Tensor",
    "diff",
    "dumps",
    "format_of",
    "in_order",
    "isomorphic",
    "match",
    "normal",
    "read",
    "write",
]
