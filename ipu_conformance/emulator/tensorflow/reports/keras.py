"""The report of a Keras model's program: its forward pass and loss for one micro-batch, with the stages of its layers.

``keras.first_execution`` writes it when a program is compiled.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Optional

from ipu_conformance.emulator.core import memory
from ipu_conformance.emulator.core.plan import Plan, plan
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.reports import folders, graph
from ipu_conformance.ir.graph import Graph

NAMES = {"train": "train_function", "evaluate": "test_function", "predict": "predict_function"}
"""What the program of each phase is called, as Keras calls it."""
OPTIMIZERS = ("adam", "adamw", "adamax", "adagrad", "adadelta", "rmsprop")


def write(model: Any, phase: str, executed: Plan, element_spec: Any) -> Optional[Path]:
    """Write the report of the program that a model has compiled for elements of that spec, if reports are wanted."""
    if not folders.wanted():
        return None
    planned = on_device(executed)
    return folders.write(
        folders.Program(
            NAMES[phase], planned, lambda: graph_of(model, phase, element_spec), _optimizer_in(model, phase)
        )
    )


def memory_of(model: Any, phase: str, executed: Plan, element_spec: Any) -> memory.MemoryEstimate:
    """What the program of a model needs on each IPU; its forward pass is built once more to estimate it."""
    graph = graph_of(model, phase, element_spec)
    return memory.estimate(on_device(executed), graph, optimizer=_optimizer_in(model, phase))


def _optimizer_in(model: Any, phase: str) -> str:
    return optimizer_of(model.optimizer) if phase == "train" else "sgd"


def on_device(executed: Plan) -> Plan:
    """The plan as the configured device has it, with its own memory and clock: what is executed needs neither."""
    if not system.configured():
        return executed
    return plan(
        replace(executed.topology, device=system.chip()),
        executed.schedule,
        executed.micro_batches,
        training=executed.training,
        recompute=executed.recompute,
        device_iterations=executed.device_iterations,
    )


def graph_of(model: Any, phase: str, element_spec: Any) -> Graph:
    """The forward pass of one element, with the loss unless it predicts."""
    import tensorflow as tf

    flat = tf.nest.flatten(element_spec)

    def forward(*values: Any) -> Any:
        given = tf.nest.pack_sequence_as(element_spec, values)
        x, y, weights = (*given, None, None)[:3] if isinstance(given, tuple) else (given, None, None)
        predicted = model(x, training=phase == "train")
        return predicted if phase == "predict" else model.compute_loss(x, y, predicted, weights)

    return graph.of_function(forward, flat, _stages(model), results_only=True)


def _stages(model: Any) -> Optional[graph.StageOf]:
    """The stage of an op by the layer in whose name scope it stands; None for a model in one piece."""
    try:
        assigned = model.get_pipeline_stage_assignment()
    except (AttributeError, ValueError, RuntimeError):
        return None  # a model whose layers are not known has no stages
    by_layer: Dict[str, int] = {
        one.layer.name: one.pipeline_stage for one in assigned if one.pipeline_stage is not None
    }
    if not by_layer:
        return None
    return lambda name: next((by_layer[part] for part in name.split("/") if part in by_layer), 0)


def optimizer_of(optimizer: Any) -> str:
    """The name that estimates know an optimizer by; one that they do not know counts as having no state."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    name = type(inner).__name__.lower()
    if name == "rmsprop" and getattr(inner, "centered", False):
        return "rmsprop-centered"
    if name in OPTIMIZERS:
        return name
    momentum = getattr(inner, "momentum", 0) if name == "sgd" else 0
    return "momentum" if momentum and float(momentum) else "sgd"
