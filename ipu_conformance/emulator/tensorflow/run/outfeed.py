"""Outfeeds: what programs on the device leave for the host while they run."""

from __future__ import annotations

import contextlib
import enum
import itertools
import threading
import weakref
from typing import Any, Iterator, List, Optional, Tuple

import tensorflow as tf
from tensorflow.python.framework import errors_impl, func_graph, ops
from tensorflow.python.ops import control_flow_v2_func_graphs, gen_resource_variable_ops

from ipu_conformance.emulator.tensorflow.compile import deferred, functions
from ipu_conformance.emulator.tensorflow.config import environment
from ipu_conformance.emulator.tensorflow.refusals import ops as refusals
from ipu_conformance.emulator.tensorflow.run import replicas
from ipu_conformance.emulator.tensorflow.run.queues import of_any_sdk

NOTHING_YET = "Trying to get the last value from an outfeed queue before it was executed."
_NUMBERS = itertools.count()


class IPUOutfeedMode(enum.Enum):
    """Whether the host gets everything that was enqueued, or the last of it."""

    ALL = "all"
    LAST = "get_last"


class IPUOutfeedQueue:
    """Holds what a program enqueues, until the host dequeues it."""

    @of_any_sdk("IPUOutfeedQueue", IPUOutfeedMode)
    def __init__(
        self,
        outfeed_mode: Optional[IPUOutfeedMode] = None,
        device_ordinal: Optional[int] = None,
        buffer_depth: int = 3,
        optimise_latency: bool = False,
    ) -> None:
        if outfeed_mode is not None and not isinstance(outfeed_mode, IPUOutfeedMode):
            raise ValueError(f"`outfeed_mode` is {outfeed_mode!r}; use a member of IPUOutfeedMode.")
        if buffer_depth < 1:
            raise ValueError(f"`buffer_depth` is {buffer_depth}; it must be at least 1.")
        self._outfeed_mode = outfeed_mode or IPUOutfeedMode.ALL
        self.device_ordinal = device_ordinal or 0
        self._places: List[Tuple[Any, _Built]] = []
        self._stages: Any = weakref.WeakKeyDictionary()
        """By pipeline, for which micro-batch each stage that enqueues was built last."""
        self._queue: Any = None
        self._specs: Tuple[Any, ...] = ()
        self._structure: Any = None

    @property
    def enqueued(self) -> bool:
        """Whether some program enqueues to this queue."""
        return self._queue is not None

    def enqueue(self, tensors: Any) -> Any:
        """The operation that enqueues tensors: one, or a list, tuple or dictionary of them."""
        tensors = tf.nest.map_structure(tf.convert_to_tensor, tensors)

        def combine(everyone: List[Any]) -> List[Any]:
            self._claim()
            return [self._push([[own] for own in everyone])] * len(everyone)

        return replicas.exchange(tensors, combine, "IPUOutfeedQueue.enqueue")

    def _claim(self) -> None:
        """A program enqueues in one place, where its replicas meet; a function in it may be built again."""
        if tf.executing_eagerly():
            return
        program, function = _place()
        if self._enqueued_by_stage():
            return
        for claimed, before in self._places:
            again = before() is not function and before.name == _name(function) is not None
            refusals.SECOND_ENQUEUE(claimed=claimed() is program and not again)
        self._places.append((weakref.ref(program), _Built(function)))

    def _enqueued_by_stage(self) -> bool:
        """Whether the stage that is built has enqueued for another micro-batch, and not yet for this one."""
        if _built.pipeline is None:
            return False
        turns = self._stages.setdefault(_built.pipeline, {})
        before, turns[_built.stage] = turns.get(_built.stage), _built.turn
        return before is not None and before is not _built.turn

    def _push(self, outputs: List[List[Any]]) -> Any:
        """Enqueue the structures of every replica for each turn, ``outputs[replica][turn]``."""
        structure = outputs[0][0]
        flat = [[tf.nest.flatten(turn) for turn in own] for own in outputs]
        turns = range(len(outputs[0]))
        stacked = [tf.stack([self._of_turn(flat, turn, leaf) for turn in turns]) for leaf in range(len(flat[0][0]))]
        self._prepare(structure, stacked)
        if environment.flags().synthetic("outfeed"):
            return tf.no_op()
        if self._outfeed_mode is IPUOutfeedMode.LAST:
            stacked = [leaf[-1:] for leaf in stacked]
            with tf.control_dependencies([self._drained()]):
                return self._queue.enqueue_many(stacked)
        return self._queue.enqueue_many(stacked)

    @staticmethod
    def _of_turn(flat: List[List[List[Any]]], turn: int, leaf: int) -> Any:
        values = [own[turn][leaf] for own in flat]
        return values[0] if len(values) == 1 else tf.stack(values)

    def _prepare(self, structure: Any, stacked: List[Any]) -> None:
        """Make the queue on the host when it is first needed, or for tensors of other shapes."""
        specs = tuple(tf.TensorSpec(leaf.shape[1:], leaf.dtype) for leaf in stacked)
        for spec in specs:
            if not spec.shape.is_fully_defined():
                raise ValueError(f"A tensor of shape {spec.shape} was enqueued: the device needs to know every shape.")
        if specs == self._specs:
            return
        self._specs, self._structure = specs, tf.nest.map_structure(lambda leaf: None, structure)
        with tf.init_scope(), tf.device("/device:CPU:0"):
            self._queue = tf.queue.FIFOQueue(
                -1, [spec.dtype for spec in specs], [spec.shape for spec in specs],
                shared_name=f"ipu_outfeed_{next(_NUMBERS)}",
            )  # fmt: skip

    def _drained(self) -> Any:
        return tf.group(tf.nest.flatten(self._queue.dequeue_many(self._queue.size())))

    def dequeue(self, wait_for_completion: bool = False) -> Any:
        """All that was enqueued and not dequeued yet, one after the other along a new axis; or the last of it.

        In a graph, the tensors that do so when a session runs them.
        """
        last = self._outfeed_mode is IPUOutfeedMode.LAST
        if self._queue is None:
            if last and tf.executing_eagerly():
                raise errors_impl.FailedPreconditionError(None, None, NOTHING_YET)
            raise ValueError("Trying to dequeue from an outfeed that nothing has been enqueued to: enqueue first.")
        leaves = self._taken()
        if not tf.executing_eagerly():
            leaves = deferred.note_dequeue(self, leaves)
        return tf.nest.pack_sequence_as(self._structure, leaves)

    def _taken(self) -> List[Any]:
        """The tensors of a dequeue."""
        last = self._outfeed_mode is IPUOutfeedMode.LAST
        with tf.device("/device:CPU:0"):
            size = self._queue.size()
            if last and tf.executing_eagerly() and not int(size):
                raise errors_impl.FailedPreconditionError(None, None, NOTHING_YET)
            dependencies = []
            if last and not tf.executing_eagerly():
                dependencies = [tf.cond(size > 0, lambda: True, lambda: functions.fail(NOTHING_YET))]
            with tf.control_dependencies(dependencies):
                taken = functions.listed(self._queue.dequeue_many(size))
            return [leaf[0] for leaf in taken] if last else taken  # the last is all that such a queue keeps

    @property
    def deleter(self) -> Any:
        """The operation that frees what the queue holds; in eager mode it is done at once."""
        if self._queue is None:
            raise ValueError("Nothing has been enqueued to this outfeed: there is nothing to delete.")
        return gen_resource_variable_ops.destroy_resource_op(self._queue.queue_ref, ignore_lookup_error=True)

    def __iter__(self) -> IPUOutfeedQueueIterator:
        if not tf.executing_eagerly():
            raise RuntimeError("Iterating over an IPUOutfeedQueue is only supported in eager mode: use dequeue.")
        return IPUOutfeedQueueIterator(self)


