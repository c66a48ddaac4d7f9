"""A run of the workload: the network on digits, on IPUs or natively."""

from __future__ import annotations

import functools
from typing import Callable

from ipu_conformance.data import load
from ipu_conformance.workloads.keras_mnist.model import build
from ipu_conformance.workloads.keras_mnist.settings import Settings
from ipu_conformance.workloads.keras_training import Job, Result
from ipu_conformance.workloads.keras_training import train as train_job


def job_of(settings: Settings) -> Job:
    """The settings as what Keras is asked to do."""
    return Job(
        build=functools.partial(build, settings.seed),
        data=load(settings.data, train=settings.train_size, test=settings.test_size),
        epochs=settings.epochs,
        steps=settings.steps_per_epoch,
        steps_per_execution=settings.steps_per_execution,
        batch_size=settings.batch_size,
        test_batch=settings.test_batch,
        learning_rate=settings.learning_rate,
        replicas=settings.replicas,
        seed=settings.seed,
    )


def train(
    settings: Settings, *, native: bool, progress: bool = False, say: Callable[[str], None] = lambda line: None
) -> Result:
    """Train a new network; with ``native`` no IPU API is touched."""
    return train_job(job_of(settings), native=native, progress=progress, say=say)
