"""Operations of the user: expressions are evaluated, compiled ones need the vendor's SDK."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

__all__ = ["codelet_expression_op", "cpu_user_op", "precompiled_user_op"]

precompiled_user_op = _unavailable_function("precompiled_user_op", "its library is compiled for Poplar")
cpu_user_op = _unavailable_function("cpu_user_op", "its library is called by the vendor's runtime")


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> Any:
    """The elementwise expression of the tensors: an expression in Python, of as many arguments."""
    if not callable(vertex_expression):
        raise TypeError(f"`vertex_expression` is {vertex_expression!r}; pass a function of the tensors' elements.")
    return tf.convert_to_tensor(vertex_expression(*(tf.convert_to_tensor(value) for value in args)))
