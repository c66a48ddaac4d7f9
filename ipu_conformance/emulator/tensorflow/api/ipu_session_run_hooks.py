"""Hooks of a session that learn from the device while it runs a loop."""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_estimator as decide
from ipu_conformance.emulator.tensorflow.api.ops.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue

__all__ = ["IPULoggingTensorHook"]


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
        device_ordinal: int = 0,
    ) -> None:
        super().__init__({}, every_n_iter, every_n_secs, at_end, formatter)
        self._outfeed = IPUOutfeedQueue(logging_mode, device_ordinal)
        self._names: Any = ()

    def log(self, tensors: Any) -> Any:
        """The operation that hands tensors to this hook: a dictionary, a list or one tensor; call it once."""
        if decide("logged-once", bool(self._names)):
            raise RuntimeError("`log` was called twice: an IPULoggingTensorHook logs what it is given in one call.")
        if not isinstance(tensors, dict):
            listed = tensors if isinstance(tensors, (list, tuple)) else [tensors]
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

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Log, if it is time, what was left so far."""
        if decide("logging-due", self._should_trigger):
            self._log_tensors(run_context.session.run(self._taken))
        self._iter_count += 1

    def end(self, session: Any) -> None:
        """Log what has not been logged, if that was asked for."""
        if self._log_at_end:
            self._log_tensors(session.run(self._taken))
