"""Whether the IPUs can hold a Keras model's program; one that cannot be held is refused before it runs.

The estimate needs the model's forward pass to be built once more, so it is made only for programs that come anywhere
near what an IPU holds.
"""

from __future__ import annotations

import math
from typing import Any

from ipu_conformance.emulator.core import memory
from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.faults.decisions import tensorflow_system as decide
from ipu_conformance.emulator.tensorflow.reports import keras
from ipu_conformance.errors import ConformanceError

SMALL_SHARE = 0.25
"""A program whose rough size is below this share of the device's memory is taken to fit."""
ACTIVATIONS_PER_INPUT = 64
"""The rough size takes so many bytes of activations for every byte of input, in each micro-batch that is in flight."""


def require(model: Any, phase: str, plan: Plan, element_spec: Any) -> None:
    """Refuse a program of which an IPU would need more memory than it has."""
    from tensorflow.python.framework import errors_impl

    plan = keras.on_device(plan)
    device = plan.topology.device
    if rough_size(model, phase, plan, element_spec) < SMALL_SHARE * device.memory:
        return
    optimizer = keras.optimizer_of(model.optimizer) if phase == "train" else "sgd"
    try:
        estimate = memory.estimate(plan, keras.graph_of(model, phase, element_spec), optimizer=optimizer)
    except ConformanceError:
        return  # what cannot be estimated is not refused; a report of the program says why it cannot
    try:
        memory.check(estimate, device)
    except memory.OutOfMemory as error:
        if decide("out-of-memory", True):
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
