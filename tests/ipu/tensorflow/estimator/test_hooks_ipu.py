"""Hooks around the loops of an IPUEstimator, calls on the host, and summaries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..exact import RATE, START, check_weight, counts, samples, trained
from .programs import WEIGHT, Estimators, means

pytestmark = pytest.mark.requires("tensorflow_estimator")


def check_calls(actual: Sequence[str], runs: int, *last: str) -> None:
    """A hook was called around so many runs."""
    __tracebackhide__ = True
    expected = ["begin", "created", *["before", "after"] * runs, *last]
    check.equal(actual=list(actual), expected=expected, what="the calls of the hook")


@pytest.mark.parametrize("loop", [1, 4])
def test_hooks_are_called_around_loops(shared: Estimators, loop: int) -> None:
    """A run that hooks see is a loop on the device, and adds iterations_per_loop to the global step, which is saved."""
    left = shared.trained(8, loop)

    check_calls(left.calls, 8 // loop, "end")
    steps = [*left.steps, left.step]
    check.equal(actual=steps, expected=[*range(loop, 9, loop), 8], what="the global step after each run, and saved")


HOOKS = {"train": "training_hooks", "evaluate": "evaluation_hooks", "predict": "prediction_hooks"}


def bringing(estimators: Estimators, mode: str, hook: Any) -> Any:
    """An estimator whose model function brings a hook for one mode."""
    return estimators.make(estimators.product(also=lambda key, features, products: {HOOKS[mode]: [hook]}))


@pytest.mark.parametrize(
    ("mode", "way"), [("evaluate", "given"), ("predict", "given"), *((mode, "brought") for mode in HOOKS)]
)
def test_hooks_of_every_mode_are_called_around_loops(estimators: Estimators, mode: str, way: str) -> None:
    """Hooks of a call, or of the model function for this mode, see as many loops as the steps or predictions need."""
    seeing = estimators.seeing()
    estimator = bringing(estimators, mode, seeing) if way == "brought" else estimators.make()
    estimators.call(estimator, mode, estimators.feed(8), 4, **({"hooks": [seeing]} if way == "given" else {}))

    check_calls(seeing.calls[:6] if mode == "predict" else seeing.calls, 2, *([] if mode == "predict" else ["end"]))
    if (mode, way) == ("evaluate", "given"):  # a loop is counted once the hooks have seen it
        check.equal(actual=seeing.steps, expected=[0, 2], what="the global step after each run")


@pytest.mark.parametrize(("mode", "other"), [("train", "evaluate"), ("evaluate", "train")])
def test_hooks_of_other_modes_are_left_alone(estimators: Estimators, mode: str, other: str) -> None:
    """A model function may return all its hooks in every mode."""
    seeing = estimators.seeing()
    estimators.call(bringing(estimators, mode, seeing), other, estimators.feed(2), 2)

    check.equal(actual=seeing.calls, expected=[], what=f"the calls of a hook for {mode} in {other}")


@pytest.mark.parametrize("kind", ["asking", "stock"])
def test_a_hook_ends_the_training(estimators: Estimators, kind: str) -> None:
    """A hook that asks for an end, as StopAtStepHook does at its step, gets it after the loop that it has seen."""
    seeing, estimator = estimators.seeing(limit=2 if kind == "asking" else None), estimators.make()
    stopping = [] if kind == "asking" else [estimators.v1.train.StopAtStepHook(last_step=3)]
    estimator.train(estimators.feed(8), hooks=[seeing, *stopping], steps=8)

    check.equal(actual=seeing.steps, expected=[2, 4], what="the global step after each run")
    estimators.check_left(estimator, 4)


def test_listeners_are_told_of_checkpoints(estimators: Estimators) -> None:
    """A saving listener sees the global step of every checkpoint, which is that of a whole loop."""
    saves: List[Tuple[str, int]] = []

    class Listening(estimators.v1.train.CheckpointSaverListener):  # type: ignore[name-defined]
        def before_save(self, session: Any, global_step_value: Any) -> None:
            saves.append(("before", int(global_step_value)))

        def after_save(self, session: Any, global_step_value: Any) -> None:
            saves.append(("after", int(global_step_value)))

    estimator = estimators.make(save_checkpoints_steps=2)
    estimator.train(estimators.feed(4), steps=4, saving_listeners=[Listening()])

    expected = [(when, step) for step in (0, 2, 4) for when in ("before", "after")]
    check.equal(actual=saves, expected=expected, what="the calls of the listener")


def test_summaries_hold_the_loss_of_loops(estimators: Estimators) -> None:
    """With save_summary_steps=4 not every loop of two is summarised; what is has the loss of its loop."""
    estimator = estimators.after(16, save_summary_steps=4)
    summarised = estimators.left(estimator).losses
    losses = dict(zip(range(2, 17, 2), means(trained(1, counts(16)).losses, 2)))

    sparse = len(summarised) > 1 and min(np.diff(list(summarised))) >= 4
    check.holds(sparse, f"With save_summary_steps=4 the steps {list(summarised)} are summarised.")
    check.equal(actual=summarised, expected={step: losses[step] for step in summarised}, what="the losses of loops")


def test_the_speed_is_summarised(estimators: Estimators) -> None:
    """With log_step_count_steps the steps a second are counted: those of the loop, not its runs."""
    estimator = estimators.after(6, log_step_count_steps=2)
    speeds = estimators.summaries(Path(estimator.model_dir)).get("global_step/sec", {})

    check.holds(speeds and min(speeds.values()) > 0, f"The speeds in the summaries are {speeds}.")


@pytest.mark.parametrize(("steps", "replicas"), [(1, 1), (3, 1), (2, 4)], ids=["1", "3", "2-R4"])
def test_a_host_call_gets_the_tensors(estimators: Estimators, steps: int, replicas: int) -> None:
    """The function of host_call gets the device's tensors on the host, and what it returns is run in every loop.

    Of replicas it gets the means.
    """
    where: List[Any] = []

    def apply(gradient: Any, thrice: Any) -> Any:
        where.append((estimators.v1.get_default_graph().building_function, "IPU" in gradient.device))
        with estimators.v1.variable_scope("", reuse=True, use_resource=True):
            weight = estimators.v1.get_variable(WEIGHT)
        return weight.assign_sub(RATE * estimators.tf.reduce_sum(thrice - 2 * gradient))

    def model_fn(features: Any, mode: Any) -> Any:
        weight = estimators.weight()
        loss = estimators.tf.reduce_sum(weight * features)
        (gradient,) = estimators.tf.gradients(loss, [weight])
        met = estimators.ipu.cross_replica_ops.cross_replica_sum(loss)  # replicas that train must meet
        return estimators.spec(mode, loss=loss, train_op=met, host_call=(apply, [gradient, 3 * gradient]))

    left = estimators.train(steps, model_fn=model_fn, loop=1, replicas=replicas)

    what = "whether each call of the function is in a program, and its tensor on the device,"
    check.equal(actual=where, expected=[(False, False)], what=what)
    check_weight(left.weight, counts(steps, replicas=replicas))


def test_a_host_call_may_get_no_tensors(estimators: Estimators) -> None:
    """A function without tensors is called too, and what it returns is run in every loop."""
    calls: List[Any] = []

    def count() -> Any:
        calls.append(len(calls))
        counter = estimators.v1.get_variable("calls", initializer=0.0, trainable=False, use_resource=True)
        return counter.assign_add(2.0, read_value=False)

    estimator = estimators.after(3, estimators.trains(host_call=(count, [])), loop=1)

    found = calls, float(estimator.get_variable_value("calls"))
    check.equal(actual=found, expected=([0], 6.0), what="the calls of the function, and what it counted in 3 loops")


def logging(estimators: Estimators, after: Sequence[Any] = (), **settings: Any) -> List[float]:
    """The elements that an IPULoggingTensorHook tells of in a training of eight steps in loops of two."""
    told: List[float] = []

    def formatter(values: Dict[str, Any]) -> str:
        told.extend(np.ravel(values["twice"]) - np.ravel(values["element"]))
        return "told"

    if "logging_mode" in settings:
        settings["logging_mode"] = estimators.ipu.ipu_outfeed_queue.IPUOutfeedMode[settings["logging_mode"]]
    hook = estimators.ipu.ipu_session_run_hooks.IPULoggingTensorHook(formatter=formatter, **settings)

    def model_fn(features: Any, mode: Any) -> Any:
        element = estimators.tf.reduce_sum(features)
        logged = hook.log({"element": element, "twice": 2 * element})
        train = lambda loss: estimators.tf.group([estimators.descent().minimize(loss), logged])  # noqa: E731
        return estimators.trains(train=train, training_hooks=[hook, *after])(features, mode)

    estimators.make(model_fn).train(estimators.feed(8), steps=8)
    return told


LOGGED: Dict[str, Tuple[Dict[str, Any], List[int]]] = {
    "LAST": ({"every_n_iter": 1, "logging_mode": "LAST"}, [1, 3, 5, 7]),
    "ALL": ({"every_n_iter": 1, "logging_mode": "ALL"}, [*range(8)]),
    "every_n_iter": ({"every_n_iter": 2}, [1, 5]),
    "at_end": ({"at_end": True}, [7]),
}
"""The last element of each loop, all of them, those of the first loop and every other after it, and the last one."""


@pytest.mark.parametrize("name", LOGGED)
def test_tensors_of_the_device_are_logged(estimators: Estimators, name: str) -> None:
    """IPULoggingTensorHook takes tensors out of the loop and tells of the last of each loop, or of all."""
    settings, steps = LOGGED[name]
    told = logging(estimators, **settings)
    check.equal(actual=told, expected=samples(8)[steps].tolist(), what=f"the elements logged with {settings}")


def test_a_loop_longer_than_the_seconds_is_logged(estimators: Estimators) -> None:
    """With every_n_secs a loop is logged when so many seconds have passed at its end since the last line."""

    class Slow(estimators.v1.train.SessionRunHook):  # type: ignore[name-defined]
        def before_run(self, run_context: Any) -> None:
            time.sleep(0.3)

    told = logging(estimators, after=[Slow()], every_n_secs=0.25)

    expected = samples(8)[[1, 3, 5, 7]].tolist()
    check.equal(actual=told, expected=expected, what="the elements logged of loops of 0.3 s, every 0.25 s")


@pytest.mark.parametrize("value", ["element", [1.0, 2.0]], ids=["text", "numbers"])
def test_only_tensors_are_logged(estimators: Estimators, value: Any) -> None:
    """``log`` takes tensors, listed, named or one alone."""
    hook = estimators.ipu.ipu_session_run_hooks.IPULoggingTensorHook(at_end=True)

    with check.raises(TypeError, match="Tensor", what=f"logging {value!r}"):
        hook.log(value)


def test_a_hook_logs_once_in_a_program(estimators: Estimators) -> None:
    """A second call of ``log`` is refused."""
    hook = estimators.ipu.ipu_session_run_hooks.IPULoggingTensorHook(every_n_iter=1)
    twice = lambda loss: estimators.tf.group([hook.log({"loss": loss}), hook.log({"again": loss})])  # noqa: E731
    model_fn = estimators.trains(train=twice, training_hooks=[hook])

    with check.raises(RuntimeError, match=r"(?i)log", what="a second call of log"):
        estimators.make(model_fn).train(estimators.feed(2), steps=2)


def test_a_line_of_the_log_names_the_tensors(estimators: Estimators, caplog: Any, monkeypatch: Any) -> None:
    """Without a formatter a line has the names and values of the tensors."""
    logger = estimators.tf.get_logger()
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level("INFO", logger.name)
    hook = estimators.ipu.ipu_session_run_hooks.IPULoggingTensorHook(every_n_iter=1)

    def train(loss: Any) -> Any:
        return estimators.tf.group([hook.log({"before": loss}), estimators.descent().minimize(loss)])

    model_fn = estimators.trains(train=train, training_hooks=[hook])
    estimators.make(model_fn, loop=1).train(estimators.feed(1), steps=1)

    check.contains(actual=caplog.text, expected=f"before = {START[0] * samples(1)[0]}", what="TensorFlow's log")
