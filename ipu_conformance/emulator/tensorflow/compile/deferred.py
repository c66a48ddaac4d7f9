"""Programs of a graph, until a session runs it: a configuration may still change how many replicas they have.

When a session first runs the graph, what was built for other IPUs than those of the configuration in force, or before
any, is built again for these, and the operations that the user holds take their values from there. An error of that
build is an error of the run, as it is where a device compiles. The next session does the same; one that has run the
graph sees no change of it, and is refused.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.framework import ops

from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.refusals import system as refusals

Build = Callable[[], Tuple[Any, Sequence[Any]]]
"""Builds a program into its graph: the operation that runs it, and its results."""


class _Program(NamedTuple):
    """One program, and the operations that stand for it in the user's graph."""

    build: Build
    changed: Callable[[], bool]
    """Whether it was built for other IPUs than there are."""
    kept: Sequence[tf.Operation]

    def rebuild(self) -> None:
        """Let the operations that stand for the program follow another build of it."""
        if not self.changed():
            return
        ran, results = self.build()
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

    def followed(self) -> _Dequeue:
        """Take from the queue that the programs use now."""
        if self.outfeed._queue is self.queue:
            return self
        with tf.control_dependencies(self.kept[0].op.control_inputs):
            leaves = [_of_any_shape(leaf) for leaf in self.outfeed._taken()]
        for tensor, leaf in zip(self.kept, leaves):
            tensor.op._update_input(0, leaf)
        return self._replace(queue=self.outfeed._queue)


class _Waiting:
    """What a graph holds that may be built again; the graph has it, so that both are forgotten together."""

    def __init__(self) -> None:
        self.programs: List[_Program] = []
        self.dequeues: List[_Dequeue] = []

    def follow(self, session: Any) -> None:
        """Build what a graph holds for the IPUs that there are, before a session runs it for the first time."""
        ran, graph = getattr(session, RAN, False), session._graph
        setattr(session, RAN, True)
        changed = any(program.changed() for program in self.programs)
        refusals.CONFIGURED_AFTER_A_RUN(ran=ran, changed=changed)
        if ran or not (changed or self.dequeues):
            return
        was_finalized = graph.finalized
        graph._unsafe_unfinalize()
        try:
            with graph.as_default():
                for program in self.programs:
                    program.rebuild()
                self.dequeues = [dequeue.followed() for dequeue in self.dequeues]
        finally:
            if was_finalized:
                graph.finalize()


WAITING = "_ipu_waiting"
"""The attribute of a graph that holds what waits: a session asks for it (``activation``)."""
RAN = "_ipu_ran"
"""The attribute of a session that has run its graph."""


def _of_default_graph() -> _Waiting:
    graph = ops.get_default_graph()
    if not hasattr(graph, WAITING):
        setattr(graph, WAITING, _Waiting())
    waiting: _Waiting = getattr(graph, WAITING)
    return waiting


def note(build: Build, changed: Callable[[], bool], kept: Sequence[Any]) -> None:
    """Build a program again when a configuration changes its IPUs."""
    operations = [item if isinstance(item, tf.Operation) else item.op for item in kept]
    _of_default_graph().programs.append(_Program(build, changed, operations))


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


def _of_any_shape(tensor: Any) -> Any:
    """A tensor whose shape the graph does not know: an operation may take one of another shape in its place."""
    with tf.device("/device:CPU:0"):
        return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=tf.TensorShape(None))
