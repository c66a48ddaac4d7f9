"""Products of matrices and lookups in tables that the device computes in pieces."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

_DIMENSIONS = ("a_columns", "a_rows_b_columns", "b_rows")


def serialized_matmul(
    a: Any,
    b: Any,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: Optional[str] = None,
) -> Any:
    """The product of ``a`` [m, k] and ``b`` [k, n], computed in ``serialization_factor`` equal pieces one by one.

    The pieces are cut from m ("a_columns"), from k ("a_rows_b_columns"), whose products are added, or from n
    ("b_rows").
    """
    a, b = tf.convert_to_tensor(a), tf.convert_to_tensor(b)
    if serialization_dimension not in _DIMENSIONS:
        raise ValueError(
            f"`serialization_dimension` is {serialization_dimension!r}; use one of {', '.join(_DIMENSIONS)}."
        )
    if a.shape.rank is None or a.shape.rank < 2 or b.shape.rank is None or b.shape.rank < 2:
        raise ValueError(f"Tensors of shapes {a.shape} and {b.shape} were given; both need at least two axes.")
    rows, inner = (-1, -2) if transpose_a else (-2, -1)
    inner_b, columns = (-1, -2) if transpose_b else (-2, -1)
    tensor, axis = (b, columns) if serialization_dimension == "b_rows" else (a, rows)
    if serialization_dimension == "a_rows_b_columns":
        axis = inner
    size = tensor.shape[axis]
    if size is None or serialization_factor < 1 or size % serialization_factor:
        raise ValueError(
            f"`serialization_factor` is {serialization_factor} for a dimension of {size}; use a number that divides "
            f"{serialization_dimension}."
        )

    def product(left: Any, right: Any) -> Any:
        return tf.matmul(left, right, transpose_a=transpose_a, transpose_b=transpose_b)

    with tf.name_scope(name or "serialized_matmul"):
        if serialization_dimension == "a_columns":
            return tf.concat([product(piece, b) for piece in tf.split(a, serialization_factor, axis=axis)], axis=-2)
        if serialization_dimension == "b_rows":
            return tf.concat([product(a, piece) for piece in tf.split(b, serialization_factor, axis=axis)], axis=-1)
        lefts = tf.split(a, serialization_factor, axis=inner)
        rights = tf.split(b, serialization_factor, axis=inner_b)
        return tf.add_n([product(left, right) for left, right in zip(lefts, rights)])


def embedding_lookup(
    params: Any,
    ids: Any,
    serialization_factor: int = 1,
    indices_are_sorted: bool = False,
    name: Optional[str] = None,
) -> Any:
    """The rows of ``params`` that ``ids`` name; the table may be looked through in several equal pieces.

    The gradient is a table as large as ``params``, with zeros in the rows that were not looked up.
    """
    rows = int(params.shape[0])
    if serialization_factor < 1 or rows % serialization_factor:
        raise ValueError(
            f"`serialization_factor` is {serialization_factor} for a table of {rows} rows; use a number that divides "
            "them."
        )

    @tf.custom_gradient
    def looked_up(table: Any) -> Any:
        def gradient(of_rows: Any) -> Any:
            return tf.tensor_scatter_nd_add(tf.zeros_like(table), tf.expand_dims(ids, -1), of_rows)

        return tf.gather(table, ids, name=name), gradient

    return looked_up(tf.convert_to_tensor(params))
