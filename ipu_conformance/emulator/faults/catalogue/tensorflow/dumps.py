"""Ways for the dump of a Keras model's run, or of an estimator's, to tell another computation than the device's.

The dump is one function: it adds up gradients over micro-batches first, then over replicas, and has neither copies nor
stages that could be wrong.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import List, Tuple

from ipu_conformance.emulator.faults.catalogue import dumped
from ipu_conformance.emulator.faults.catalogue.dumped import Row, attribute, changed, last, lost, of_type, swapped
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Literal

ASSIGN_ADD = "tensorflow::AssignAddVariableOp"
OF_REPLICA, VELOCITY = "replica_", "m/"


def _adding_up_replicas(op: Op) -> bool:
    return op.type == "Sum" and op.inputs[1].startswith(OF_REPLICA) and not op.inputs[0].startswith(OF_REPLICA)


def _accumulating(op: Op) -> bool:
    return op.type == "Sum" and not any(name.startswith(OF_REPLICA) for name in op.inputs)


def _adding_a_bias(op: Op) -> bool:
    return op.type == "Add" and op.name.endswith("/BiasAdd")


def _updating_a_weight(op: Op) -> bool:
    return op.type == ASSIGN_ADD and op.inputs[0].endswith(("/kernel", "/bias"))


def _doubled(op: Op) -> Op:
    """The second term is added twice."""
    return replace(op, inputs=(*op.inputs, op.inputs[-1]))


def _of_dy(op: Op) -> Op:
    """A gradient reads dy where it should read the result."""
    return replace(op, inputs=(op.inputs[1], op.inputs[1]))


def _kept_nowhere(op: Op) -> Op:
    """The new weight is computed, and the variable keeps the old one."""
    return replace(op, type="Add")


def _from_the_start(graph: Graph) -> Graph:
    """The last weight is updated before its velocity is: a variable is read as it is at that moment."""
    for op in last(graph, _updating_a_weight):
        stale = replace(op, inputs=(op.inputs[0], f"{VELOCITY}{op.inputs[0]}"))
        ops: List[Op] = []
        for each in graph.ops:
            ops += [] if each is op else [stale, each] if op.inputs[1] in each.outputs else [each]
        return replace(graph, ops=tuple(ops))
    return graph


def _scaling_a_gradient(op: Op) -> bool:
    return op.type == "Mul" and op.name.startswith("gradient_tape/") and "/dropout" in op.name


def _against_the_mean(op: Op) -> bool:
    return op.type == "Sub" and op.inputs[1].startswith(VELOCITY)


def _halved(op: Op) -> Op:
    held = op.attributes["value"]
    if not isinstance(held, Literal):
        return op
    (value,) = struct.unpack("<f", held.data)
    half = Literal("FLOAT", (), struct.pack("<f", value / 2))
    return replace(op, attributes={**op.attributes, "value": half})


ROWS: Tuple[Row, ...] = (
    ("all-reduce-lost", "the last gradient is that of one replica less", lost(_adding_up_replicas)),
    ("all-reduce-twice", "the last gradient has one replica twice", changed(_adding_up_replicas, _doubled)),
    ("bias-lost", "the last bias is not added", lost(_adding_a_bias)),
    ("sub-swapped", "the last difference of a gradient and its mean has its terms swapped",
     changed(_against_the_mean, swapped)),
    ("wrong-axis", "probabilities are those of samples, not of classes",
     changed(of_type("LogSoftmax"), attribute("axis", lambda axis: 0))),
    ("accumulation-lost", "the last gradient of a micro-batch is not accumulated", lost(_accumulating)),
    ("state-stale", "the last update reads the velocity of the one before", _from_the_start),
    ("weight-stale", "after an update the last weight is still read as it was",
     changed(_updating_a_weight, _kept_nowhere)),
    ("mean-not-taken", "the last gradient is the sum, not the mean", lost(of_type("Div"))),
    ("momentum-halved", "the last velocity keeps half of what it should",
     changed(lambda op: op.type == "Constant" and "/SGD/Cast" in op.name and OF_REPLICA not in op.name, _halved)),
    ("cast-lost", "the last cast of the learning rate is missing",
     lost(lambda op: op.type == "Cast" and op.inputs[0].startswith("learning_rate"))),
    ("dropout-not-scaled", "the last gradient of a dropout is not scaled", lost(_scaling_a_gradient)),
    ("gate-linear", "the last gate of a recurrent layer is not bent", lost(of_type("Sigmoid"))),
    ("update-lost", "the last update of an estimator's loop is missing",
     lost(of_type("tensorflow::ResourceApplyGradientDescent"))),
    ("wrong-gradient", "a gradient reads dy for the result", changed(of_type("tensorflow::TanhGrad"), _of_dy)),
)  # fmt: skip

dumped.declare("tensorflow", ROWS, __name__)
