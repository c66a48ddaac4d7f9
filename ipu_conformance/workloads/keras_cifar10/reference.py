"""The reference of the workload's convergence: native runs for many seeds, recorded in the shipped baseline.

    ipu-conformance baseline record ipu_conformance.workloads.keras_cifar10.reference:SHORT -o keras-cifar10-short.json

All approaches share it: an update is that of one batch however replicas and micro-batches share it, the network has no
batch norm, and dropout, whose masks differ from one approach to another, is left out. In a time that a suite can afford
the network learns next to nothing of synthetic pictures, but it learns four of them by heart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, List, Tuple

from ipu_conformance.oracle.convergence.band import Verdict
from ipu_conformance.workloads import reference
from ipu_conformance.workloads.keras_cifar10 import NAME, Settings
from ipu_conformance.workloads.reference import Reference

if TYPE_CHECKING:
    from ipu_conformance.workloads.keras.training import Result

TRAINING = "ipu_conformance.workloads.keras_cifar10.training"
QUARTERS = 4


def _quarters(result: Result) -> Tuple[float, ...]:
    """The mean losses of ten passes each."""
    return reference.mean_of_each_epoch(result.losses, QUARTERS)


_BY_HEART = Settings(epochs=40, train_size=4, test_size=4, batch_size=4, dropout=False)
SHORT = Reference(f"{NAME}-short", NAME, "mean training loss of ten epochs", _BY_HEART, TRAINING, _quarters)


def judgements(settings: Settings, result: Result) -> List[Verdict]:
    """What the shipped baseline says of a run, if it was recorded with these settings, whatever the approach."""
    plain = Settings()
    alike = {name: getattr(plain, name) for name in ("approach", "ipus", "gradient_accumulation_count")}
    return reference.judgements((SHORT,), replace(settings, model_shard_position=None, **alike), result)
