"""A model is fitted on IPUs or natively, with a bar for each epoch, and then classifies the test set."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Iterator, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf

from ipu_conformance.data import DataSet, load
from ipu_conformance.workloads.bars import bar
from ipu_conformance.workloads.keras.data import test_set, training_set


@dataclass(frozen=True)
class Job:
    """One training; an update takes a batch, which the replicas share."""

    build: Callable[[], Any]
    """Makes the model, not yet compiled."""
    data: DataSet
    epochs: int
    steps: int
    """Updates of an epoch."""
    steps_per_execution: int
    batch_size: int
    test_batch: int
    """The test samples that a replica takes at once."""
    learning_rate: float
    replicas: int
    seed: int
    accumulation: int = 1
    """The micro-batches of a replica's share of a batch."""

    @property
    def test_batches(self) -> int:
        """The batches of the test set, those of all replicas together."""
        return len(self.data.test) // self.test_batch


@dataclass(frozen=True)
class Result:
    """The mean loss and the share of training samples recognised in each epoch, and what the test set gave.

    Estimators do not count what they recognise while they train.
    """

    losses: Tuple[float, ...]
    training_accuracies: Tuple[float, ...]
    probabilities: np.ndarray
    """Of every test sample's classes, after training."""
    accuracy: float
    """The share of test samples that are recognised."""
    weights: Tuple[np.ndarray, ...]


def job_for(settings: Any, build: Callable[[int], Any], *, steps: int, accumulation: int = 1) -> Job:
    """The settings of a workload in Keras' terms; ``build(seed)`` makes the model."""
    return Job(
        build=functools.partial(build, settings.seed),
        data=load(settings.data, train=settings.train_size, test=settings.test_size),
        epochs=settings.epochs,
        steps=steps,
        steps_per_execution=settings.steps_per_execution,
        batch_size=settings.batch_size,
        test_batch=settings.test_batch,
        learning_rate=settings.learning_rate,
        replicas=settings.replicas,
        seed=settings.seed,
        accumulation=accumulation,
    )


def unwatched(program: Any) -> None:
    """Looks at nothing."""


def fit(
    job: Job,
    *,
    native: bool,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
    watch: Callable[[Any], None] = unwatched,
) -> Result:
    """Train a new model; with ``native`` no IPU API is touched.

    ``watch`` is called with the model after it was trained, and again after it has classified.
    """
    tf.random.set_seed(job.seed)
    with contextlib.nullcontext() if native else ipu_scope(job.replicas, job.seed):
        model = job.build()
        # Keras adds up the gradients of replicas, each a mean over its share of the batch.
        optimizer = tf.keras.optimizers.SGD(job.learning_rate / job.replicas)
        compile_for(model, optimizer, job.steps_per_execution * job.accumulation)
        if not native:
            model.set_replication_options("MEAN")
        if job.accumulation > 1:
            model.set_gradient_accumulation_options(job.accumulation, gradient_accumulation_reduction_method="mean")
        history = model.fit(
            training_set(job.data.train, job.batch_size // job.replicas // job.accumulation, job.seed),
            epochs=job.epochs,
            steps_per_epoch=job.steps * job.replicas * job.accumulation,
            callbacks=[Progress(job.epochs, job.steps * job.accumulation, bars=progress, say=say)],
            verbose=0,
        ).history
        watch(model)
        # Another number of batches follows, and steps_per_execution has to divide it.
        compile_for(model, optimizer, job.test_batches // job.replicas)
        probabilities = model.predict(test_set(job.data.test, job.test_batch), steps=job.test_batches, verbose=0)
        watch(model)
        weights = tuple(model.get_weights())
    if len(probabilities) != len(job.data.test):
        raise RuntimeError(f"{len(probabilities)} of {len(job.data.test)} test samples were classified")
    accuracy = float(np.mean(probabilities.argmax(axis=1) == job.data.test.labels))
    return Result(tuple(history["loss"]), tuple(history["accuracy"]), probabilities, accuracy, weights)


def compile_for(model: Any, optimizer: Any, steps_per_execution: int) -> None:
    """Compile a classifier whose last layer is a softmax."""
    model.compile(
        optimizer,
        tf.keras.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )


@contextlib.contextmanager
def ipu_scope(ipus: int, seed: int) -> Iterator[None]:
    """The scope of a strategy on so many IPUs, whose random numbers start from a seed."""
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()
    ipu.utils.reset_ipu_seed(seed)
    strategy = ipu.ipu_strategy.IPUStrategy()
    scope: ContextManager[Any] = strategy.scope()
    with scope:
        yield


class Progress(tf.keras.callbacks.Callback):
    """Bars on stderr move on with every execution; lines with an epoch's loss and accuracy go to ``say``."""

    def __init__(self, epochs: int, steps: int, *, bars: bool, say: Callable[[str], None]) -> None:
        super().__init__()
        self._epochs, self._steps, self._bars, self._say = epochs, steps, bars, say
        self._bar: Any = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        title = f"Epoch {epoch + 1}/{self._epochs}"
        self._bar = bar(title=title if self._bars else "", total=self._steps, unit="step")

    def on_train_batch_end(self, batch: int, logs: Optional[Mapping[str, float]] = None) -> None:
        assert self._bar is not None
        self._bar.set_postfix_str(_shown(logs or {}), refresh=False)
        # An execution of several steps is seen once, with the number of its last step.
        self._bar.update(batch + 1 - self._bar.n)

    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, float]] = None) -> None:
        assert self._bar is not None
        self._bar.close()
        self._say(f"Epoch {epoch + 1}/{self._epochs}, {_shown(logs or {})}")


def _shown(logs: Mapping[str, float]) -> str:
    recognised = f", accuracy {100 * logs['accuracy']:.2f}%" if "accuracy" in logs else ""
    return f"loss {logs['loss']:.4f}{recognised}"
