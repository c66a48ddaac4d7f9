"""The network of small pictures as the model function of an estimator, and the hooks of its training."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import tensorflow as tf

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.keras.pictures import layers, loss_of, through

PROBABILITIES, ACCURACY = "probabilities", "accuracy"
v1 = tf.compat.v1


@dataclass(frozen=True)
class Training:
    """How the network is trained; replicas and micro-batches share a batch, and their gradients are averaged."""

    learning_rate: float
    seed: int
    dropout: bool = True
    replicas: int = 1
    accumulation: int = 1


def native_update(training: Training, loss: Any) -> Any:
    """The operation with which stock TensorFlow updates the weights and counts a step."""
    return v1.train.GradientDescentOptimizer(training.learning_rate).minimize(
        loss, v1.train.get_or_create_global_step()
    )


def ipu_update(training: Training, loss: Any) -> Any:
    """The operation with which an IPU updates the weights; the estimator counts the steps."""
    from tensorflow.python import ipu

    optimizer: Any = v1.train.GradientDescentOptimizer(training.learning_rate)
    optimizers = ipu.optimizers
    if training.accumulation > 1:
        accumulating = (
            optimizers.CrossReplicaGradientAccumulationOptimizerV2
            if training.replicas > 1
            else optimizers.GradientAccumulationOptimizerV2
        )
        mean = ipu.gradient_accumulation.GradientAccumulationReductionMethod.MEAN
        optimizer = accumulating(optimizer, training.accumulation, reduction_method=mean)
    elif training.replicas > 1:
        optimizer = optimizers.CrossReplicaOptimizer(optimizer)
    return optimizer.minimize(loss)


def model_function(training: Training, spec: Any, update: Callable[[Training, Any], Any]) -> Callable[..., Any]:
    """The model function of the network; ``spec`` is stock's class of specifications, or that of an IPU's."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        learning = mode == tf.estimator.ModeKeys.TRAIN
        probabilities = through(layers(training.seed, dropout=training.dropout), features, training=learning)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return spec(mode, predictions={PROBABILITIES: probabilities})
        loss = loss_of(labels, probabilities)
        if learning:
            return spec(mode, loss=loss, train_op=update(training, loss))
        chosen = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return spec(mode, loss=loss, eval_metric_ops={ACCURACY: v1.metrics.accuracy(labels, chosen)})

    return model_fn


def ipu_config(ipus: int, replicas: int, iterations_per_loop: int, **stock: Any) -> Any:
    """A configuration for so many IPUs, which the replicas share, and a loop on the device; ``stock`` has the rest."""
    from tensorflow.python import ipu

    options = ipu.config.IPUConfig()
    options.auto_select_ipus = ipus
    device = ipu.ipu_run_config.IPURunConfig(
        iterations_per_loop=iterations_per_loop,
        ipu_options=options,
        num_replicas=replicas,
        num_shards=ipus // replicas,
    )
    return ipu.ipu_run_config.RunConfig(ipu_run_config=device, **stock)


def require_estimators() -> None:
    """Refuse a TensorFlow that has no estimators."""
    if not hasattr(tf, "estimator"):
        raise WorkloadError(
            f"TensorFlow {tf.__version__} has no estimators; install tensorflow 2.15, which needs Python 3.11 or older"
        )


class EveryLoss(tf.compat.v1.train.SessionRunHook):
    """Calls a function with the loss of every run of the session: that of a step, or the mean of a loop."""

    def __init__(self, call: Callable[[float], None]) -> None:
        self._call = call

    def begin(self) -> None:
        # Stock puts the loss of the specification there, last of all.
        self._loss = v1.get_collection(v1.GraphKeys.LOSSES)[-1]

    def before_run(self, run_context: Any) -> Any:
        return v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._call(float(run_values.results))


class Seeded(tf.compat.v1.train.SessionRunHook):
    """Starts the random numbers of the IPUs from a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def begin(self) -> None:
        from tensorflow.python import ipu

        self._operation = ipu.utils.reset_ipu_seed(self._seed)

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._operation is not None:
            session.run(self._operation)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Inside, TensorFlow does not warn; each step of a stock estimator would say that estimators are deprecated."""
    logger = tf.get_logger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
