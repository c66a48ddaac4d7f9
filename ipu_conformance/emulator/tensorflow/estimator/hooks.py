"""What the session of an estimator does before and after each loop."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_estimator as decide
from ipu_conformance.emulator.tensorflow.estimator import steps
from ipu_conformance.errors import ConformanceError


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
        if decide("data-end-refused", self._running):
            raise DataSetEnded(
                "The data set of the input_fn ended in the middle of a loop: repeat it, or ask for as many steps or "
                "predictions as it has data for."
            )


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
        self._loops = steps.loops(self._last - start, self._each)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop after the last loop."""
        self._loops -= 1
        if self._loops <= 0:
            run_context.request_stop()
