"""Asynchronous callbacks: every step is seen, in order, by a thread beside the one that trains."""

from __future__ import annotations

import functools
import inspect
import queue
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

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
    return type("SteppedCallbacks", (Stepped, library.module("callbacks").CallbackList), {})


def steps_of(logs: Any, end_step: int) -> List[Tuple[int, Any]]:
    """The number and the logs of each of the steps that are stacked, which end with ``end_step``."""
    import tensorflow as tf

    logs = tf.nest.map_structure(lambda values: values.numpy(), logs)
    number = len(tf.nest.flatten(logs)[0])
    rows = [tf.nest.map_structure(lambda values, place=place: values[place], logs) for place in range(number)]
    return list(enumerate(rows, end_step - number + 1))


class Stepped:
    """A thread sees every step; what is called once per epoch waits until it has seen them all."""

    model: Any
    params: Any

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._worker: Optional[_Worker] = None
        self._first = 0
        super().__init__(*arguments, **settings)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Steps are announced when their results are there."""

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Steps are announced when their results are there."""

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Steps are announced when their results are there."""
        self._first = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """The thread sees the steps of an execution."""
        self._post("train", batch, logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """The thread sees the steps of an execution."""
        self._post("test", batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """The thread sees the steps of an execution, whose predictions come in one piece."""
        import tensorflow as tf

        number = batch - self._first + 1
        self._post("predict", batch, tf.nest.map_structure(lambda value: tf.stack(tf.split(value, number)), logs))

    def on_train_begin(self, logs: Any = None) -> None:
        """Callbacks know how many steps an epoch has."""
        self.set_params({**(self.params or {}), "steps": self.model._ipu.steps_of_epoch})  # type: ignore[attr-defined]
        super().on_train_begin(logs)  # type: ignore[misc]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """All steps have been seen."""
        self._settle()
        super().on_epoch_end(epoch, logs)  # type: ignore[misc]

    def on_train_end(self, logs: Any = None) -> None:
        """All steps have been seen."""
        self._settle()
        super().on_train_end(logs)  # type: ignore[misc]

    def on_test_begin(self, logs: Any = None) -> None:
        """All steps of training have been seen."""
        self._settle()
        super().on_test_begin(logs)  # type: ignore[misc]

    def on_test_end(self, logs: Any = None) -> None:
        """All steps have been seen."""
        self._settle()
        super().on_test_end(logs)  # type: ignore[misc]

    def on_predict_end(self, logs: Any = None) -> None:
        """All steps have been seen."""
        self._settle()
        super().on_predict_end(logs)  # type: ignore[misc]

    def _post(self, mode: str, end_step: int, logs: Any) -> None:
        if self._worker is None:
            self._worker = _Worker()
        begin, end = getattr(super(), f"on_{mode}_batch_begin"), getattr(super(), f"on_{mode}_batch_end")
        for step, own in steps_of(logs, end_step):
            self._worker.put(functools.partial(begin, step))
            self._worker.put(functools.partial(end, step, own))

    def _settle(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.finish()


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
                    self._error = error
