"""Programs of a graph, until a session has run it: a configuration may still change how many replicas they have.

What was built for other IPUs than those of the configuration in force, or before any, is built again for these, and the
operations that the user holds take their values from there. What a session has run already stays as it is.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.framework import ops

from ipu_conformance.emulator.tensorflow.config import system

Build = Callable[[], Optional[Tuple[Any, Sequence[Any]]]]
"""Builds a program into its graph: the operation that runs it, and its results; None where nothing has changed."""


class _Program(NamedTuple):
    """One program, and the operations that stand for it in the user's graph."""

    build: Build
    kept: Sequence[tf.Operation]

    def rebuild(self) -> None:
        """Let the operations that stand for the program follow another build of it."""
        built = self.build()
        if built is None:
            return
        ran, results = built
        for place, operation in enumerate(self.kept):
            if results:
                operation._update_input(0, results[place])
            operation._remove_all_control_inputs()
            operation._add_control_input(ran.op)


class _Dequeue(NamedTuple):
    """The tensors of a dequeue in the user's graph, and the queue on the host that they take from."""

    outfeed: Any
    queue: Any
    kept: Sequence[Any]

    def follow(self) -> None:
        """Take from the queue that the programs use now."""
        if self.outfeed._queue is self.queue:
            return
        with tf.control_dependencies(self.kept[0].op.control_inputs):
            leaves = [_of_any_shape(leaf) for leaf in self.outfeed._taken()]
        for tensor, leaf in zip(self.kept, leaves):
            tensor.op._update_input(0, leaf)


class _Waiting(NamedTuple):
    """What a graph holds that may be built again; the graph has it, so that both are forgotten together."""

    programs: List[_Program]
    dequeues: List[_Dequeue]


WAITING, RAN = "_ipu_waiting", "_ipu_ran"
"""Attributes of a graph: what it holds, and whether a session has run it, which sees no change of an operation."""
_graphs: Any = weakref.WeakSet()


def _of_default_graph() -> _Waiting:
    graph = ops.get_default_graph()
    waiting: Optional[_Waiting] = getattr(graph, WAITING, None)
    if waiting is None:
        waiting = _Waiting([], [])
        setattr(graph, WAITING, waiting)
        _graphs.add(graph)
    return waiting


def note(build: Build, kept: Sequence[Any]) -> None:
    """Build a program again when a configuration changes its IPUs."""
    operations = [item if isinstance(item, tf.Operation) else item.op for item in kept]
    _of_default_graph().programs.append(_Program(build, operations))


def note_dequeue(outfeed: Any, leaves: Sequence[Any]) -> List[Any]:
    """The tensors of a dequeue, which follow the queue that programs use by then.

    Before a configuration their shapes are not known; the shapes of one with other replicas are found out by a run.
    """
    kept = [tf.identity(_of_any_shape(leaf)) for leaf in leaves]
    if system.configured():
        for tensor, leaf in zip(kept, leaves):
            tensor.set_shape(leaf.shape)
    _of_default_graph().dequeues.append(_Dequeue(outfeed, outfeed._queue, kept))
    return kept


@system.on_configure
def _configured() -> None:
    for graph in list(_graphs):
        if graph.finalized or getattr(graph, RAN, False):
            _graphs.discard(graph)
            continue
        waiting: _Waiting = getattr(graph, WAITING)
        with graph.as_default():
            for program in waiting.programs:
                program.rebuild()
            for place, dequeue in enumerate(waiting.dequeues):
                dequeue.follow()
                waiting.dequeues[place] = dequeue._replace(queue=dequeue.outfeed._queue)


def _of_any_shape(tensor: Any) -> Any:
    """A tensor whose shape the graph does not know: an operation may take one of another shape in its place."""
    with tf.device("/device:CPU:0"):
        return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=tf.TensorShape(None))
