"""Operations of the user: expressions are evaluated, compiled ones need the vendor's SDK."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

__all__ = ["codelet_expression_op", "cpu_user_operation", "precompiled_user_op"]

_REST = "separate_gradients=False, inputs_with_gradients=None, attributes=None, gradient_attributes=None"
precompiled_user_op = _unavailable_function(
    "precompiled_user_op",
    "its library is compiled for Poplar",
    f"inputs, library_path, gp_path='', outs=None, name='UserOp', op_name='Build', {_REST}",
)
cpu_user_operation = _unavailable_function(
    "cpu_user_operation",
    "its library is called by the vendor's runtime",
    f"inputs, library_path, outs=None, name='UserOp', op_name='Callback', {_REST}",
)


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> Any:
    """The elementwise expression of the tensors: an expression in Python, of as many arguments."""
    if not callable(vertex_expression):
        raise TypeError(f"`vertex_expression` is {vertex_expression!r}; pass a function of the tensors' elements.")
    return tf.convert_to_tensor(vertex_expression(*(tf.convert_to_tensor(value) for value in args)))
