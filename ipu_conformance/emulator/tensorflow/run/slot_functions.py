"""Slots that are built once and called for every micro-batch and replica, where there are too many to build each."""

from __future__ import annotations

import copy
import inspect
from typing import Any, Callable, Dict, Sequence, Tuple

from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.run import replicas, training, variables
from ipu_conformance.emulator.tensorflow.run.replicas import ReplicaError

MOST_UNROLLED = 16
"""Slots of a pipeline that are built one by one: to build, differentiate and call functions of so few costs more."""
MOST_UNROLLED_STEPS = 1
"""Whole steps or updates that are built one by one: a step differentiates inside, and a call of it costs little."""
LARGEST_INLINED = 100
"""Operations of a slot whose calls TensorFlow may replace by its parts.

A call costs more than the kernels of a small slot, and a stage of a pipeline has two slots for each micro-batch; the
copies of a larger slot would take long to optimize and gain little.
"""


class RandomSlotError(Exception):
    """A slot draws random numbers, whose seeds a function built once would repeat for every micro-batch."""


class SlotFunctions:
    """The functions of slots, by replica and stage; replicas share one that is alike on all of them."""

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self._built: Dict[Tuple[Any, ...], Any] = {}
        self._alike: Dict[Tuple[Any, ...], bool] = {}

    @classmethod
    def of_stages(cls, plan: Plan) -> SlotFunctions:
        """Those of the forward slots of a pipeline.

        A slot that is recomputed needs the operations of its own forward slot, which a function would hide.
        """
        return cls(plan.total_micro_batches > 1 and len(plan) > MOST_UNROLLED and not plan.recompute)

    @classmethod
    def of_steps(cls, plan: Plan) -> SlotFunctions:
        """Those of whole steps."""
        return cls(plan.total_micro_batches * plan.replicas > MOST_UNROLLED_STEPS and not plan.recompute)

    @classmethod
    def of_updates(cls, plan: Plan) -> SlotFunctions:
        """Those of updates, one for each replica."""
        return cls(plan.replicas > MOST_UNROLLED_STEPS)

    def call(self, key: Tuple[Any, ...], function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """``function(*arguments)``, built into the graph or called as the function of an earlier slot."""
        if self.shared and key not in self._built:
            try:
                self._built[key] = self._of_first(*key) or self._new(key, function, arguments)
            except (ReplicaError, RandomSlotError):
                # Replicas meet inside, which they can in the graph of all replicas only, or random numbers are drawn.
                self.shared = False
        if not self.shared:
            return function(*arguments)
        return self._built[key](*arguments)

    def _new(self, key: Tuple[Any, ...], function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        built, self._alike[key] = replicas.is_alike(lambda: _built(function, arguments))
        return built

    def _of_first(self, replica: int, *slot: Any) -> Any:
        """The function that replica 0 has built, with the variables of another; None if it is not alike on all."""
        from tensorflow.python.framework import ops

        if replica == 0 or not self._alike.get((0, *slot), False):
            return None
        built = self._built[(0, *slot)]
        captured = built.captured_inputs
        if not all(isinstance(value, ops.EagerTensor) for value in captured):
            return None  # a tensor of the graph around it is that of replica 0
        function = copy.copy(built)
        function.set_external_captures([variables.handle_on(replica, value) for value in captured])
        return function


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
