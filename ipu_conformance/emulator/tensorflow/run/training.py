"""Runs a plan while a graph is built, and repeats what was built in a loop on the device.

One run of a plan is unrolled: its slots become part of a graph once, and a loop executes them as often as an execution
has runs. Elements of the data set are dealt out in the order of ``emulator.streams``: replica r of step i takes element
``i * replicas + r``.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

from ipu_conformance.emulator.core.engine import Engine, Machine, _Replica
from ipu_conformance.emulator.core.plan import Plan
from ipu_conformance.emulator.core.streams import Layout, Selection
from ipu_conformance.emulator.core.trace import Recorder
from ipu_conformance.emulator.tensorflow.run import replicas


class GraphEngine(Engine):
    """The engine whose replicas are built into one graph, so that they can meet anywhere in a slot."""

    def __init__(self, plan: Plan, machine: Machine) -> None:
        super().__init__(plan, machine, parallel=plan.replicas > 1)

    def _execute_in_parallel(self, team: Sequence[_Replica], rows: List[Tuple[int, ...]]) -> None:
        replicas.run(self._execute, [(replica, rows) for replica in team])


def layout_of(plan: Plan) -> Layout:
    """How the elements of one run are dealt out."""
    return Layout(plan.device_iterations, plan.micro_batches, plan.replicas)


def one_run(
    plan: Plan, machine: Machine, take: Callable[[], Any], recorder: Optional[Recorder] = None
) -> List[List[Any]]:
    """Build one run on the next elements that ``take`` gives: the outputs by replica and micro-batch.

    A recorder gets the slots in the order in which they are built, which is that of every execution.
    """
    layout = layout_of(plan)
    elements = [take() for _ in range(layout.inputs)]
    fed = [[elements[position] for position in own] for own in layout.positions().tolist()]
    with GraphEngine(plan, machine) as engine:
        return engine.run(fed, recorder)


def arranged(selection: Selection, outputs: Sequence[Sequence[Any]]) -> List[Any]:
    """The entries of a selection from outputs that are structures of tensors."""
    import tensorflow as tf

    structure = outputs[0][0]
    flat = [[tf.nest.flatten(output) for output in own] for own in outputs]
    leaves = len(tf.nest.flatten(structure))
    columns = [selection.arrange([[output[leaf] for output in own] for own in flat]) for leaf in range(leaves)]
    return [
        tf.nest.pack_sequence_as(structure, [column[entry] for column in columns])
        for entry in range(selection.multiplier)
    ]


def spec_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """The shapes and dtypes of what a function returns, from building it in a graph that is thrown away.

    Variables that it makes on the way stay, as they are made outside of all graphs.
    """
    import tensorflow as tf
    from tensorflow.python.framework import func_graph

    graph = func_graph.func_graph_from_py_func("scratch", function, arguments, {})
    return tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), graph.structured_outputs)


def built(function: Callable[..., Any], arguments: Sequence[Any], name: str = "ipu_run") -> Any:
    """The function of a graph that is built once; its operations run in the order in which they were built.

    Variables that it makes on the way are made outside of all graphs: ``tf.function`` would build it a second time.
    """
    from tensorflow.python.eager.polymorphic_function import tracing_compilation

    options = tracing_compilation.TracingOptions(python_function=function, name=name, autograph=False)
    return tracing_compilation.trace_function(tuple(arguments), {}, options)


def repeated_last(times: Any, body: Callable[[], Any], spec: Any) -> Any:
    """What the last of ``times`` executions of ``body`` returns."""
    import tensorflow as tf

    start = tf.nest.map_structure(lambda leaf: tf.zeros(leaf.shape, leaf.dtype), spec)
    _, last = tf.while_loop(
        lambda turn, _: turn < times, lambda turn, _: (turn + 1, body()), (tf.zeros_like(times), start)
    )
    return last


def repeated_all(times: Any, body: Callable[[], Any], spec: Any) -> Any:
    """What every execution of ``body`` returns, one after the other along dimension 0."""
    import tensorflow as tf

    arrays = [tf.TensorArray(leaf.dtype, size=times, infer_shape=False) for leaf in tf.nest.flatten(spec)]

    def turn(number: Any, held: Any) -> Any:
        return number + 1, [array.write(number, leaf) for array, leaf in zip(held, tf.nest.flatten(body()))]

    _, arrays = tf.while_loop(lambda number, _: number < times, turn, (tf.zeros_like(times), arrays))
    joined = [array.concat() for array in arrays]
    for value, leaf in zip(joined, tf.nest.flatten(spec)):
        value.set_shape([None, *leaf.shape[1:]])
    return tf.nest.pack_sequence_as(spec, joined)
