"""A loop on the device whose iterations may accumulate gradients, and update weights after every so many.

A loop is built once, as a loop in a loop: the inner one runs the iterations between two updates, the outer one updates.
Their number is known once the body is built: gradient accumulation passes it to ``after_every``. If a body accumulates
nothing, the inner loop runs all iterations.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_resource_variable_ops, resource_variable_ops

from ipu_conformance.emulator.tensorflow.compile import functions, graph_context
from ipu_conformance.emulator.tensorflow.run import replicas

Body = Callable[..., List[Any]]
_NUMBERS = itertools.count()


class _ThreadState(threading.local):
    """The iteration that this thread builds, innermost last."""

    def __init__(self) -> None:
        self.open: List[Iteration] = []


_thread_state = _ThreadState()


def current() -> Optional[Iteration]:
    """The iteration of a loop that is being built, None outside of loops."""
    return _thread_state.open[-1] if _thread_state.open else None


class Iteration:
    """One replica's iteration while it is built: its number, and what it asks of the loop."""

    def __init__(self, loop: _Loop, number: Any, since_update: Any) -> None:
        self.loop = loop
        self.number = number
        """The number of the iteration, from 0: a tensor."""
        self.since_update = since_update
        """How many iterations have passed since the last update: a tensor."""
        self.updates: List[Callable[[], Any]] = []
        self.context: Optional[graph_context.GraphContext] = None

    def after_every(self, count: int, update: Callable[[], Any]) -> None:
        """Call ``update`` once all ``count`` iterations are over; every part of a body must ask for the same count."""
        if not self.loop.counted:
            raise ValueError(
                "gradient accumulation was used in a loop whose number of iterations is not known: use loops.repeat"
            )
        if self.loop.every not in (None, count):
            raise ValueError(
                f"gradients of {count} and of {self.loop.every} mini-batches were to be accumulated in one loop: use "
                "one number"
            )
        self.loop.every = count
        context = self.context
        assert context is not None

        def updating() -> None:
            with context.entered():
                update()

        self.updates.append(updating)

    def owns(self, tensor: Any) -> bool:
        """Whether a tensor is of this iteration, and so out of reach for the update after it."""
        graph = ops.get_default_graph()
        while graph is not self.loop.between_updates:
            if tensor.graph is graph:
                return True
            graph = getattr(graph, "outer_graph", None)
            if graph is None:
                break
        return False

    def accumulator(self, shape: Any, dtype: Any) -> Accumulator:
        """A tensor that starts with zeros after every update and keeps its value from one iteration to the next."""
        with self.loop.between_updates.as_default():
            made = Accumulator(shape, dtype)
        self.loop.accumulators.append(made)
        return made


class Accumulator:
    """A resource of a running program, not a variable of the host: the program makes, zeroes and forgets it."""

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.dtype = dtype
        with tf.init_scope(), tf.device("/device:CPU:0"):
            self._handle = resource_variable_ops.var_handle_op(
                dtype=dtype, shape=shape, shared_name=f"ipu_accumulator_{next(_NUMBERS)}"
            )
        gen_resource_variable_ops.assign_variable_op(self._handle, tf.zeros(shape, dtype))

    def read(self) -> Any:
        """Its value."""
        return gen_resource_variable_ops.read_variable_op(self._handle, self.dtype)

    def write(self, value: Any) -> Any:
        """Replace its value."""
        return gen_resource_variable_ops.assign_variable_op(self._handle, value)

    def forget(self) -> Any:
        """Free its memory until it is zeroed again."""
        return gen_resource_variable_ops.destroy_resource_op(self._handle, ignore_lookup_error=True)


class _Loop:
    """What the iterations of a loop have in common."""

    def __init__(self, counted: bool) -> None:
        self.counted = counted
        self.every: Optional[int] = None
        self.between_updates: Any = None
        self.accumulators: List[Accumulator] = []


@contextlib.contextmanager
def _building(iteration: Iteration) -> Iterator[None]:
    _thread_state.open.append(iteration)
    try:
        yield
    finally:
        _thread_state.open.pop()


def _in_context(body: Body, context: graph_context.GraphContext) -> Body:
    """The body, built in the context of the replica that called the loop; so are the updates that it asks for."""

    def taken(*values: Any) -> List[Any]:
        iteration = current()
        assert iteration is not None
        iteration.context = context
        with context.entered():
            return body(*values)

    return taken


def _update(updates: List[Callable[[], Any]]) -> None:
    for update in updates:
        update()


