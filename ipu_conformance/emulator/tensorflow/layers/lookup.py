"""The table of an embedding, looked through in pieces."""

from __future__ import annotations

from typing import Any, Dict

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.api.ops import embedding_ops
from ipu_conformance.emulator.tensorflow.keras import library

_Embedding: Any = library.module("layers").Embedding

REFUSED = ("embeddings_regularizer", "activity_regularizer", "embeddings_constraint", "mask_zero", "input_length")


class Embedding(_Embedding):
    """Rows of a table; ``serialization_factor`` is in how many pieces it is looked through."""

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
        return embedding_ops.embedding_lookup(
            tf.convert_to_tensor(self.embeddings), indices, serialization_factor=self.serialization_factor
        )

    def get_config(self) -> Dict[str, Any]:
        """What the layer can be made from again."""
        return {**super().get_config(), "serialization_factor": self.serialization_factor}
