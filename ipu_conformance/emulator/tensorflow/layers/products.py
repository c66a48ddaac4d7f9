"""A fully connected layer whose product is computed in pieces."""

from __future__ import annotations

from typing import Any, Dict

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.api.ops import math_ops
from ipu_conformance.emulator.tensorflow.keras import library

_Dense: Any = library.module("layers").Dense

DIMENSIONS = {
    "input_columns": "a_columns",
    "input_rows_kernel_columns": "a_rows_b_columns",
    "kernel_rows": "b_rows",
}
"""What the layer calls the dimensions, and what the operation does."""


class SerialDense(_Dense):
    """``activation(inputs kernel + bias)``, in ``serialization_factor`` pieces along one dimension of the product."""

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
        made = math_ops.serialized_matmul(
            rows,
            tf.cast(self.kernel, self.compute_dtype),
            self.serialization_factor,
            DIMENSIONS[self.serialization_dimension],
        )
        if self.use_bias:
            made = tf.nn.bias_add(made, tf.cast(self.bias, self.compute_dtype))
        if inputs.shape.rank != 2:
            made = tf.reshape(made, tf.concat([tf.shape(inputs)[:-1], [self.units]], 0))
            made.set_shape([*inputs.shape[:-1], self.units])
        return made if self.activation is None else self.activation(made)

    def get_config(self) -> Dict[str, Any]:
        """What the layer can be made from again."""
        return {
            **super().get_config(),
            "serialization_factor": self.serialization_factor,
            "serialization_dimension": self.serialization_dimension,
        }
