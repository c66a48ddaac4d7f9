"""The report of an estimator's program: its plan, and the forward pass of one micro-batch."""

from __future__ import annotations

import bisect
import functools
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

import tensorflow as tf

from ipu_conformance.emulator.core.plan import Plan, plan
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.tensorflow.compile.pipeline import mapping_of, schedule_of
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.estimator.run_config import IPURunConfig
from ipu_conformance.emulator.tensorflow.estimator.specs import IPUPipelineEstimatorSpec
from ipu_conformance.emulator.tensorflow.reports import graph
from ipu_conformance.emulator.tensorflow.run import replicas
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
    return plan(topology, "sequential", 1, training=training, device_iterations=run.iterations_per_loop)


def forward(results: Sequence[Any], name: str) -> Graph:
    """What tensors of a loop's body are computed from."""
    return _needed_for(results, graph.read(results[0].graph, name))


def _needed_for(results: Sequence[Any], read: Graph) -> Graph:
    outputs = [tensor.name for tensor in results if tensor.name in read.tensors]
    return graph.needed(Graph(read.name, read.ops, read.inputs, outputs, read.tensors, read.initializers))


def optimizer() -> str:
    """The optimizer whose slots the current graph's variables are; one that has none, or is not known, is sgd."""
    for variable in tf.compat.v1.global_variables():
        slot = variable.op.name.rsplit("/", 1)[-1]
        if slot in SLOTS:
            return SLOTS[slot]
    return "sgd"


def planned_pipeline(spec: IPUPipelineEstimatorSpec, run: IPURunConfig, training: bool) -> Plan:
    """All runs of the pipeline in one loop, on every replica."""
    mapping = mapping_of(spec.computational_stages, spec.device_mapping)
    topology = Topology(tuple(mapping), run.num_replicas, system.chip(), run.num_shards)
    count = spec.gradient_accumulation_count
    schedule = schedule_of(spec.pipeline_op_kwargs.get("pipeline_schedule"))
    return plan(
        topology,
        schedule,
        count,
        training=training,
        recompute=system.recomputes(training, topology.stages),
        device_iterations=run.iterations_per_loop // count,
    )


class _Passed(NamedTuple):
    """Where a micro-batch has passed a stage."""

    graph: Any
    start: int
    """How many operations the graph had before."""
    outputs: List[Any]


class FirstMicroBatch:
    """Follows the first micro-batch of the first replica through the stages while the program is built."""

    def __init__(self) -> None:
        self._passed: Dict[int, _Passed] = {}
        self._loss: Dict[Any, Any] = {}

    def through(self, number: int, stage: Callable[..., Any]) -> Callable[..., Any]:
        """A stage in which the micro-batch is seen."""

        @functools.wraps(stage)
        def function(*values: Any, **named: Any) -> Any:
            built_in = tf.compat.v1.get_default_graph()
            known = self._passed.get(number)
            if replicas.current() != 0 or (known is not None and known.graph is built_in):
                return stage(*values, **named)
            start = len(built_in.get_operations())
            returned = stage(*values, **named)
            tensors = [leaf for leaf in tf.nest.flatten(returned) if tf.is_tensor(leaf)]
            self._passed[number] = _Passed(built_in, start, tensors)
            return returned

        return function

    def optimized(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An optimizer function whose loss is seen."""

        @functools.wraps(function)
        def seen(*outputs: Any) -> Any:
            result = function(*outputs)
            if replicas.current() == 0 and hasattr(result, "loss"):
                self._loss.setdefault(tf.compat.v1.get_default_graph(), result.loss)
            return result

        return seen

    def forward(self, name: str, stages: int) -> Graph:
        """The graph that the micro-batch passes; each operation belongs to the stage in which it was made."""
        passed = [self._passed[number] for number in range(stages) if number in self._passed]
        if len(passed) < stages or any(each.graph is not passed[-1].graph for each in passed):
            raise ForwardPassUnknown(f"the forward pass of {name} was not built in one piece")
        whole, starts = passed[-1].graph, [each.start for each in passed]
        positions = {op.name: position for position, op in enumerate(whole.get_operations())}

        def stage_of(operation: str) -> int:
            return max(0, bisect.bisect_right(starts, positions.get(operation, 0)) - 1)

        results = [self._loss[whole]] if whole in self._loss else passed[-1].outputs
        return _needed_for(results, graph.read(whole, name, stage_of))
