"""The reference of the workload's convergence: native runs for many seeds, recorded in the shipped baseline.

    ipu-conformance baseline record ipu_conformance.workloads.estimator_cnn.reference:SHORT -o estimator-cnn-short.json

As for Keras, the network learns four synthetic pictures by heart, in four loops of ten updates, without dropout.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Tuple

from ipu_conformance.workloads import reference
from ipu_conformance.workloads.estimator_cnn import NAME, Settings
from ipu_conformance.workloads.reference import Reference

Losses = Tuple[float, ...]
"""The mean loss of each loop."""


def train(settings: Settings, *, native: bool) -> Losses:
    """Train a new network in a folder that does not last."""
    from ipu_conformance.data import load
    from ipu_conformance.workloads.estimator_cnn import training

    data = load(settings.data, train=settings.train_size, test=0)
    with tempfile.TemporaryDirectory() as folder:
        return training.train(settings, data, Path(folder), native=native)


def _losses(losses: Losses) -> Losses:
    return losses


_BY_HEART = Settings(batch_size=4, batches_per_step=10, train_size=4, test_size=4, steps=40, dropout=False)
SHORT = Reference(f"{NAME}-short", NAME, "mean training loss of each loop", _BY_HEART, __name__, _losses)

judgements = functools.partial(reference.judgements, (SHORT,))
"""``judgements(settings, losses)``: what the shipped baseline says of a run if it was recorded with these settings."""
