"""Lookups in tables: on the device they are gathers; tables that stay on the host need the vendor's runtime."""

from __future__ import annotations

from typing import Any, Optional

from ipu_conformance.emulator.tensorflow.ops.serialized import embedding_lookup
from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class
from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

__all__ = [
    "HostEmbedding",
    "HostEmbeddingOptimizerSpec",
    "HostEmbeddingSGDGAOptimizerSpec",
    "HostEmbeddingScope",
    "create_host_embedding",
    "embedding_lookup",
]

_WHY = "tables on the host are read and updated by the vendor's runtime while the device runs"

_NEEDS_SLOTS = "instructions for tables on the host are those of the vendor's runtime"

HostEmbedding = _unavailable_class(
    "HostEmbedding",
    _WHY,
    "name, embedding_tensor, partition_strategy='TOKEN', optimizer_spec=None",
    {
        "__call__": "*args, **kwargs",
        "get_embedding_tensor": "",
        "lookup": "indices, clip_indices=True",
        "register": "session=None",
    },
)
HostEmbeddingScope = _unavailable_class("HostEmbeddingScope", _WHY)
create_host_embedding = _unavailable_function(
    "create_host_embedding",
    _WHY,
    "name, shape, dtype, partition_strategy='TOKEN', optimizer_spec=None, initializer=None",
)


class HostEmbeddingOptimizerSpec:
    """How a table on the host is updated: by its gradient times a learning rate."""

    def __init__(self, learning_rate: Any, optimizer_name: Optional[str] = None) -> None:
        self._learning_rate = learning_rate
        self._optimizer_name = optimizer_name or type(self).__name__

    def get_learning_rate(self) -> Any:
        """The learning rate, a number or a tensor."""
        return self._learning_rate

    create_lookup_instruction = _unavailable_function(
        "create_lookup_instruction",
        _NEEDS_SLOTS,
        "self, embedding_tensor, indices, slot_vars, partition_strategy, name",
    )
    create_register_instruction = _unavailable_function(
        "create_register_instruction", _NEEDS_SLOTS, "self, embedding_tensor, slot_vars, name"
    )
    create_deregister_instruction = _unavailable_function(
        "create_deregister_instruction", _NEEDS_SLOTS, "self, embedding_tensor, slot_vars, name"
    )
    create_slot_variables = _unavailable_function("create_slot_variables", _NEEDS_SLOTS, "self, embedding_tensor, name")


class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """How a table on the host is updated once for the gradients of several micro-batches."""

    def __init__(self, learning_rate: Any, accumulation_factor: int) -> None:
        if isinstance(accumulation_factor, bool) or not isinstance(accumulation_factor, int) or accumulation_factor < 1:
            raise ValueError(f"`accumulation_factor` is {accumulation_factor!r}; use a whole number from 1 on.")
        super().__init__(learning_rate, "SGD+GA")
        self._accumulation_factor = accumulation_factor

    def get_accumulation_factor(self) -> int:
        """After how many micro-batches the table is updated."""
        return self._accumulation_factor