def counted(times: Any, body: Body, values: Sequence[Any]) -> List[Any]:
    """The values after ``times`` iterations of ``values = body(*values)``, of the replica that asks."""
    if tf.executing_eagerly():
        return list(tf.function(lambda: counted(times, body, values), autograph=False)())
    context = graph_context.GraphContext()
    finished: List[Any] = replicas.exchange(
        (_in_context(body, context), [tf.convert_to_tensor(value) for value in values]),
        lambda all_: _counted(times, all_),
        "a loop",
    )
    context.advance()
    return finished


def _counted(times: Any, everyone: List[Tuple[Body, List[Any]]]) -> List[List[Any]]:
    """The loop of all replicas; what the values of each become."""
    loop, lengths = _Loop(counted=True), [len(values) for _, values in everyone]
    times = tf.convert_to_tensor(times, tf.int32)

    def between(start: Any, *held: Any) -> List[Any]:
        """All iterations up to an update, and the update."""
        loop.between_updates = ops.get_default_graph()
        updates: List[List[Callable[[], Any]]] = []

        def iteration(number: Any, until: Any, *inner: Any) -> List[Any]:
            results = graph_context.run(
                _one,
                [
                    (loop, start + number, number, body, own)
                    for (body, _), own in zip(everyone, replicas.by_replica(inner, lengths))
                ],
            )
            updates.extend(own_updates for _, own_updates in results)
            length = times - start if loop.every is None else tf.constant(loop.every)
            return [number + 1, length, *(value for own, _ in results for value in own)]

        _, passed, *held = tf.while_loop(
            lambda number, until, *_: number < until,
            iteration,
            [tf.constant(0), tf.constant(1), *held],
            parallel_iterations=1,
        )
        if loop.every is not None:
            _require_whole(times, loop.every)
            graph_context.run(_update, [(own,) for own in updates])
        return [start + passed, *held]

    flat = [value for _, values in everyone for value in values]
    _, *finished = tf.while_loop(
        lambda start, *_: start < times, between, [tf.constant(0), *flat], parallel_iterations=1
    )
    for accumulator in loop.accumulators:
        accumulator.forget()
    return replicas.by_replica(finished, lengths)


def _one(loop: _Loop, number: Any, since_update: Any, body: Body, values: Sequence[Any]) -> Any:
    """One replica's iteration: its results and its updates."""
    iteration = Iteration(loop, number, since_update)
    with _building(iteration):
        return body(*values), iteration.updates


def _require_whole(times: Any, every: int) -> None:
    known = tf.get_static_value(times)
    number = "another number of" if known is None else int(known)
    functions.fail_if(
        tf.not_equal(times % every, 0) if known is None else int(known) % every != 0,
        f"Detected a gradient accumulation over {every} mini-batches in a loop of {number} iterations: the number of "
        "iterations must be divisible by the number of mini-batches.",
    )


def conditional(
    condition: Callable[..., Any], body: Body, values: Sequence[Any], maximum_iterations: Any = None
) -> List[Any]:
    """The values after iterations of ``values = body(*values)`` while the condition holds on the first replica."""
    if tf.executing_eagerly():
        run = tf.function(lambda: conditional(condition, body, values, maximum_iterations), autograph=False)
        return list(run())
    context = graph_context.GraphContext()
    finished: List[Any] = replicas.exchange(
        (condition, _in_context(body, context), [tf.convert_to_tensor(value) for value in values]),
        lambda all_: _conditional(all_, maximum_iterations),
        "a loop",
    )
    context.advance()
    return finished


def _conditional(everyone: List[Any], maximum_iterations: Any) -> List[List[Any]]:
    loop, lengths = _Loop(counted=False), [len(values) for _, _, values in everyone]

    def holds(number: Any, *held: Any) -> Any:
        # Replicas run one program in step: the first one's condition is that of all.
        return everyone[0][0](*replicas.by_replica(held, lengths)[0])

    def turn(number: Any, *held: Any) -> List[Any]:
        results = graph_context.run(
            _one,
            [
                (loop, number, number, body, own)
                for (_, body, _), own in zip(everyone, replicas.by_replica(held, lengths))
            ],
        )
        return [number + 1, *(value for own, _ in results for value in own)]

    flat = [value for _, _, values in everyone for value in values]
    _, *finished = tf.while_loop(
        holds, turn, [tf.constant(0), *flat], parallel_iterations=1, maximum_iterations=maximum_iterations
    )
    return replicas.by_replica(finished, lengths)
