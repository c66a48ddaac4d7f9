"""Layers whose weights are used in pieces: a product of matrices, and the table of an embedding."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.ops import serialized

_Dense: Any = library.module("layers").Dense

DIMENSIONS = {
    "input_columns": "a_columns",
    "input_rows_kernel_columns": "a_rows_b_columns",
    "kernel_rows": "b_rows",
}
"""What the layer calls the dimensions, and what the operation does."""


class SerialDense(library.Configured, _Dense):
    """``activation(inputs kernel + bias)``, in ``serialization_factor`` pieces along one dimension of the product."""

    CONFIG = ("serialization_factor", "serialization_dimension")

    def __init__(self, units: int, serialization_factor: int, serialization_dimension: str, **settings: Any) -> None:
        if serialization_dimension not in DIMENSIONS:
            raise ValueError(
                f"`serialization_dimension` is {serialization_dimension!r}; use one of {', '.join(DIMENSIONS)}."
            )
        super().__init__(units, **settings)
        self.serialization_factor = serialization_factor
        self.serialization_dimension = serialization_dimension

    def call(self, inputs: Any) -> Any:
        """The outputs for inputs [..., size]; a kernel is the same for every leading axis."""
        inputs = tf.cast(inputs, self.compute_dtype)
        rows = inputs if inputs.shape.rank == 2 else tf.reshape(inputs, [-1, inputs.shape[-1]])
        outputs = serialized.serialized_matmul(
            rows,
            tf.cast(self.kernel, self.compute_dtype),
            self.serialization_factor,
            DIMENSIONS[self.serialization_dimension],
        )
        if self.use_bias:
            outputs = tf.nn.bias_add(outputs, tf.cast(self.bias, self.compute_dtype))
        if inputs.shape.rank != 2:
            outputs = tf.reshape(outputs, tf.concat([tf.shape(inputs)[:-1], [self.units]], 0))
            outputs.set_shape([*inputs.shape[:-1], self.units])
        return outputs if self.activation is None else self.activation(outputs)


_Embedding: Any = library.module("layers").Embedding

REFUSED = ("embeddings_regularizer", "activity_regularizer", "embeddings_constraint", "mask_zero", "input_length")


class Embedding(library.Configured, _Embedding):
    """Rows of a table; ``serialization_factor`` is in how many pieces it is looked through."""

    CONFIG = ("serialization_factor",)

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        serialization_factor: int = 1,
        **settings: Any,
    ) -> None:
        for name in REFUSED:
            if settings.get(name):
                raise ValueError(f"The IPU's Embedding does not support `{name}`; leave it out.")
        if serialization_factor < 1 or input_dim % serialization_factor:
            raise ValueError(
                f"`serialization_factor` is {serialization_factor} for a table of {input_dim} rows; use a number that "
                "divides them."
            )
        super().__init__(input_dim, output_dim, embeddings_initializer=embeddings_initializer, **settings)
        self.serialization_factor = serialization_factor

    def call(self, inputs: Any) -> Any:
        """The row of every index."""
        indices = inputs if inputs.dtype.is_integer else tf.cast(inputs, tf.int32)
        return serialized.embedding_lookup(self.embeddings, indices, serialization_factor=self.serialization_factor)
