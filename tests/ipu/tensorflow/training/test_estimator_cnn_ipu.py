"""The network on small pictures trains and converges with an IPUEstimator as with a stock one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.convergence.band import Verdict
from ipu_conformance.workloads.estimator_cnn import Settings
from ipu_conformance.workloads.estimator_cnn.reference import SHORT, train
from ipu_conformance.workloads.reference import verdict

from . import test_cifar10_ipu as pictures
from .dumped import check_near, executed, graphs_of, left_by, shared, watched, weights_of

pytestmark = pytest.mark.requires("tensorflow_estimator")

SAME = ("batch_size", "learning_rate", "epochs", "train_size", "test_size")
FEW = Settings(
    batches_per_step=pictures.SHORT.steps, dropout=False, **{name: getattr(pictures.SHORT, name) for name in SAME}
)
"""Two loops of three updates: the network, the data and so the noise of the pictures that Keras trains on."""


def test_the_executed_dumps_are_what_the_device_did(tmp_path: Path) -> None:
    """The loss of each loop, the trained weights, and the loss and accuracy on the test set are the programs' own."""
    import tensorflow as tf

    from ipu_conformance.data import load
    from ipu_conformance.workloads.estimator_cnn import training

    data = load(FEW.data, train=FEW.train_size, test=FEW.test_size)

    def both(watch: Callable[[Any], None]) -> Any:
        losses = training.train(FEW, data, tmp_path, native=False, watch=watch)
        return losses, training.evaluate(FEW, data, tmp_path, native=False, watch=watch)

    ran = watched(both)
    (losses, result), (trained, tested) = ran.result, graphs_of(ran)
    initial, batches, tests = pictures.data()
    names = weights_of(tested)
    told = executed(trained, dict(zip(names, initial)), batches)
    end = told.variables[0]
    elements = [(tests, data.test.labels)]
    found = executed(tested, {name: end[name] for name in names}, shared(elements, FEW.test_batch))

    (_, allowed), (_, _), *weights = pictures.noise()
    means = told.outputs[left_by(trained)[0]].reshape(-1)
    check_near(losses, (means, allowed), "the mean loss of each loop")
    kept = tf.train.load_checkpoint(str(tmp_path))
    for name, (_, tolerance) in zip(names, weights):
        check_near(kept.get_tensor(name), (end[name], tolerance), name)
    loss, accuracy = (float(found.outputs[name].reshape(-1)[-1]) for name in left_by(tested)[:2])
    # A loss of tests has the noise of the losses of training: the most that any of them is allowed is taken.
    most = replace(allowed, allowed=np.full(1, allowed.allowed.max()))
    check_near([result.loss], (np.array([loss]), most), "the loss of the tests")
    right = round(accuracy * FEW.test_size)
    check.equal(actual=round(result.accuracy * FEW.test_size), expected=right, what="the tests that are recognised")


def test_the_workload_converges_like_its_baseline(converges: Callable[[Verdict], None]) -> None:
    """The losses of runs with new seeds lie in the band of the native runs, neither below nor above."""
    runs = [train(replace(SHORT.settings, seed=seed), native=False) for seed in (1000, 1001, 1002)]

    converges(verdict(SHORT, runs))
