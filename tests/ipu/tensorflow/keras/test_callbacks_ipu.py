"""Callbacks of Keras models: once per execution, or for every step when they are asynchronous."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.runs import ArrayTolerance

from ...training import cut, expected, tolerance
from .nets import PLAIN, Keras

SIX = replace(PLAIN, device_iterations=6)
EXECUTIONS = (1, 2, 3, 6)
OPTIONS = {
    "plain": PLAIN,
    "replicated": replace(PLAIN, replicas=2),
    "accumulating": replace(PLAIN, device_iterations=2, gradient_accumulation=3),
    "pipelined": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2),
}


def noting(keras: Keras, events: List[Tuple[str, Any]], pause: float = 0.0) -> Any:
    """A callback that notes what it is told, and takes its time at the end of a step."""

    class Noting(keras.tf.keras.callbacks.Callback):  # type: ignore[name-defined]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            events.append(("begin", batch))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(pause)
            events.append(("end", batch))
            losses.append(float(logs["loss"]))
            threads.append(threading.current_thread())

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            events.append(("epoch", epoch))

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            events.append(("test end", batch))

    losses: List[float] = []
    threads: List[Any] = []
    callback = Noting()
    callback.losses, callback.threads = losses, threads
    return callback


def fitted(
    keras: Keras, config: Any, execution: int, asynchronous: bool, pause: float = 0.0, **settings: Any
) -> Tuple[Any, Any]:
    """The callback and its events after a fit."""
    events: List[Tuple[str, Any]] = []
    callback = noting(keras, events, pause)
    with keras.ready(config, steps_per_execution=execution) as model:
        model.set_asynchronous_callbacks(asynchronous)
        model.fit(keras.dataset(config), callbacks=[callback], verbose=0, **settings)
    return callback, events


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_synchronous_callbacks_fire_once_per_execution(keras: Keras, execution: int) -> None:
    """on_train_batch_end is called after each execution with the number of its last step."""
    _, events = fitted(keras, SIX, execution, asynchronous=False)
    ends = [number for event, number in events if event == "end"]

    assert ends == list(range(execution - 1, 6, execution))


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_asynchronous_callbacks_fire_for_every_step(keras: Keras, execution: int) -> None:
    """Every step has its begin and its end, in order, whatever steps_per_execution is."""
    _, events = fitted(keras, SIX, execution, asynchronous=True)

    assert events == [(event, step) for step in range(6) for event in ("begin", "end")] + [("epoch", 0)]


@pytest.mark.ipus(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_asynchronous_callbacks_see_every_step_of_a_replica(keras: Keras, name: str) -> None:
    """With replicas, accumulation or a pipeline there is one call for each step of a replica."""
    config = OPTIONS[name]
    steps = config.device_iterations * config.gradient_accumulation
    _, events = fitted(keras, config, steps, asynchronous=True)

    assert [number for event, number in events if event == "end"] == list(range(steps))


@pytest.mark.ipus(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_asynchronous_callbacks_get_the_logs_of_their_step(keras: Keras, name: str) -> None:
    """The loss of a step is the mean of the last replica's losses so far."""
    config = OPTIONS[name]
    steps = config.device_iterations * config.gradient_accumulation
    callback, _ = fitted(keras, config, steps, asynchronous=True)
    losses = np.reshape(expected("mlp", config).losses[0], (steps, config.replicas))[:, -1]
    allowed = np.reshape(tolerance("mlp", config).losses[0].allowed, (steps, config.replicas))[:, -1]
    running = np.cumsum(losses) / np.arange(1, steps + 1)
    # A mean is within the mean of the tolerances and one rounding for each value added.
    bound = np.maximum.accumulate(allowed) + np.arange(2, steps + 2) * np.finfo(np.float32).eps * np.abs(losses).max()

    check.close(
        actual=np.asarray(callback.losses),
        expected=running,
        tolerance=ArrayTolerance(bound, float(np.max(bound)), "the tolerances of the losses so far"),
        what="the running losses",
    )


