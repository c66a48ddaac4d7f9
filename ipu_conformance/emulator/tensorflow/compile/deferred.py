"""Programs of a graph that is built before the system is configured: how many replicas they have is known later.

What was built for one replica is built again for the IPUs of the configuration, and the operations that the user holds
take their values from there. What a session has run already stays as it is.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.framework import ops

from ipu_conformance.emulator.tensorflow.config import system

Build = Callable[[], Tuple[Any, Sequence[Any]]]
"""Builds a program into its graph: the operation that runs it, and its results."""


class _Program:
    """One program, and the operations that stand for it in the user's graph."""

    def __init__(self, build: Build, kept: Sequence[Any]) -> None:
        self.graph = weakref.ref(ops.get_default_graph())
        self.build = build
        self.kept = [item if isinstance(item, tf.Operation) else item.op for item in kept]

    def rebuild(self) -> None:
        """Let the operations that stand for the program follow another build of it."""
        graph = self.graph()
        if graph is None or graph.finalized:
            return
        with graph.as_default():
            ran, results = self.build()
        for place, operation in enumerate(self.kept):
            if results:
                operation._update_input(0, results[place])
            operation._remove_all_control_inputs()
            operation._add_control_input(ran.op)


_waiting: List[_Program] = []
_queues: List[Any] = []


def note(build: Build, kept: Sequence[Any]) -> None:
    """Build a program again once the system is configured."""
    _waiting.append(_Program(build, kept))


def note_dequeue(queue: Any, leaves: Sequence[Any]) -> List[Any]:
    """The tensors of a dequeue, of shapes that are not known yet; they follow the queue that programs then use."""
    kept = [tf.identity(_of_any_shape(leaf)) for leaf in leaves]
    _queues.append((weakref.ref(ops.get_default_graph()), weakref.ref(queue), kept))
    return kept


@system.on_reset
def _forget() -> None:
    _waiting.clear()
    _queues.clear()


@system.on_configure
def _configured() -> None:
    programs, queues = list(_waiting), list(_queues)
    _waiting.clear()
    _queues.clear()
    if all(count == 1 for count in system.devices()):
        return
    for program in programs:
        program.rebuild()
    for known, queue, kept in queues:
        graph, outfeed = known(), queue()
        if graph is None or outfeed is None or graph.finalized:
            continue
        with graph.as_default(), tf.control_dependencies(kept[0].op.control_inputs):
            leaves = [_of_any_shape(leaf) for leaf in outfeed._taken()]
        for tensor, leaf in zip(kept, leaves):
            tensor.op._update_input(0, leaf)


def _of_any_shape(tensor: Any) -> Any:
    """A tensor whose shape the graph does not know: an operation may take one of another shape in its place."""
    with tf.device("/device:CPU:0"):
        return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=tf.TensorShape(None))
