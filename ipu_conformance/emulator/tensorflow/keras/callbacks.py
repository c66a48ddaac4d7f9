"""Asynchronous callbacks: every step is seen, in order, by a thread beside the one that trains."""

from __future__ import annotations

import functools
import inspect
import queue
import threading
from typing import Any, Callable, Dict, Optional

from ipu_conformance.emulator.faults.decisions import keras_model as decide
from ipu_conformance.emulator.tensorflow.keras import library


def last_step(logs: Any) -> Any:
    """The logs of the last of the steps that are stacked."""
    import tensorflow as tf

    return tf.nest.map_structure(lambda values: values[-1], logs)


def stepped(model: Any, run: Callable[..., Any], arguments: Any, settings: Any) -> Dict[str, Any]:
    """The arguments of fit, evaluate or predict with callbacks that see every step."""
    bound = inspect.signature(run).bind(*arguments, **settings)
    bound.apply_defaults()
    given = dict(bound.arguments)
    given.update(given.pop("kwargs", {}))
    lists = library.module("callbacks").CallbackList
    if not isinstance(given.get("callbacks"), lists):
        given["callbacks"] = stepped_class()(
            given.get("callbacks"),
            add_history=True,
            add_progbar=given.get("verbose", 1) != 0,
            model=model,
            verbose=1 if given.get("verbose") == "auto" else given.get("verbose", 1),
            epochs=given.get("epochs", 1),
            steps=None,
        )
    return given


@functools.lru_cache(maxsize=None)
def stepped_class() -> Any:
    """Keras' own list of callbacks, called for every step by a thread of its own."""
    import tensorflow as tf

    class SteppedCallbacks(library.module("callbacks").CallbackList):  # type: ignore[misc]
        """Between two epochs the thread has seen everything: what is called once per epoch waits for it."""

        def __init__(self, *arguments: Any, **settings: Any) -> None:
            self._worker: Optional[_Worker] = None
            self._first = 0
            super().__init__(*arguments, **settings)

        def on_train_begin(self, logs: Any = None) -> None:
            self.set_params({**(self.params or {}), "steps": self.model._ipu.steps_of_epoch})
            super().on_train_begin(logs)

        def _post(self, mode: str, end_step: int, logs: Any) -> None:
            if self._worker is None:
                self._worker = _Worker()
            logs = tf.nest.map_structure(lambda values: values.numpy(), logs)
            number = len(tf.nest.flatten(logs)[0])
            begin, end = getattr(super(), f"on_{mode}_batch_begin"), getattr(super(), f"on_{mode}_batch_end")
            for place in decide("steps-called", list(range(number))):
                step = end_step - number + 1 + place
                own = tf.nest.map_structure(lambda values, place=place: values[place], logs)
                self._worker.put(functools.partial(begin, step))
                self._worker.put(functools.partial(end, step, own))

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            """Steps are announced when their results are there."""

        def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
            """Steps are announced when their results are there."""

        def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._first = batch

        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            number = batch - self._first + 1
            cut = tf.nest.map_structure(lambda value: tf.stack(tf.split(value, number)), logs)
            self._post("predict", batch, cut)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._post("train", batch, logs)

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            self._post("test", batch, logs)

        def _settle(self) -> None:
            worker, self._worker = self._worker, None
            if worker is not None:
                worker.finish()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if decide("epoch-waits", True):
                self._settle()
            super().on_epoch_end(epoch, logs)

    def settling(event: str) -> Callable[..., None]:
        def on_event(self: Any, logs: Any = None) -> None:
            self._settle()
            getattr(super(SteppedCallbacks, self), event)(logs)

        return on_event

    for event in ("on_train_end", "on_test_begin", "on_test_end", "on_predict_end"):
        setattr(SteppedCallbacks, event, settling(event))
    return SteppedCallbacks


class _Worker:
    """Calls functions in order in a thread of its own; an error in one is raised when it finishes."""

    def __init__(self) -> None:
        self._calls: queue.Queue[Optional[Callable[[], Any]]] = queue.Queue()
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._live, name="callbacks", daemon=True)
        self._thread.start()

    def put(self, call: Callable[[], Any]) -> None:
        """Call it after all that were put before."""
        self._calls.put(call)

    def finish(self) -> None:
        """Wait for all calls."""
        self._calls.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _live(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            if self._error is None:
                try:
                    call()
                except BaseException as error:
                    self._error = decide("callback-error", error)
