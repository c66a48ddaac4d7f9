"""Compiling a part of a graph for the IPU."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import device_spec, func_graph, ops

from ipu_conformance.emulator.core.plan import plan
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.tensorflow.compile import deferred, functions, graph_context
from ipu_conformance.emulator.tensorflow.compile.graph_replicas import GraphProgram
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.refusals import ops as refusals
from ipu_conformance.emulator.tensorflow.reports import folders
from ipu_conformance.emulator.tensorflow.reports import graph as report_graph
from ipu_conformance.emulator.tensorflow.run import replicas, strategy


def compile(computation: Callable[..., Any], inputs: Optional[Sequence[Any]] = None) -> Any:
    """What ``computation`` returns, computed on the IPUs of the device: tensors as a list or in their structure.

    Operations that it returns run with it. If it returns no tensor, the result is an operation that runs it.
    """
    if not callable(computation):
        raise TypeError(f"`computation` is {computation!r}; pass a function.")
    if inputs is not None and not isinstance(inputs, (list, tuple)):
        raise TypeError("`inputs` must be a list or tuple of tensors.")
    given = [tf.nest.map_structure(tf.convert_to_tensor, value) for value in inputs or ()]
    if tf.executing_eagerly():
        return tf.function(lambda: compile(computation, given), autograph=False)()
    if replicas.inside() or isinstance(ops.get_default_graph(), func_graph.FuncGraph):
        return _inline(functions.converted(computation), given)
    return _in_graph(computation, given)


def in_scope() -> bool:
    """Whether what is made here belongs to an IPU by the scope around it."""
    return "IPU" in (context.context().device_name or "") if tf.executing_eagerly() else bool(_device())


def _inline(computation: Callable[..., Any], inputs: List[Any]) -> Any:
    """Inside a function that is already compiled for the device."""
    tensors, operations, structure = _results(computation(*inputs))
    with tf.control_dependencies(operations):
        return _packed([tf.identity(tensor) for tensor in tensors], structure)


class _Built:
    """What the computation returned when it was built: the function itself only returns tensors."""

    structure: Any = None


def _in_graph(computation: Callable[..., Any], inputs: List[Any]) -> Any:
    built, flat = _Built(), tf.nest.flatten(inputs)

    def program(*own: Any) -> List[Any]:
        tensors, operations, built.structure = _results(computation(*tf.nest.pack_sequence_as(inputs, own)))
        refusals.NO_IPU(for_ipu=_is_for_ipu(outer))
        with tf.control_dependencies(operations):
            # What is returned first tells that all has been executed, also where nothing else is returned.
            return [tf.constant(True), *(tf.identity(tensor) for tensor in tensors)]

    outer = _device()
    built_program = GraphProgram(program, system.ipus(_ordinal(outer)) if system.configured() else 1)
    ran, *results = built_program(flat)
    getattr(computation, "built_as", lambda _: None)(built_program)
    if folders.wanted():
        describe = getattr(computation, "describe", None)
        folders.write(describe() if describe else _described(computation, built_program, built_program.ipus))
    with tf.control_dependencies([ran]):
        returned = [tf.identity(result) for result in results] if results else [tf.no_op()]
    deferred.note(*_again(built_program, flat, outer), returned)
    return _packed(returned, built.structure) if results else returned[0]


def _again(program: GraphProgram, flat: List[Any], device: str) -> Tuple[deferred.Build, Callable[[], bool]]:
    """Builds a program for the IPUs that its device has by then, where and as it was built first; and if it is due."""
    scopes, number = graph_context.GraphContext(), _ordinal(device)

    def changed() -> bool:
        counts = system.devices()
        return number < len(counts) and counts[number] != program.ipus

    def build() -> Any:
        program.ipus = system.devices()[number]
        with scopes.entered(), tf.device(device or None):
            ran, *results = program(flat)
        return ran, results

    return build, changed


def _described(computation: Callable[..., Any], program: GraphProgram, ipus: int) -> folders.Program:
    """The report of a computation that does not describe itself."""
    name = getattr(computation, "__name__", "program")
    topology = Topology((0,), program.replicas, system.chip(), ipus // program.replicas)
    planned = plan(topology, "sequential", 1, training=False)
    return folders.Program(name, planned, lambda: report_graph.read(program.graph, name))


def _results(outputs: Any) -> Any:
    """The tensors, the operations that come after them, and the structure of the tensors."""
    operations: List[Any] = []
    refusals.RETURNED_SPEC(spec=_has_spec(outputs))
    if not isinstance(outputs, dict):
        outputs = [item for item in functions.listed(outputs) if item is not None]
        operations = [item for item in outputs if isinstance(item, tf.Operation)]
        first = outputs[: len(outputs) - len(operations)]
        if any(isinstance(item, tf.Operation) for item in first):
            raise ValueError("A computation must return its tensors before its operations.")
        outputs = first
    tensors = [tf.convert_to_tensor(item) for item in tf.nest.flatten(outputs)]
    return tensors, operations, tf.nest.map_structure(lambda _: None, outputs)


def _has_spec(outputs: Any) -> bool:
    if type(outputs).__name__ in ("EstimatorSpec", "IPUEstimatorSpec"):
        return True
    return isinstance(outputs, (list, tuple)) and any(map(_has_spec, outputs))


def _packed(tensors: List[Any], structure: Any) -> Any:
    if not tensors:
        return tf.no_op()
    return tf.nest.pack_sequence_as(structure, tensors)


def _device() -> str:
    """The device of the scope that is open, as an operation made here would get it."""
    graph = ops.get_default_graph()
    device = ""
    for spec in graph._device_function_stack.peek_objs():
        if isinstance(spec.display_name, str) and "IPU" in spec.display_name:
            device = spec.display_name
            break
    return device


def _ordinal(device: str) -> int:
    return int(device_spec.DeviceSpecV2.from_string(device).device_index or 0) if device else 0


def _is_for_ipu(outer: str) -> bool:
    """Whether a computation belongs to an IPU: by the scope around it, by one inside, or by a strategy."""
    if outer or strategy.current() is not None:
        return True
    graph = ops.get_default_graph()
    while isinstance(graph, func_graph.FuncGraph):
        if any("IPU" in op.device for op in graph.get_operations()):
            return True
        graph = graph.outer_graph
    return False
