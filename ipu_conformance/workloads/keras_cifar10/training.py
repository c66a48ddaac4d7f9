"""The approaches to train the network: Keras' own fit in the scope of a strategy, and estimators.

With ``strategy`` every IPU is a replica. ``estimator`` is an IPUEstimator on one IPU, ``replica`` one on replicas of
one IPU each, and ``pipeline`` an IPUPipelineEstimator with the layers on two IPUs.
"""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from typing import Any, Callable, List, Tuple

import numpy as np
import tensorflow as tf

from ipu_conformance.data import load
from ipu_conformance.workloads.keras.data import test_set, training_set
from ipu_conformance.workloads.keras.estimators import (
    PROBABILITIES,
    EveryLoss,
    Seeded,
    Training,
    ipu_config,
    ipu_update,
    model_function,
    quietly,
    require_estimators,
)
from ipu_conformance.workloads.keras.pictures import build, layers, loss_of, through
from ipu_conformance.workloads.keras.training import Job, Progress, Result, fit, job_for, unwatched
from ipu_conformance.workloads.keras_cifar10 import STAGES, Settings

WEIGHTS = tuple(
    f"{layer}/{kind}"
    for layer in ("conv_1", "conv_2", "conv_3", "conv_4", "dense_1", "dense_2")
    for kind in ("kernel", "bias")
)


def train(
    settings: Settings,
    *,
    native: bool,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
    watch: Callable[[Any], None] = unwatched,
) -> Result:
    """Train a new network; with ``native`` no IPU API is touched.

    ``watch`` is called with the model or the estimator once it is trained, and with the one that has classified.
    """
    if native:
        settings = on_host(settings)
    if settings.approach == "strategy":
        return fit(job_of(settings), native=native, progress=progress, say=say, watch=watch)
    return train_estimator(settings, progress=progress, say=say, watch=watch)


def on_host(settings: Settings) -> Settings:
    """The settings of the native twin, which is the same for all approaches: one model, fitted by Keras."""
    return replace(settings, approach="strategy", ipus=1, gradient_accumulation_count=1, model_shard_position=None)


def job_of(settings: Settings) -> Job:
    """The settings in Keras' terms."""
    network = functools.partial(build, dropout=settings.dropout)
    return job_for(settings, network, steps=settings.steps, accumulation=settings.gradient_accumulation_count)


def train_estimator(
    settings: Settings, *, progress: bool, say: Callable[[str], None], watch: Callable[[Any], None] = unwatched
) -> Result:
    """Train a new network with the estimator of an approach.

    A step of an estimator is a micro-batch of every replica. Checkpoints are needed between training and the test only.
    """
    require_estimators()
    make = _pipeline_estimator if settings.approach == "pipeline" else _estimator
    data = load(settings.data, train=settings.train_size, test=settings.test_size)
    count = settings.gradient_accumulation_count
    batches = settings.test_size // settings.test_batch
    epochs = Epochs(settings, Progress(settings.epochs, settings.steps * count, bars=progress, say=say))
    with quietly(), tempfile.TemporaryDirectory() as folder:
        trainer = make(settings, folder, _config(settings, settings.steps_per_execution * count))
        trainer.train(
            lambda: training_set(data.train, settings.micro_batch, settings.seed),
            steps=settings.epochs * settings.steps * count,
            hooks=[Seeded(settings.seed), EveryLoss(epochs)],
        )
        watch(trainer)
        classifier = make(settings, folder, _config(settings, batches // settings.replicas))
        predictions = classifier.predict(
            lambda: test_set(data.test, settings.test_batch).map(lambda images, labels: images),
            num_predictions=settings.test_size,
        )
        probabilities = np.stack([each[PROBABILITIES] for each in predictions])
        watch(classifier)
        weights = _weights(trainer)
    accuracy = float(np.mean(probabilities.argmax(axis=1) == data.test.labels))
    return Result(tuple(epochs.losses), (), probabilities, accuracy, weights)


def _estimator(settings: Settings, folder: str, config: Any) -> Any:
    from tensorflow.python import ipu

    training = Training(
        settings.learning_rate,
        settings.seed,
        settings.dropout,
        settings.replicas,
        settings.gradient_accumulation_count,
    )
    model_fn = model_function(training, ipu.ipu_estimator.IPUEstimatorSpec, ipu_update)
    return ipu.ipu_estimator.IPUEstimator(model_fn, folder, config)


def _pipeline_estimator(settings: Settings, folder: str, config: Any) -> Any:
    from tensorflow.python import ipu

    return ipu.ipu_pipeline_estimator.IPUPipelineEstimator(_pipelined(settings), folder, config)


def _pipelined(settings: Settings) -> Callable[..., Any]:
    """The network in two stages; in training the second one returns the loss of a micro-batch."""
    from tensorflow.python import ipu

    def optimizer_function(loss: Any) -> Any:
        optimizer: Any = tf.compat.v1.train.GradientDescentOptimizer(settings.learning_rate)
        if settings.replicas > 1:
            optimizer = ipu.optimizers.CrossReplicaOptimizer(optimizer)
        return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

    def model_fn(mode: str) -> Any:
        learning = mode == tf.estimator.ModeKeys.TRAIN
        chain = layers(settings.seed, dropout=settings.dropout)

        def first(images: Any, *labels: Any) -> Any:
            return (through(chain[: settings.cut], images, training=learning), *labels)

        def second(values: Any, *labels: Any) -> Any:
            probabilities = through(chain[settings.cut :], values, training=learning)
            return loss_of(labels[0], probabilities) if learning else {PROBABILITIES: probabilities}

        return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
            mode,
            computational_stages=[first, second],
            gradient_accumulation_count=settings.gradient_accumulation_count if learning else STAGES,
            optimizer_function=optimizer_function if learning else None,
            reduction_method=ipu.gradient_accumulation.GradientAccumulationReductionMethod.MEAN,
        )

    return model_fn


def _config(settings: Settings, iterations_per_loop: int) -> Any:
    return ipu_config(
        settings.ipus, settings.replicas, iterations_per_loop, tf_random_seed=settings.seed, save_summary_steps=None,
    )  # fmt: skip


def _weights(estimator: Any) -> Tuple[np.ndarray, ...]:
    """The weights of the last checkpoint, in the order of the layers."""
    names = estimator.get_variable_names()
    ordered = [next(name for name in names if name.endswith(wanted)) for wanted in WEIGHTS]
    return tuple(estimator.get_variable_value(name) for name in ordered)


class Epochs:
    """Takes the mean losses of executions one by one, and states the mean of each epoch at its end."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._number = settings.epochs
        self._executions = settings.steps // settings.steps_per_execution
        self._steps = settings.steps_per_execution * settings.gradient_accumulation_count
        self._progress = progress
        self._taken: List[float] = []
        self.losses: List[float] = []
        progress.on_epoch_begin(0)

    def __call__(self, loss: float) -> None:
        self._taken.append(loss)
        logs = {"loss": float(np.mean(self._taken))}
        self._progress.on_train_batch_end(len(self._taken) * self._steps - 1, logs)
        if len(self._taken) < self._executions:
            return
        self._progress.on_epoch_end(len(self.losses), logs)
        self._taken = []
        self.losses.append(logs["loss"])
        if len(self.losses) < self._number:
            self._progress.on_epoch_begin(len(self.losses))
