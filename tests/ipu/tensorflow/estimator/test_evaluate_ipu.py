"""IPUEstimator.evaluate: the loss and metrics of so many steps, on the host and on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from ipu_conformance import check

from ..exact import START, counts, samples, trained
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")

LOSSES = START[0] * samples(8)
"""The losses of eight elements at the beginning."""


@pytest.mark.parametrize(("steps", "loop"), [(2, 2), (4, 1), (8, 4)])
def test_the_loss_is_the_mean_over_all_steps(estimators: Estimators, steps: int, loop: int) -> None:
    """The loss of an evaluation is the mean over the steps of all its loops."""
    metrics = estimators.make(loop=loop).evaluate(estimators.feed(steps), steps=steps)

    expected = {"loss": float(LOSSES[:steps].mean()), "global_step": steps}
    check.equal(actual=metrics, expected=expected, what=f"an evaluation of {steps} steps")


def after(updates: int, number: int) -> Dict[str, Any]:
    """What an evaluation of so many elements finds after so many updates."""
    losses = trained(1, counts(updates)).weights[0] * samples(number)
    return {"loss": np.float32(losses.astype(np.float64).mean()), "global_step": updates + number}


def test_evaluation_changes_nothing(estimators: Estimators) -> None:
    """An evaluation reads the last checkpoint, counts its steps on from the global step of it, and changes neither.

    The vendor's ipu_estimator.py counts steps of training and of evaluation by the same hook.
    """
    estimator = estimators.after(2)
    before = estimators.left(estimator), estimators.checkpoints(estimator)
    again = estimators.make(folder=estimator.model_dir)
    found = [each.evaluate(estimators.feed(4), steps=4) for each in (estimator, again)]

    check.equal(actual=found, expected=[after(2, 4)] * 2, what="two evaluations of one checkpoint")
    left = estimators.left(estimator), estimators.checkpoints(estimator)
    check.equal(actual=left, expected=before, what="what the estimator has left, with the steps of its checkpoints,")


def test_an_older_checkpoint_can_be_evaluated(estimators: Estimators) -> None:
    """A checkpoint that is named counts more than the last one."""
    estimator = estimators.after(2)
    older = estimator.latest_checkpoint()
    estimator.train(estimators.feed(2, skip=2), steps=2)
    metrics = estimator.evaluate(estimators.feed(2), steps=2, checkpoint_path=older)

    check.equal(actual=metrics, expected=after(2, 2), what="the evaluation of the older checkpoint")


@pytest.mark.parametrize(("name", "folder"), [(None, "eval"), ("held_out", "eval_held_out")])
def test_what_is_found_is_summarised(estimators: Estimators, name: Any, folder: str) -> None:
    """The loss and the metrics are written for TensorBoard, to a folder named after the evaluation."""
    estimator = estimators.make()
    metrics = estimator.evaluate(estimators.feed(2), steps=2, name=name)

    summaries = estimators.summaries(Path(estimator.model_dir) / folder)
    check.equal(actual=summaries, expected={"loss": {2: metrics["loss"]}}, what=f"the summaries in {folder}")


Metrics = Callable[..., Dict[str, Any]]


def evaluated(estimators: Estimators, also: Metrics, steps: int = 4, batch: int = 2, **settings: Any) -> Dict[str, Any]:
    """What an evaluation of a new model finds, whose model function gives more fields."""
    estimator = estimators.make(estimators.product(also=also), **settings)
    metrics: Dict[str, Any] = estimator.evaluate(estimators.feed(steps, batch), steps=steps)
    return metrics


def metrics_of(estimators: Estimators) -> Metrics:
    """A function that gives the metrics of the products."""
    metrics = estimators.v1.metrics

    def metrics_fn(products: Any, features: Any) -> Dict[str, Any]:
        large = estimators.tf.cast(features > 2, "float32")
        return {
            "mean": metrics.mean(products),
            "accuracy": metrics.accuracy(large, estimators.tf.cast(products > 3, "float32")),
        }

    return metrics_fn


METRICS: Dict[str, Callable[[Estimators], Metrics]] = {
    "host": lambda e: lambda mode, x, y: {"eval_metrics": (metrics_of(e), [y, x])},
    "host-named": lambda e: lambda mode, x, y: {"eval_metrics": (metrics_of(e), {"features": x, "products": y})},
    "device": lambda e: lambda mode, x, y: {"eval_metric_ops": metrics_of(e)(y, x)},
}
"""The fields of a specification with metrics of listed and of named tensors on the host, and of those on the device."""


def looked_at(estimators: Estimators, look: Callable[[Any], None]) -> Metrics:
    """The field of a specification that lets Python on the host look at the products of every loop."""

    def metrics_fn(products: Any) -> Dict[str, Any]:
        zero = estimators.v1.py_func(lambda values: np.float32(look(values) or 0), [products], estimators.tf.float32)
        return {"looked": estimators.v1.metrics.mean(zero)}

    return lambda mode, features, products: {"eval_metrics": (metrics_fn, [products])}


def check_metrics(metrics: Dict[str, Any]) -> None:
    """The metrics of ``metrics_of`` are those of all eight elements."""
    __tracebackhide__ = True
    found = metrics["mean"], metrics["accuracy"]
    expected = float(LOSSES.mean()), float(((samples(8) > 2) == (LOSSES > 3)).mean())
    check.equal(actual=found, expected=expected, what="the mean and the accuracy of eight elements")


@pytest.mark.parametrize("place", METRICS)
@pytest.mark.parametrize("loop", [1, 2])
def test_metrics_see_every_element(estimators: Estimators, loop: int, place: str) -> None:
    """Metrics are those of all elements of all steps, by tensors for the host or by updates on the device."""
    check_metrics(evaluated(estimators, METRICS[place](estimators), loop=loop))


@pytest.mark.parametrize("replicas", [1, 2])
def test_metrics_on_the_host_get_iterations_first(estimators: Estimators, replicas: int) -> None:
    """Tensors of eval_metrics have the iterations of a loop first, then replicas if there are several, then the batch.

    The vendor's ipu_estimator.py hands on what the outfeed gives.
    """
    seen: List[Any] = []
    also = looked_at(estimators, lambda values: seen.append(np.array(values)))
    estimator = estimators.make(estimators.product(also=also, replicas=replicas), loop=4, replicas=replicas)
    estimator.evaluate(estimators.feed(8 * replicas, 3), steps=8)

    shapes = [(4, 3) if replicas == 1 else (4, replicas, 3)] * 2
    check.equal(actual=[each.shape for each in seen], expected=shapes, what="the shapes in two loops of 4 batches of 3")
    values, expected = np.sort(np.ravel(seen)), np.sort(START[0] * samples(8 * replicas * 3))
    check.identical(actual=values, expected=expected, what="what Python has seen, sorted,")


def test_metrics_of_eval_metrics_run_on_the_host(estimators: Estimators) -> None:
    """The function of eval_metrics is called once, outside the program, and its operations are not the device's."""
    where: List[Any] = []

    def metrics_fn(products: Any) -> Dict[str, Any]:
        graph = estimators.v1.get_default_graph()
        copied = estimators.tf.identity(products)
        where.append((graph.building_function, "IPU" in copied.device))
        return {"mean": estimators.v1.metrics.mean(copied)}

    evaluated(estimators, lambda mode, features, products: {"eval_metrics": (metrics_fn, [products])})

    what = "whether each call of the function is in a program, and its operations are the device's,"
    check.equal(actual=where, expected=[(False, False)], what=what)


