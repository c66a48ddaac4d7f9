"""A run of the workload: the network on small pictures with an IPUEstimator, or natively with a stock one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, List, Tuple

import numpy as np
import tensorflow as tf

from ipu_conformance.data import DataSet
from ipu_conformance.workloads.bars import bar
from ipu_conformance.workloads.estimator_cnn import Settings
from ipu_conformance.workloads.keras.data import test_set, training_set
from ipu_conformance.workloads.keras.estimators import (
    ACCURACY,
    EveryLoss,
    Seeded,
    Training,
    ipu_config,
    ipu_update,
    model_function,
    native_update,
    quietly,
    require_estimators,
)
from ipu_conformance.workloads.keras.training import unwatched


@dataclass(frozen=True)
class Result:
    """What the test set gave."""

    loss: float
    accuracy: float
    """The share of test samples that are recognised."""
    step: int
    """The updates that the network has had, of all its training."""


Say = Callable[[str], None]


def train(
    settings: Settings,
    data: DataSet,
    folder: Path,
    *,
    native: bool,
    bars: bool = False,
    say: Say = lambda line: None,
    watch: Callable[[Any], None] = unwatched,
) -> Tuple[float, ...]:
    """Train the network of a folder, or a new one; the mean loss of each ``batches_per_step`` updates.

    ``watch`` is called with the trained estimator.
    """
    require_estimators()
    losses: List[float] = []
    recent: List[float] = []
    runs = settings.batches_per_step if native else 1
    steps = settings.loops * settings.batches_per_step

    def take(loss: float) -> None:
        recent.append(loss)
        if len(recent) == runs:
            losses.append(float(np.mean(recent)))
            recent.clear()
            progress.update(settings.batches_per_step)
            say(f"Step {len(losses) * settings.batches_per_step}/{steps}, loss {losses[-1]:.4f}")

    with bar(title="Training" if bars else "", total=steps, unit="step") as progress, quietly():
        estimator = _estimator(settings, folder, settings.batches_per_step, native=native)
        estimator.train(
            lambda: training_set(data.train, settings.batch_size, settings.seed),
            steps=steps,
            hooks=[EveryLoss(take), *([] if native else [Seeded(settings.seed)])],
        )
        watch(estimator)
    return tuple(losses)


def evaluate(
    settings: Settings, data: DataSet, folder: Path, *, native: bool, watch: Callable[[Any], None] = unwatched
) -> Result:
    """Classify the test set with the network that a folder holds; ``watch`` is called with the estimator that did."""
    require_estimators()
    batches = settings.test_size // settings.test_batch
    with quietly():
        estimator = _estimator(settings, folder, batches, native=native)
        metrics = estimator.evaluate(lambda: test_set(data.test, settings.test_batch), steps=batches)
        watch(estimator)
    return Result(float(metrics["loss"]), float(metrics[ACCURACY]), int(estimator.get_variable_value("global_step")))


def _estimator(settings: Settings, folder: Path, iterations_per_loop: int, *, native: bool) -> Any:
    training = Training(settings.learning_rate, settings.seed, settings.dropout)
    if native:
        function = model_function(training, tf.estimator.EstimatorSpec, native_update)
        config = tf.estimator.RunConfig(tf_random_seed=settings.seed)
        return tf.estimator.Estimator(function, str(folder), config)
    from tensorflow.python import ipu

    function = model_function(training, ipu.ipu_estimator.IPUEstimatorSpec, ipu_update)
    config = ipu_config(1, 1, iterations_per_loop, tf_random_seed=settings.seed)
    return ipu.ipu_estimator.IPUEstimator(function, str(folder), config)
