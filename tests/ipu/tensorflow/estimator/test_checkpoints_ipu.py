"""Checkpoints of an IPUEstimator: when they are written, how training goes on from them, and warm starts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from ipu_conformance import check

from ..exact import START, check_weight, counts, samples, trained
from .programs import WEIGHT, Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")


def test_checkpoints_are_written_at_the_beginning_and_the_end(shared: Estimators) -> None:
    """A training leaves the weights that it began with and those that it ended with."""
    folder = Path(shared.trained(4, 2).folder)
    estimator = shared.make(folder=folder)
    read = shared.tf.train.load_checkpoint(str(folder / "model.ckpt-0"))

    check.equal(actual=shared.checkpoints(estimator), expected=[0, 4], what="the steps of the checkpoints")
    check.equal(actual=float(read.get_tensor(WEIGHT)), expected=START[0], what="the weight of the first checkpoint")
    check.equal(actual=estimator.latest_checkpoint(), expected=str(folder / "model.ckpt-4"), what="latest_checkpoint")


@pytest.mark.parametrize(
    ("settings", "written"),
    [
        ({"save_checkpoints_steps": 3}, [0, 4, 8]),
        ({"save_checkpoints_steps": 4}, [0, 4, 8]),
        ({"save_checkpoints_steps": 2, "keep_checkpoint_max": 2}, [6, 8]),
    ],
    ids=["3", "4", "2-max-2"],
)
def test_checkpoints_are_written_after_loops(estimators: Estimators, settings: Any, written: List[int]) -> None:
    """A checkpoint that is due within a loop is written after it, with the weights of that step; the last ones stay."""
    estimator = estimators.after(8, **settings)

    check.equal(actual=estimators.checkpoints(estimator), expected=written, what="the steps of the checkpoints")
    read = estimators.tf.train.load_checkpoint(str(Path(estimator.model_dir) / f"model.ckpt-{written[1]}"))
    check_weight(np.float32(read.get_tensor(WEIGHT)), counts(written[1]))


def test_variables_of_the_last_checkpoint_can_be_read(estimators: Estimators) -> None:
    """Their names are those that a stock estimator would give."""
    estimator = estimators.after(2, estimators.product(momentum=0.5))

    names = ["global_step", WEIGHT, f"{WEIGHT}/Momentum"]
    check.equal(actual=sorted(estimator.get_variable_names()), expected=names, what="get_variable_names")
    estimators.check_left(estimator, 2, counts(2, momentum=0.5))


def stock_estimator(estimators: Estimators, folder: Path) -> Any:
    """The same model with stock TensorFlow, which counts its own steps."""
    tf = estimators.tf

    def model_fn(features: Any, mode: Any) -> Any:
        loss = tf.reduce_sum(estimators.weight() * features)
        fields: Dict[str, Any] = {}
        if mode == estimators.modes.TRAIN:
            step = estimators.v1.train.get_global_step()
            fields["train_op"] = estimators.descent(0.5).minimize(loss, step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, **fields)

    return tf.estimator.Estimator(model_fn, str(folder))


def test_stock_estimators_read_the_checkpoints(estimators: Estimators, tmp_path: Path) -> None:
    """What was trained on the device is evaluated on the host."""
    estimator = estimators.after(4, estimators.product(momentum=0.5), folder=tmp_path / "model")
    on_host = stock_estimator(estimators, tmp_path / "model").evaluate(estimators.feed(2), steps=2)

    on_device = estimator.evaluate(estimators.feed(2), steps=2)
    # An evaluation on the device counts its steps, too.
    expected = {**on_host, "global_step": on_host["global_step"] + 2}
    check.equal(actual=on_device, expected=expected, what="the evaluation on the device, compared with the host's,")


@pytest.mark.parametrize(("first", "loop"), [(2, 2), (2, 4), ("stock", 2)], ids=["same-loops", "longer-loops", "stock"])
def test_a_new_estimator_goes_on(estimators: Estimators, tmp_path: Path, first: Any, loop: int) -> None:
    """An estimator that finds a checkpoint in its folder learns what an uninterrupted training learns.

    The loops of the first training may have another length, and it may be one on the host, momentum and all.
    """
    make = functools.partial(estimators.make, estimators.product(momentum=0.5), folder=tmp_path / "model")
    begun = stock_estimator(estimators, tmp_path / "model") if first == "stock" else make(loop=first)
    begun.train(estimators.feed(4), steps=4)
    estimator = make(loop=loop)
    estimator.train(estimators.feed(4, skip=4), steps=4)

    estimators.check_left(estimator, 8, counts(8, momentum=0.5))


def warm(estimators: Estimators, start: float) -> Any:
    """A model function of two weights, both beginning at ``start``: the loss is x·(w0 + w1)."""
    weights = lambda: estimators.weight(0, start) + estimators.weight(1, start)  # noqa: E731
    return estimators.trains(lambda features: estimators.tf.reduce_sum(weights() * features))


@pytest.fixture
def source(shared: Estimators) -> Any:
    """An estimator that has trained both weights for four steps from 1."""
    return shared.once("source", lambda: shared.make(warm(shared, 1.0)).train(shared.feed(4), steps=4))


@pytest.mark.parametrize(("kind", "chosen"), [("folder", ["w0", "w1"]), ("checkpoint", ["w0", "w1"]), ("w1", ["w1"])])
def test_a_warm_start_takes_weights_from_another_model(
    estimators: Estimators, source: Any, kind: str, chosen: Any
) -> None:
    """All weights, or those that are chosen, begin with another model's; the global step begins with 0."""
    settings: Any = {"folder": source.model_dir, "checkpoint": source.latest_checkpoint()}.get(kind)
    if settings is None:
        settings = estimators.tf.estimator.WarmStartSettings(source.model_dir, vars_to_warm_start=kind)
    estimator = estimators.after(2, warm(estimators, 8.0), warm_start_from=settings)
    starts = {name: float(trained(1, counts(4)).weights[0]) if name in chosen else 8.0 for name in ("w0", "w1")}

    for name, start in starts.items():
        check_weight(estimator.get_variable_value(name), counts(2), start)
    check.equal(actual=estimators.left(estimator).step, expected=2, what="the global step after two steps")


