"""What happens around the first execution of a Keras model's program: its memory is checked, its report written.

The estimate of the memory needs the model's forward pass to be built once more, so it is made only for programs that
come anywhere near what an IPU holds.
"""

from __future__ import annotations

import functools
import math
import weakref
from typing import Any, Callable, Optional, Set

from ipu_conformance.emulator.core import memory
from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.tensorflow.reports import keras
from ipu_conformance.errors import ConformanceError

WATCHED = "_ipu_watched"


def watched(model: Any, phase: str, plan_of: Callable[[], Plan], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs a phase (train, evaluate or predict), watched once for each kind of data.

    A program that no IPU can hold is refused before it runs. Its report is written after it has run: then it is
    compiled. A function that is watched already stays as it is.
    """
    if hasattr(function, WATCHED):
        return function
    seen: Set[Any] = set()
    last: Callable[[], Optional[Any]] = lambda: None  # noqa: E731 (a reference that is dead, until there is one)

    @functools.wraps(function)
    def run(iterator: Any) -> Any:
        nonlocal last
        if last() is iterator:
            return function(iterator)
        import tensorflow as tf

        kind = tuple(tf.nest.flatten(iterator.element_spec))
        new = kind not in seen
        if new:
            require_memory(model, phase, plan_of(), iterator.element_spec)
        results = function(iterator)
        if new:
            seen.add(kind)
            keras.write(model, phase, plan_of(), iterator.element_spec)
        last = weakref.ref(iterator)
        return results

    setattr(run, WATCHED, True)
    return run


SMALL_SHARE = 0.25
"""A program whose rough size is below this share of the device's memory is taken to fit."""
ACTIVATIONS_PER_INPUT = 64
"""The rough size takes so many bytes of activations for every byte of input, in each micro-batch that is in flight."""


def require_memory(model: Any, phase: str, plan: Plan, element_spec: Any) -> None:
    """Refuse a program that needs more memory than an IPU has."""
    from tensorflow.python.framework import errors_impl

    device = keras.on_device(plan).topology.device
    if rough_size(model, phase, plan, element_spec) < SMALL_SHARE * device.memory:
        return
    try:
        estimate = keras.memory_of(model, phase, plan, element_spec)
    except ConformanceError:
        return  # what cannot be estimated is not refused; the program's report gives the reason
    try:
        memory.check(estimate, device)
    except memory.OutOfMemory as error:
        raise errors_impl.ResourceExhaustedError(None, None, f"Out of memory: {error}") from None


def rough_size(model: Any, phase: str, plan: Plan, element_spec: Any) -> float:
    """The bytes of weights, their gradients and state, and a guess of the activations, on the IPUs of one replica."""
    import tensorflow as tf

    copies = 1
    if phase == "train":
        copies = 2 + memory.STATE_SLOTS[keras.optimizer_of(model.optimizer)]
    weights = sum(_bytes(weight) for weight in model.weights)
    inputs = sum(_bytes(spec) for spec in tf.nest.flatten(element_spec))
    in_flight = max(plan.stash_depths()) if plan.training else 1
    return copies * weights + ACTIVATIONS_PER_INPUT * inputs * in_flight


def _bytes(tensor: Any) -> float:
    """The bytes of a tensor on the device, which has no 64-bit numbers; an unknown size counts as endless."""
    elements = tensor.shape.num_elements()
    return math.inf if elements is None else elements * min(4, tensor.dtype.size)
