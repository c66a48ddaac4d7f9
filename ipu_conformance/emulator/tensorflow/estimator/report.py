"""What the report of an estimator's program says: the plan of its loop, and the forward pass of one micro-batch."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from ipu_conformance.emulator.core.plan import Plan, plan
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.faults.decisions import tensorflow_estimator as decide
from ipu_conformance.emulator.tensorflow.api.ipu_run_config import IPURunConfig
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.reports import graph
from ipu_conformance.errors import ConformanceError
from ipu_conformance.ir.graph import Graph


class ForwardPassUnknown(ConformanceError):  # noqa: N818 (it says what is)
    """A program has no graph of one micro-batch alone."""


SLOTS = {
    "Adam": "adam",
    "Adadelta": "adadelta",
    "Adagrad": "adagrad",
    "Momentum": "momentum",
    "RMSProp": "rmsprop",
}
"""What the slots of an optimizer are called, and the name that estimates know it by."""


def planned(run: IPURunConfig, training: bool) -> Plan:
    """A loop whose iterations follow one another on every replica, each with an update of its own."""
    topology = Topology((0,), run.num_replicas, system.chip(), run.num_shards)
    training = decide("report-training", training)
    return plan(topology, "sequential", 1, training=training, device_iterations=run.iterations_per_loop)


def forward(results: Sequence[Any], name: str) -> Graph:
    """What tensors of a loop's body are computed from."""
    body = results[0].graph
    read = graph.read(body, name)
    outputs = [tensor.name for tensor in results if tensor.name in read.tensors]
    whole = Graph(name, read.ops, read.inputs, outputs, read.tensors, read.initializers)
    return graph.needed(whole)


def optimizer() -> str:
    """The optimizer whose slots the current graph's variables are; one that has none, or is not known, is sgd."""
    for variable in tf.compat.v1.global_variables():
        slot = variable.op.name.rsplit("/", 1)[-1]
        if slot in SLOTS:
            return SLOTS[slot]
    return "sgd"
