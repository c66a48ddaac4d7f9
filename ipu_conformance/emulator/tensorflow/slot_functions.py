"""Slots that are built once and called for every micro-batch, where a plan has too many to build each on its own."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Sequence, Tuple

from ipu_conformance.emulator.plan import Plan
from ipu_conformance.emulator.tensorflow.replicas import ReplicaError

MOST_UNROLLED = 64
"""Slots that are built one by one: up to here a graph runs fastest and is built in a few seconds."""


class SlotFunctions:
    """The functions of slots, by replica and stage."""

    def __init__(self, plan: Plan) -> None:
        self.shared = plan.total_micro_batches > 1 and len(plan) > MOST_UNROLLED
        self._built: Dict[Tuple[Any, ...], Any] = {}

    def call(self, key: Tuple[Any, ...], function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """``function(*arguments)``, built into the graph or called as the function of an earlier micro-batch."""
        if self.shared and key not in self._built:
            try:
                self._built[key] = _function(function).get_concrete_function(*arguments)
            except ReplicaError:
                # Replicas meet inside, which they can in the graph of all replicas only.
                self.shared = False
        if not self.shared:
            return function(*arguments)
        return self._built[key](*arguments)


def _function(function: Callable[..., Any]) -> Any:
    """A ``tf.function`` that stays one call: as parts of the graph its copies would be optimised one by one."""
    import tensorflow as tf

    settings: Dict[str, Any] = {"autograph": False}
    if "experimental_attributes" in inspect.signature(tf.function).parameters:
        settings["experimental_attributes"] = {"_noinline": True}
    return tf.function(function, **settings)