def test_a_stock_spec_may_have_metrics(estimators: Estimators) -> None:
    """Metrics of a stock EstimatorSpec are computed on the device."""

    def model_fn(features: Any, mode: Any) -> Any:
        products = estimators.weight() * features
        return estimators.tf.estimator.EstimatorSpec(
            mode, loss=estimators.tf.reduce_sum(products), eval_metric_ops=metrics_of(estimators)(products, features)
        )

    check_metrics(estimators.make(model_fn).evaluate(estimators.feed(4, 2), steps=4))


def test_metrics_begin_anew(estimators: Estimators) -> None:
    """An evaluation does not remember the metrics of the last one."""
    estimator = estimators.make(estimators.product(also=METRICS["host"](estimators)))
    estimator.evaluate(estimators.feed(2, skip=2), steps=2)
    metrics = estimator.evaluate(estimators.feed(2), steps=2)

    check.equal(actual=metrics["mean"], expected=LOSSES[:2].mean(), what="the mean of the second evaluation")


def test_the_mode_is_that_of_evaluation(estimators: Estimators) -> None:
    """The model function learns that nothing is trained, and gets the labels."""
    modes: List[Any] = []

    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        modes.append(mode)
        return estimators.spec(mode, loss=estimators.weight() * features * labels)

    labels = np.asarray([2, 4], np.float32)
    loss = estimators.make(model_fn).evaluate(estimators.slices(samples(2), labels), steps=2)["loss"]

    check.equal(actual=modes, expected=["eval"], what="the mode that the model function learns")
    check.equal(actual=loss, expected=START[0] * (samples(2) * labels).mean(), what="the loss of features and labels")


def test_evaluation_without_training_begins_with_initial_weights(estimators: Estimators) -> None:
    """Where there is no checkpoint, the variables are initialised; none is left behind."""
    estimator = estimators.make(estimators.product(start=3.0))
    metrics = estimator.evaluate(estimators.feed(2), steps=2)

    check.equal(actual=metrics["loss"], expected=3 * samples(2).mean(), what="the loss at the initial weight of 3")
    check.equal(actual=estimators.checkpoints(estimator), expected=[], what="the steps of the checkpoints")


def test_evaluation_may_follow_every_training(estimators: Estimators) -> None:
    """Training and evaluating in turns sees the weights as they are then."""
    estimator = estimators.make()
    losses = []
    for turn in range(2):
        estimator.train(estimators.feed(2, skip=2 * turn), steps=2)
        losses.append(estimator.evaluate(estimators.feed(2), steps=2)["loss"])

    expected = [after(updates, 2)["loss"] for updates in (2, 4)]
    check.equal(actual=losses, expected=expected, what="the losses after two and four updates")
    estimators.check_left(estimator, 4)