class ScopedIPUOutfeedQueue(IPUOutfeedQueue):
    """An outfeed queue that is deleted when the program forgets it."""

    def __init__(self, outfeed_mode: Optional[IPUOutfeedMode] = None, device_ordinal: Optional[int] = None) -> None:
        super().__init__(outfeed_mode, device_ordinal)

    def __del__(self) -> None:
        if self._queue is not None and tf.executing_eagerly():
            _ = self.deleter


class IPUOutfeedQueueIterator(Iterator[Any]):
    """Goes through what was enqueued, one enqueue after the other, and ends when there is no more."""

    def __init__(self, outfeed_queue: IPUOutfeedQueue) -> None:
        self._source = outfeed_queue
        self._waiting: List[Any] = []

    def __next__(self) -> Any:
        if not self._waiting:
            self._waiting = self._more()
        if not self._waiting:
            raise StopIteration
        return self._waiting.pop(0)

    def _more(self) -> List[Any]:
        if not self._source.enqueued:
            return []
        try:
            taken = self._source.dequeue()
        except errors_impl.FailedPreconditionError:
            return []
        if self._source._outfeed_mode is IPUOutfeedMode.LAST:
            return [taken]
        count = int(tf.nest.flatten(taken)[0].shape[0])
        return [tf.nest.map_structure(lambda leaf: leaf[index], taken) for index in range(count)]  # noqa: B023


class _BuiltStage(threading.local):
    """The stage of a pipeline that this thread is building, if any, and for which turn."""

    pipeline: Any = None
    stage = 0
    turn: Any = None


_built = _BuiltStage()


@contextlib.contextmanager
def in_stage(pipeline: Any, stage: int, replicas_: int) -> Iterator[None]:
    """Inside, a stage is built for one of its micro-batches: it may enqueue where it did for the others."""
    before = _built.pipeline, _built.stage, _built.turn
    # The values of several replicas would have to meet, and every replica's stage is built alone.
    _built.pipeline, _built.stage, _built.turn = pipeline if replicas_ == 1 else None, stage, object()
    try:
        yield
    finally:
        _built.pipeline, _built.stage, _built.turn = before


class _Built:
    """The graph of a function and its name, which outlives it."""

    def __init__(self, function: Any) -> None:
        self.name = _name(function)
        self._function = weakref.ref(function) if function is not None else None

    def __call__(self) -> Any:
        return self._function() if self._function is not None else None


def _place() -> Tuple[Any, Any]:
    """The outermost graph that is being built, and the graph of the function in it that is; None for none.

    TensorFlow builds a function that makes variables twice, and the program goes on with the second graph alone.
    """
    graph, function = ops.get_default_graph(), None
    while isinstance(graph, func_graph.FuncGraph) and isinstance(graph.outer_graph, func_graph.FuncGraph):
        if not isinstance(graph, control_flow_v2_func_graphs.WhileBodyFuncGraph):
            function = graph
        graph = graph.outer_graph
    return graph, function


def _name(function: Any) -> Optional[str]:
    return None if function is None else function.name