@pytest.mark.ipus(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_synchronous_callbacks_get_the_last_step(keras: Keras, name: str) -> None:
    """The logs of an execution are those that asynchronous callbacks see for its last step."""
    config = OPTIONS[name]
    steps = config.device_iterations * config.gradient_accumulation
    every, _ = fitted(keras, config, steps, asynchronous=True)
    last, _ = fitted(keras, config, steps, asynchronous=False)

    assert last.losses == every.losses[-1:]


def test_an_epoch_ends_after_its_steps(keras: Keras) -> None:
    """on_epoch_end waits for the callbacks of all steps of its epoch."""
    _, events = fitted(keras, SIX, 3, asynchronous=True, pause=0.05, epochs=2)
    once = [(event, step) for step in range(6) for event in ("begin", "end")]

    assert events == [*once, ("epoch", 0), *once, ("epoch", 1)]


def test_an_error_in_an_asynchronous_callback_reaches_fit(keras: Keras) -> None:
    """What a callback raises is raised by fit."""

    def fail(batch: int, logs: Any) -> None:
        raise KeyError("callback")

    with keras.ready(SIX) as model:
        model.set_asynchronous_callbacks(True)

        callback = keras.tf.keras.callbacks.LambdaCallback(on_train_batch_end=fail)

        with pytest.raises(KeyError, match="callback"):
            model.fit(keras.dataset(SIX), callbacks=[callback], verbose=0)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
def test_the_history_has_the_last_step_of_every_epoch(keras: Keras, asynchronous: bool) -> None:
    """History holds one number per epoch, the same in both modes."""
    with keras.ready(SIX, steps_per_execution=3) as model:
        model.set_asynchronous_callbacks(asynchronous)
        history = model.fit(keras.dataset(SIX), epochs=2, verbose=0).history
    want, _ = fitted(keras, SIX, 3, asynchronous=False, epochs=2)

    assert [float(value) for value in history["loss"]] == want.losses[1::2]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
def test_evaluation_calls_back_alike(keras: Keras, asynchronous: bool) -> None:
    """Callbacks of evaluate follow the same rule."""
    seen: List[int] = []
    callback = keras.tf.keras.callbacks.LambdaCallback()
    callback.on_test_batch_end = lambda batch, logs=None: seen.append(batch)
    with keras.ready(SIX, steps_per_execution=3) as model:
        model.set_asynchronous_callbacks(asynchronous)
        model.evaluate(keras.dataset(SIX), callbacks=[callback], verbose=0)

    assert seen == ([0, 1, 2, 3, 4, 5] if asynchronous else [2, 5])


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
def test_training_can_be_stopped(keras: Keras, asynchronous: bool) -> None:
    """A callback that sets stop_training ends the fit."""
    with keras.ready(SIX, steps_per_execution=3) as model:
        model.set_asynchronous_callbacks(asynchronous)
        stop = keras.tf.keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: setattr(model, "stop_training", True)
        )
        history = model.fit(keras.dataset(SIX), epochs=5, callbacks=[stop], verbose=0)

    assert len(history.history["loss"]) == 1


@pytest.mark.emulator
def test_asynchronous_callbacks_run_beside_the_training(keras: Keras) -> None:
    """The thread that trains does not wait in callbacks."""
    callback, _ = fitted(keras, SIX, 2, asynchronous=True)

    assert threading.main_thread() not in callback.threads


@pytest.mark.ipus(2)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
def test_prediction_calls_back_alike(keras: Keras, asynchronous: bool, replicas: int) -> None:
    """Callbacks of predict get the outputs of an execution, or of each step with all its replicas."""
    config = replace(SIX, replicas=replicas)
    seen: List[Tuple[int, Any]] = []
    callback = keras.tf.keras.callbacks.LambdaCallback()
    callback.on_predict_batch_end = lambda batch, logs=None: seen.append((batch, np.asarray(logs["outputs"])))
    with keras.ready(config, steps_per_execution=3) as model:
        model.set_asynchronous_callbacks(asynchronous)
        whole = model.predict(keras.dataset(config), callbacks=[callback], verbose=0)

    assert [batch for batch, _ in seen] == ([0, 1, 2, 3, 4, 5] if asynchronous else [2, 5])
    check.identical(actual=np.concatenate([part for _, part in seen]), expected=whole, what="the outputs")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
def test_callbacks_know_the_number_of_steps(keras: Keras, asynchronous: bool) -> None:
    """The parameters of callbacks hold the steps of an epoch on one replica."""
    noted: List[Any] = []
    callback = keras.tf.keras.callbacks.LambdaCallback()
    callback.on_train_begin = lambda logs=None: noted.append(callback.params["steps"])
    with keras.ready(SIX, steps_per_execution=3) as model:
        model.set_asynchronous_callbacks(asynchronous)
        model.fit(keras.dataset(SIX), callbacks=[callback], verbose=0)

    assert noted == [6]
