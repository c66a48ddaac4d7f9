"""What the session of an estimator does before and after each loop."""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.refusals import estimator as refusals
from ipu_conformance.emulator.tensorflow.run.outfeed import IPUOutfeedMode, IPUOutfeedQueue
from ipu_conformance.errors import ConformanceError


def loops(steps: int, iterations_per_loop: int) -> int:
    """The loops in which so many steps are done: the last step of the last one may be a later one."""
    return max(0, -(-steps // iterations_per_loop))


class DataSetEnded(ConformanceError, RuntimeError):  # noqa: N818 (it says what is)
    """A loop on the device has asked for more elements than the data set has."""


class FeedHook(tf.compat.v1.train.SessionRunHook):
    """Starts the infeed with the session, and fails where a loop was left without data.

    The end of a data set does not reach the device: stock's quiet end of training would hide that a program hangs.
    """

    def __init__(self, infeed: Any) -> None:
        self._infeed = infeed
        self._running = False

    def begin(self) -> None:
        """Take the operation that starts the infeed."""
        self._initializer = self._infeed.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Start it."""
        session.run(self._initializer)

    def before_run(self, run_context: Any) -> None:
        """A loop begins."""
        self._running = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """A loop is over."""
        self._running = False

    def end(self, session: Any) -> None:
        """Stock ends without an error when the data does."""
        refusals.DATA_END(running=self._running)


class CountSteps(tf.compat.v1.train.SessionRunHook):
    """Counts the iterations of an evaluation's loops as global steps, in the session of the evaluation only."""

    def __init__(self, iterations_per_loop: int) -> None:
        self._each = iterations_per_loop

    def begin(self) -> None:
        """Make the operation that counts a loop."""
        step = tf.compat.v1.train.get_global_step()
        self._count = step.assign_add(tf.cast(self._each, step.dtype), read_value=False)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """A loop is over."""
        run_context.session.run(self._count)


class StopAfterLoops(tf.compat.v1.train.SessionRunHook):
    """Ends training after as many loops as the steps are, counted from where the session has begun."""

    def __init__(self, iterations_per_loop: int, more: Optional[int], last: Optional[int]) -> None:
        self._each = iterations_per_loop
        self._more, self._last = more, last

    def begin(self) -> None:
        """Find the global step."""
        self._step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Count from the step of the checkpoint."""
        start = int(session.run(self._step))
        if self._last is None:
            assert self._more is not None
            self._last = start + self._more
        self._loops = loops(self._last - start, self._each)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop after the last loop."""
        self._loops -= 1
        if self._loops <= 0:
            run_context.request_stop()


class IPULoggingTensorHook(tf.compat.v1.train.LoggingTensorHook):
    """Stock's LoggingTensorHook for tensors of the device: the program gives them to ``log``.

    Iterations are runs of the session: it logs what the loops since the last time have left, or the last of it.
    """

    LoggingMode = IPUOutfeedMode

    def __init__(
        self,
        every_n_iter: Optional[int] = None,
        every_n_secs: Optional[float] = None,
        at_end: bool = False,
        formatter: Optional[Callable[[Any], str]] = None,
        logging_mode: IPUOutfeedMode = IPUOutfeedMode.LAST,
    ) -> None:
        super().__init__({}, every_n_iter, every_n_secs, at_end, formatter)
        self._outfeed = IPUOutfeedQueue(logging_mode)
        self._names: Any = ()

    def log(self, tensors: Any) -> Any:
        """The operation that hands tensors to this hook: a dictionary, a list or one tensor; call it once."""
        refusals.LOGGED_TWICE(logged=bool(self._names))
        if not isinstance(tensors, dict):
            listed = tensors if isinstance(tensors, (list, tuple)) else [tensors]
            for tensor in listed:
                refusals.LOGGED_TYPE(value=tensor, is_tensor=tf.is_tensor(tensor))
            tensors = {tensor.name: tensor for tensor in listed}
        self._names = list(tensors)
        return self._outfeed.enqueue(tensors)

    def begin(self) -> None:
        """Make ready to take what the program leaves."""
        if not self._names:
            raise RuntimeError("`log` was never called: give this hook tensors in the function for the device.")
        super().begin()
        self._tag_order = self._names
        self._taken = self._outfeed.dequeue()

    def before_run(self, run_context: Any) -> None:
        """Whether it is time is asked after a loop."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Log, if it is time, what was left so far."""
        if self._timer.should_trigger_for_step(self._iter_count):
            self._log_tensors(run_context.session.run(self._taken))
        self._iter_count += 1

    def end(self, session: Any) -> None:
        """Log what has not been logged, if that was asked for."""
        if self._log_at_end:
            self._log_tensors(session.run(self._taken))
