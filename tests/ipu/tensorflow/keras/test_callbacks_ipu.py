"""Callbacks of Keras models: once per execution, or for every step when they are asynchronous."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import cut
from .nets import PLAIN, Keras, check_losses

SIX = replace(PLAIN, device_iterations=6)
OPTIONS = {
    "plain": PLAIN,
    "replicated": replace(PLAIN, replicas=2),
    "replicated-accumulating": PLAIN.with_counts(4, 3, 2),
    "accumulating": replace(PLAIN, device_iterations=2, gradient_accumulation=3),
    "pipelined": cut("mlp", replace(PLAIN, device_iterations=1, gradient_accumulation=4), 2),
}
each_execution = pytest.mark.parametrize("execution", [1, 2, 3, 6])
each_option = pytest.mark.parametrize("name", OPTIONS)
both_modes = pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])


class Noted(NamedTuple):
    """What a callback is told in a fit of two epochs, and the history of the fit."""

    events: List[Tuple[str, int]]
    losses: List[float]
    threads: List[Any]
    steps: List[int]
    history: Dict[str, List[float]]
    weights: List[np.ndarray]

    def numbers(self, event: str) -> List[int]:
        """The numbers of one kind of event."""
        return [number for kind, number in self.events if kind == event]


def noted(keras: Keras, config: RunConfig, execution: int, asynchronous: bool) -> Noted:
    """What a callback that takes its time at the end of a step is told."""

    def run() -> Noted:
        told = Noted([], [], [], [], {}, [])

        class Noting(keras.tf.keras.callbacks.Callback):  # type: ignore[name-defined]
            def on_train_begin(self, logs: Any = None) -> None:
                told.steps.extend([self.params["steps"], self.params["epochs"]])

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                told.events.append(("begin", batch))

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                time.sleep(0.05 if asynchronous else 0.0)
                told.events.append(("end", batch))
                told.losses.append(float(logs["loss"]))
                told.threads.append(threading.current_thread())

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                told.events.append(("epoch", epoch))

        with keras.ready(config, steps_per_execution=execution) as model:
            model.set_asynchronous_callbacks(asynchronous)
            fitted = model.fit(keras.dataset(config), callbacks=[Noting()], epochs=2, verbose=0)
        told.history.update(fitted.history)
        told.weights.extend(model.get_weights())
        return told

    told: Noted = keras.once(("callbacks", config, execution, asynchronous), run)
    return told


@each_execution
def test_synchronous_callbacks_fire_once_per_execution(keras: Keras, execution: int) -> None:
    """on_train_batch_end is called after each execution with the number of its last step."""
    told = noted(keras, SIX, execution, asynchronous=False)

    expected = [*range(execution - 1, 6, execution)] * 2
    check.equal(actual=told.numbers("end"), expected=expected, what="the steps that ended in two epochs")


@each_execution
def test_asynchronous_callbacks_fire_for_every_step(keras: Keras, execution: int) -> None:
    """Every step has its begin and its end, in order, and an epoch waits for its steps' callbacks before it ends."""
    told = noted(keras, SIX, execution, asynchronous=True)

    steps = [(event, step) for step in range(6) for event in ("begin", "end")]
    expected = [*steps, ("epoch", 0), *steps, ("epoch", 1)]
    check.equal(actual=told.events, expected=expected, what="the order of events in two epochs")


def test_asynchronous_callbacks_end_before_validation(keras: Keras) -> None:
    """All callbacks of an epoch have ended when its validation begins, and those of that when it ends."""
    events: List[str] = []

    class Noting(keras.tf.keras.callbacks.Callback):  # type: ignore[name-defined]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.05)
            events.append("step")

        def on_test_begin(self, logs: Any = None) -> None:
            events.append("validation")

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.05)
            events.append("step of it")

        def on_test_end(self, logs: Any = None) -> None:
            events.append("end")

    with keras.ready(SIX, steps_per_execution=6) as model:
        model.set_asynchronous_callbacks(True)
        data = keras.dataset(SIX)
        model.fit(data, validation_data=data, callbacks=[Noting()], epochs=2, verbose=0)

    expected = [*["step"] * 6, "validation", *["step of it"] * 6, "end"] * 2
    check.equal(actual=events, expected=expected, what="the order of events in two epochs with validation")


