"""The report of a Keras model's program: its forward pass and loss for one micro-batch, with the stages of its layers.

Whoever makes the function that runs a phase passes it through ``reporting``.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Set

from ipu_conformance.emulator.plan import Plan
from ipu_conformance.emulator.tensorflow import report_graph, reports
from ipu_conformance.ir.graph import Graph

NAMES = {"train": "train_function", "evaluate": "test_function", "predict": "predict_function"}
"""What the program of each phase is called, as Keras calls it."""
REPORTED = "_ipu_reported"
OPTIMIZERS = ("adam", "adamw", "adamax", "adagrad", "adadelta", "rmsprop")


def write(model: Any, phase: str, plan: Plan, element_spec: Any) -> Optional[Path]:
    """Write the report of the program that a model has compiled for elements of that spec, if reports are wanted."""
    if not reports.wanted():
        return None
    optimizer = optimizer_of(model.optimizer) if phase == "train" else "sgd"
    program = reports.Program(NAMES[phase], plan, lambda: graph_of(model, phase, element_spec), optimizer)
    return reports.write(program)


def reporting(model: Any, phase: str, plan_of: Callable[[], Plan], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs a phase; if reports are wanted, one that also writes them, once for each kind of data.

    The report is written after the first execution: then the program is compiled.
    """
    if not reports.wanted() or hasattr(function, REPORTED):
        return function
    seen: Set[Any] = set()

    @functools.wraps(function)
    def run(iterator: Any) -> Any:
        import tensorflow as tf

        results = function(iterator)
        kind = tuple(tf.nest.flatten(iterator.element_spec))
        if kind not in seen:
            seen.add(kind)
            write(model, phase, plan_of(), iterator.element_spec)
        return results

    setattr(run, REPORTED, seen)
    return run


def graph_of(model: Any, phase: str, element_spec: Any) -> Graph:
    """The forward pass of one element, with the loss unless it predicts."""
    import tensorflow as tf

    flat = tf.nest.flatten(element_spec)

    def forward(*values: Any) -> Any:
        given = tf.nest.pack_sequence_as(element_spec, values)
        x, y, weights = (*given, None, None)[:3] if isinstance(given, tuple) else (given, None, None)
        predicted = model(x, training=phase == "train")
        return predicted if phase == "predict" else model.compute_loss(x, y, predicted, weights)

    return report_graph.of_function(forward, flat, _stages(model), results_only=True)


def _stages(model: Any) -> Optional[report_graph.StageOf]:
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
