"""What the report of a pipelined program says: the plan of its runs, and the forward pass of one micro-batch."""

from __future__ import annotations

import bisect
import functools
from typing import Any, Callable, Dict, List, NamedTuple

import tensorflow as tf

from ipu_conformance.emulator.core.plan import Plan, plan
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.tensorflow.api.ipu_run_config import IPURunConfig
from ipu_conformance.emulator.tensorflow.api.ops import pipelining_ops
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.estimator.pipeline_spec import IPUPipelineEstimatorSpec
from ipu_conformance.emulator.tensorflow.estimator.report import ForwardPassUnknown
from ipu_conformance.emulator.tensorflow.reports import graph as report_graph
from ipu_conformance.emulator.tensorflow.run import replicas
from ipu_conformance.ir.graph import Graph


def planned(spec: IPUPipelineEstimatorSpec, run: IPURunConfig, training: bool) -> Plan:
    """All runs of the pipeline in one loop, on every replica."""
    mapping = pipelining_ops._mapping(spec.computational_stages, spec.device_mapping)
    topology = Topology(tuple(mapping), run.num_replicas, system.chip(), run.num_shards)
    count = spec.gradient_accumulation_count
    schedule = pipelining_ops._schedule(spec.pipeline_op_kwargs.get("pipeline_schedule"))
    return plan(topology, schedule, count, training=training, device_iterations=run.iterations_per_loop // count)


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
            graph = tf.compat.v1.get_default_graph()
            known = self._passed.get(number)
            if replicas.current() != 0 or (known is not None and known.graph is graph):
                return stage(*values, **named)
            start = len(graph.get_operations())
            returned = stage(*values, **named)
            tensors = [leaf for leaf in tf.nest.flatten(returned) if tf.is_tensor(leaf)]
            self._passed[number] = _Passed(graph, start, tensors)
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
        read = report_graph.read(whole, name, stage_of)
        outputs = [tensor.name for tensor in results if tensor.name in read.tensors]
        return report_graph.needed(Graph(name, read.ops, read.inputs, outputs, read.tensors, read.initializers))
