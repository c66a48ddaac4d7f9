"""The approach ``pipeline``: an IPUPipelineEstimator with the layers on two IPUs."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from ipu_conformance.workloads.estimators import PROBABILITIES
from ipu_conformance.workloads.keras_cifar10 import strategy
from ipu_conformance.workloads.keras_cifar10.estimator_training import train_estimator
from ipu_conformance.workloads.keras_cifar10.model import layers, loss_of, through
from ipu_conformance.workloads.keras_cifar10.settings import STAGES, Settings
from ipu_conformance.workloads.keras_training import Result


def train(
    settings: Settings, *, native: bool, progress: bool = False, say: Callable[[str], None] = lambda line: None
) -> Result:
    """Train a new network; with ``native`` no IPU API is touched."""
    if native:
        return strategy.train(settings, native=True, progress=progress, say=say)
    return train_estimator(settings, _estimator, progress=progress, say=say)


def _estimator(settings: Settings, folder: str, config: Any) -> Any:
    from tensorflow.python import ipu

    return ipu.ipu_pipeline_estimator.IPUPipelineEstimator(_model_function(settings), folder, config)


def _model_function(settings: Settings) -> Callable[..., Any]:
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
