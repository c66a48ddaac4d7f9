"""The references of the workload's convergence: native runs for many seeds, recorded in the shipped baselines.

    ipu-conformance baseline record ipu_conformance.workloads.keras_mnist.reference:SHORT -o keras-mnist-short.json

Both are of the mean training loss of each epoch, which is what the workload prints; the short one is what the suite
can afford to run for several seeds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, List, Tuple

from ipu_conformance.oracle.convergence.band import Verdict
from ipu_conformance.workloads import reference
from ipu_conformance.workloads.keras_mnist import NAME, Settings
from ipu_conformance.workloads.reference import Reference

if TYPE_CHECKING:
    from ipu_conformance.workloads.keras.training import Result

METRIC = "mean training loss"
TRAINING = "ipu_conformance.workloads.keras_mnist.training"


def _losses(result: Result) -> Tuple[float, ...]:
    return result.losses


WHOLE = Reference(NAME, NAME, METRIC, Settings(), TRAINING, _losses)
_SHORTER = Settings(epochs=2, steps_per_epoch=200, train_size=1600, test_size=100)
SHORT = Reference(f"{NAME}-short", NAME, METRIC, _SHORTER, TRAINING, _losses)


def judgements(settings: Settings, result: Result) -> List[Verdict]:
    """What each shipped baseline that was recorded with these settings says of a run.

    However many replicas share a batch, an update is that of one.
    """
    return reference.judgements((WHOLE, SHORT), replace(settings, replicas=1), result)
