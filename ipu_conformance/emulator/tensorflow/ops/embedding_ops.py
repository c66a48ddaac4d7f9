"""Lookups in tables: on the device they are gathers; tables that stay on the host need the vendor's runtime."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow import unavailable

__all__ = [
    "HostEmbedding",
    "HostEmbeddingOptimizerSpec",
    "HostEmbeddingSGDGAOptimizerSpec",
    "HostEmbeddingScope",
    "create_host_embedding",
    "embedding_lookup",
]

WHY = "tables on the host are read and updated by the vendor's runtime while the device runs"

HostEmbedding = unavailable.function("HostEmbedding", WHY)
HostEmbeddingOptimizerSpec = unavailable.function("HostEmbeddingOptimizerSpec", WHY)
HostEmbeddingSGDGAOptimizerSpec = unavailable.function("HostEmbeddingSGDGAOptimizerSpec", WHY)
HostEmbeddingScope = unavailable.function("HostEmbeddingScope", WHY)
create_host_embedding = unavailable.function("create_host_embedding", WHY)


def embedding_lookup(
    params: Any, ids: Any, name: Optional[str] = None, serialization_factor: int = 1, **kwargs: Any
) -> Any:
    """The rows of ``params`` that ``ids`` name; the table may be looked through in several equal pieces."""
    rows = int(params.shape[0])
    if serialization_factor < 1 or rows % serialization_factor:
        raise ValueError(
            f"`serialization_factor` is {serialization_factor} for a table of {rows} rows; use a number that divides "
            "them."
        )
    return tf.gather(params, ids, name=name)
