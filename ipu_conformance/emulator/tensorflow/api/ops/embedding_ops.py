"""Lookups in tables: those of the device, and those that stay on the host."""

from ipu_conformance.emulator.tensorflow.ops.host_embedding import (
    HostEmbedding,
    HostEmbeddingOptimizerSpec,
    HostEmbeddingScope,
    HostEmbeddingSGDGAOptimizerSpec,
    create_host_embedding,
)
from ipu_conformance.emulator.tensorflow.ops.serialized import embedding_lookup

__all__ = [
    "HostEmbedding",
    "HostEmbeddingOptimizerSpec",
    "HostEmbeddingSGDGAOptimizerSpec",
    "HostEmbeddingScope",
    "create_host_embedding",
    "embedding_lookup",
]