def test_a_warm_start_happens_once(estimators: Estimators, source: Any) -> None:
    """A model that has a checkpoint of its own goes on from that."""
    estimator = estimators.make(warm(estimators, 8.0), warm_start_from=source.model_dir)
    for turn in range(2):
        estimator.train(estimators.feed(2, skip=2 * turn), steps=2)

    check_weight(estimator.get_variable_value(WEIGHT), counts(4), float(trained(1, counts(4)).weights[0]))


@pytest.mark.ipus(2)
def test_a_warm_start_reaches_all_replicas(estimators: Estimators, shared: Estimators) -> None:
    """Every replica begins with the other model's weights."""
    folder = shared.trained(4, 2).folder
    estimator = estimators.make(estimators.product(start=8.0), warm_start_from=folder, replicas=2)
    loss = estimator.evaluate(estimators.feed(4), steps=2)["loss"]

    expected = np.float32(float(trained(1, counts(4)).weights[0]) * samples(4).mean())
    check.equal(actual=loss, expected=expected, what="the loss of both replicas at the weight of the other model")


def both(estimators: Estimators, estimator: Any, max_steps: int, steps: int = 2) -> Any:
    """What tf.estimator.train_and_evaluate returns."""
    specs = estimators.tf.estimator
    return specs.train_and_evaluate(
        estimator,
        specs.TrainSpec(estimators.feed(16), max_steps=max_steps),
        specs.EvalSpec(estimators.feed(2), steps=steps, start_delay_secs=0, throttle_secs=0),
    )


def test_training_and_evaluation_go_together(estimators: Estimators) -> None:
    """train_and_evaluate trains to max_steps and evaluates the last checkpoint."""
    estimator = estimators.make()
    metrics, exported = both(estimators, estimator, 4)

    expected = (trained(1, counts(4)).weights[0] * samples(2)).astype(np.float64).mean()
    wanted = {"loss": np.float32(expected), "global_step": 4 + 2}, []
    check.equal(actual=(metrics, exported), expected=wanted, what="the metrics and exports of train_and_evaluate")


def test_every_checkpoint_is_evaluated(estimators: Estimators) -> None:
    """train_and_evaluate evaluates whenever there is a checkpoint, and training goes on after it."""
    estimator = estimators.make(save_checkpoints_steps=2)
    both(estimators, estimator, 6)
    evaluations = estimators.summaries(Path(estimator.model_dir) / "eval")["loss"]

    # Each part of the training reads its data from the beginning.
    check.equal(actual=sorted(evaluations), expected=[2 + 2, 4 + 2, 6 + 2], what="the steps after evaluations")
    check.equal(actual=estimators.left(estimator).step, expected=6, what="the last global step")


def test_evaluation_beside_training_has_whole_loops(estimators: Estimators) -> None:
    """The rule for steps holds within train_and_evaluate."""
    message = r"steps \(3\) must be a multiple of iterations_per_loop \(2\)"
    with check.raises(ValueError, match=message, what="an EvalSpec of 3 steps in loops of 2"):
        both(estimators, estimators.make(), 4, steps=3)
