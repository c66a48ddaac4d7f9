"""The approaches ``estimator`` and ``replica``: an IPUEstimator on one IPU, or on replicas of one IPU each."""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.workloads.estimators import Training, ipu_update, model_function
from ipu_conformance.workloads.keras_cifar10 import strategy
from ipu_conformance.workloads.keras_cifar10.estimator_training import train_estimator
from ipu_conformance.workloads.keras_cifar10.settings import Settings
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

    training = Training(
        settings.learning_rate,
        settings.seed,
        settings.dropout,
        settings.replicas,
        settings.gradient_accumulation_count,
    )
    model_fn = model_function(training, ipu.ipu_estimator.IPUEstimatorSpec, ipu_update)
    return ipu.ipu_estimator.IPUEstimator(model_fn, folder, config)
