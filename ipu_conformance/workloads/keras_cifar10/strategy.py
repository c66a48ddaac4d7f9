"""The approach ``strategy``: Keras' own fit in the scope of a strategy; every IPU is a replica."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Callable

from ipu_conformance.data import load
from ipu_conformance.workloads.keras_cifar10.model import build
from ipu_conformance.workloads.keras_cifar10.settings import Settings
from ipu_conformance.workloads.keras_training import Job, Result
from ipu_conformance.workloads.keras_training import train as train_job


def job_of(settings: Settings) -> Job:
    """The settings as what Keras is asked to do."""
    return Job(
        build=functools.partial(build, settings.seed, dropout=settings.dropout),
        data=load(settings.data, train=settings.train_size, test=settings.test_size),
        epochs=settings.epochs,
        steps=settings.steps,
        steps_per_execution=settings.steps_per_execution,
        batch_size=settings.batch_size,
        test_batch=settings.test_batch,
        learning_rate=settings.learning_rate,
        replicas=settings.replicas,
        seed=settings.seed,
        accumulation=settings.gradient_accumulation_count,
    )


def train(
    settings: Settings, *, native: bool, progress: bool = False, say: Callable[[str], None] = lambda line: None
) -> Result:
    """Train a new network; with ``native`` no IPU API is touched."""
    if native:
        settings = on_host(settings)
    return train_job(job_of(settings), native=native, progress=progress, say=say)


def on_host(settings: Settings) -> Settings:
    """The settings of the native twin, which is the same for all approaches: one model, fitted by Keras."""
    return replace(settings, approach="strategy", ipus=1, gradient_accumulation_count=1, model_shard_position=None)
