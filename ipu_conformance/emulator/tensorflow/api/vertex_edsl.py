"""Expressions of elements, for ``custom_ops.codelet_expression_op``; here they are tensors."""

from __future__ import annotations

import enum
from typing import Any, Callable

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class


class BaseType(enum.IntEnum):
    """The types of elements."""

    Unknown = 0
    Int16 = 1
    Int32 = 2
    Float16 = 3
    Float32 = 4
    Sequence = 5


def constant(value: Any) -> Any:
    """A number in an expression."""
    return tf.constant(value)


def condition(pred: Any, a: Any, b: Any) -> Any:
    """``a`` where the predicate holds, ``b`` elsewhere."""
    return tf.where(pred, a, b)


def let(expr: Any, f: Callable[[Any], Any]) -> Any:
    """``f`` of an expression that is computed once."""
    return f(expr)


_WHY = "expressions are turned into code for Poplar by the vendor's compiler"
_CLASSES = {
    "BinaryExpr": ("op, lhs, rhs", {"lower": "source"}),
    "BinaryFunctionExpr": ("op, lhs, rhs", {"lower": "source"}),
    "Conditional": ("pred, a, b", {"lower": "source"}),
    "ConstantVertexExpr": ("val", {"lower": "source"}),
    "DefaultNameSource": ("", {"GetNextName": ""}),
    "Float16": ("", {}),
    "Float32": ("", {}),
    "Int16": ("", {}),
    "Int32": ("", {}),
    "LetVertexExpr": ("expr, f", {"lower": "source"}),
    "PlaceholderVertexExpr": ("name, type", {"lower": "source"}),
    "Sequence": ("element_type", {"getElementType": ""}),
    "Type": ("type", {"getElementType": "", "getType": ""}),
    "UnaryFunctionExpr": ("op, lhs", {"lower": "source"}),
    "Unknown": ("", {}),
    "VertexExpression": ("type", {"getType": "", "lower": "source"}),
}
globals().update({name: _unavailable_class(name, _WHY, *own) for name, own in _CLASSES.items()})

__all__ = ["BaseType", "condition", "constant", "let", *_CLASSES]