@pytest.mark.ipus(2)
@each_option
def test_asynchronous_callbacks_get_the_logs_of_their_step(keras: Keras, name: str) -> None:
    """There is a call for each step of a replica, with the mean of the last replica's losses so far."""
    config = OPTIONS[name]
    steps = config.device_iterations * config.gradient_accumulation
    told = noted(keras, config, steps, asynchronous=True)

    check.equal(actual=told.numbers("end"), expected=[*range(steps)] * 2, what="the steps that ended in two epochs")
    check_losses(told.losses[:steps], config, "the running loss by step", (slice(None), -1))


@pytest.mark.ipus(2)
@each_option
def test_synchronous_callbacks_get_the_last_step(keras: Keras, name: str) -> None:
    """The logs of an execution are those that asynchronous callbacks see for its last step; weights are the same."""
    config = OPTIONS[name]
    steps = config.device_iterations * config.gradient_accumulation
    every, last = (noted(keras, config, steps, asynchronous) for asynchronous in (True, False))

    check.equal(actual=last.losses, expected=every.losses[steps - 1 :: steps], what="the losses after each execution")
    for number, (weight, other) in enumerate(zip(last.weights, every.weights)):
        check.identical(actual=weight, expected=other, what=f"weight {number} of the model")


def test_an_error_in_an_asynchronous_callback_reaches_fit(keras: Keras) -> None:
    """What a callback raises is raised by fit."""

    def fail(batch: int, logs: Any) -> None:
        raise KeyError("callback")

    callback = keras.tf.keras.callbacks.LambdaCallback(on_train_batch_end=fail)
    with keras.ready(SIX) as model, check.raises(KeyError, match="callback", what="fit with a callback that raises"):
        model.set_asynchronous_callbacks(True)
        model.fit(keras.dataset(SIX), callbacks=[callback], verbose=0)


@both_modes
def test_the_history_has_the_last_step_of_every_epoch(keras: Keras, asynchronous: bool) -> None:
    """History holds one number per epoch, the same in both modes; callbacks know the steps and epochs."""
    losses = noted(keras, SIX, 3, asynchronous=False).losses
    told = noted(keras, SIX, 3, asynchronous)

    check.equal(actual=[*map(float, told.history["loss"])], expected=losses[1::2], what="the loss by epoch")
    check.equal(actual=told.steps, expected=[6, 2], what="the steps of an epoch, and the epochs, in params")


@both_modes
def test_training_can_be_stopped(keras: Keras, asynchronous: bool) -> None:
    """A callback that sets stop_training ends the fit."""
    stop = keras.tf.keras.callbacks.LambdaCallback()
    stop.on_epoch_end = lambda epoch, logs=None: setattr(stop.model, "stop_training", True)
    with keras.ready(SIX, steps_per_execution=3) as model:
        model.set_asynchronous_callbacks(asynchronous)
        history = model.fit(keras.dataset(SIX), epochs=5, callbacks=[stop], verbose=0)

    check.equal(actual=history.epoch, expected=[0], what="the epochs of a fit that is stopped after the first")


@pytest.mark.emulator
def test_asynchronous_callbacks_run_beside_the_training(keras: Keras) -> None:
    """The thread that trains does not wait in callbacks."""
    threads = noted(keras, SIX, 2, asynchronous=True).threads

    check.lacks(actual=threads, unexpected=threading.main_thread(), what="the threads that callbacks run in")


@pytest.mark.ipus(2)
@pytest.mark.parametrize(("method", "replicas"), [("evaluate", 1), ("predict", 1), ("predict", 2)])
@both_modes
def test_inference_calls_back_alike(keras: Keras, asynchronous: bool, method: str, replicas: int) -> None:
    """Callbacks of evaluate and predict follow the same rule; outputs are those of all replicas' steps."""
    config = replace(SIX, replicas=replicas)
    seen: List[Tuple[int, Any]] = []
    callback = keras.tf.keras.callbacks.LambdaCallback()
    callback.on_test_batch_end = callback.on_predict_batch_end = lambda batch, logs=None: seen.append((batch, logs))
    with keras.ready(config, steps_per_execution=3) as model:
        model.set_asynchronous_callbacks(asynchronous)
        whole = getattr(model, method)(keras.dataset(config), callbacks=[callback], verbose=0)

    ended, logs = zip(*seen)
    check.equal(actual=ended, expected=(0, 1, 2, 3, 4, 5) if asynchronous else (2, 5), what="the steps that ended")
    if method == "predict":
        outputs = np.concatenate([np.asarray(each["outputs"]) for each in logs])
        check.identical(actual=outputs, expected=whole, what="the outputs of all steps")
