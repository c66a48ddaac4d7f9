"""What the approaches with estimators do: train, with a line for each epoch, and classify the test set."""

from __future__ import annotations

import tempfile
from typing import Any, Callable, List, Tuple

import numpy as np

from ipu_conformance.data import load
from ipu_conformance.workloads.estimators import (
    PROBABILITIES,
    EveryLoss,
    Seeded,
    ipu_config,
    quietly,
    require_estimators,
)
from ipu_conformance.workloads.keras_cifar10.settings import Settings
from ipu_conformance.workloads.keras_data import test_set, training_set
from ipu_conformance.workloads.keras_progress import Progress
from ipu_conformance.workloads.keras_training import Result

WEIGHTS = tuple(
    f"{layer}/{kind}"
    for layer in ("conv_1", "conv_2", "conv_3", "conv_4", "dense_1", "dense_2")
    for kind in ("kernel", "bias")
)


def train_estimator(
    settings: Settings, make: Callable[[Settings, str, Any], Any], *, progress: bool, say: Callable[[str], None]
) -> Result:
    """Train a new network with what ``make(settings, folder, configuration)`` returns.

    A step of an estimator is a micro-batch of every replica. Checkpoints are needed between training and the test only.
    """
    require_estimators()
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
        classifier = make(settings, folder, _config(settings, batches // settings.replicas))
        predictions = classifier.predict(
            lambda: test_set(data.test, settings.test_batch).map(lambda images, labels: images),
            num_predictions=settings.test_size,
        )
        found = np.stack([each[PROBABILITIES] for each in predictions])
        weights = _weights(trainer)
    accuracy = float(np.mean(found.argmax(axis=1) == data.test.labels))
    return Result(tuple(epochs.losses), (), found, accuracy, weights)


def _config(settings: Settings, iterations_per_loop: int) -> Any:
    return ipu_config(
        settings.ipus, settings.replicas, iterations_per_loop, tf_random_seed=settings.seed, save_summary_steps=None,
    )  # fmt: skip


def _weights(estimator: Any) -> Tuple[np.ndarray, ...]:
    """The weights of the last checkpoint, in the order of the layers."""
    names = estimator.get_variable_names()
    found = [next(name for name in names if name.endswith(wanted)) for wanted in WEIGHTS]
    return tuple(estimator.get_variable_value(name) for name in found)


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
