"""Slots that are built once and called for every micro-batch, where a plan has too many to build each on its own."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Sequence, Tuple

from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.run import training
from ipu_conformance.emulator.tensorflow.run.replicas import ReplicaError

MOST_UNROLLED = 16
"""Slots of a pipeline that are built one by one: to build, differentiate and call functions of so few costs more."""
MOST_UNROLLED_STEPS = 1
"""Whole steps of a replica that are built one by one: a step differentiates inside, and a call of it costs little."""
LARGEST_INLINED = 100
"""Operations of a slot whose calls TensorFlow may replace by its parts.

A call costs more than the kernels of a small slot, and a stage of a pipeline has two slots for each micro-batch; the
copies of a larger slot would take long to optimize and gain little.
"""


class RandomSlotError(Exception):
    """A slot draws random numbers, whose seeds a function built once would repeat for every micro-batch."""


class SlotFunctions:
    """The functions of slots, by replica and stage."""

    def __init__(self, plan: Plan, *, whole_steps: bool = False) -> None:
        steps = plan.total_micro_batches
        many = steps > MOST_UNROLLED_STEPS if whole_steps else len(plan) > MOST_UNROLLED
        # A slot that is recomputed needs the operations of its own forward slot, which a function would hide.
        self.shared = steps > 1 and many and not plan.recompute
        self._built: Dict[Tuple[Any, ...], Any] = {}

    def call(self, key: Tuple[Any, ...], function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """``function(*arguments)``, built into the graph or called as the function of an earlier micro-batch."""
        if self.shared and key not in self._built:
            try:
                self._built[key] = _built(function, arguments)
            except (ReplicaError, RandomSlotError):
                # Replicas meet inside, which they can in the graph of all replicas only, or random numbers are drawn.
                self.shared = False
        if not self.shared:
            return function(*arguments)
        return self._built[key](*arguments)


def _built(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """The function of a slot; a large one is inside of a function that stays one call."""
    import tensorflow as tf

    built = training.built(function, arguments, "ipu_slot")
    definition = built.graph.as_graph_def()
    parts = [definition.node, *(part.node_def for part in definition.library.function)]
    if any("Random" in node.op or "seed2" in node.attr for nodes in parts for node in nodes):
        raise RandomSlotError("the slot draws random numbers: each micro-batch needs seeds of its own")
    attributes = "experimental_attributes" in inspect.signature(tf.function).parameters
    if len(built.graph.get_operations()) <= LARGEST_INLINED or not attributes:
        return built
    # It is built inside of another, and not again with other attributes: a user's step would be called twice.
    outer = tf.function(lambda *own: built(*own), autograph=False, experimental_attributes={"_noinline": True})
    return outer.get_concrete_function(*arguments)
