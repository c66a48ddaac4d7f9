"""The reference of the workload's convergence: native runs for many seeds, recorded in the shipped baseline.

ipu-conformance baseline record ipu_conformance.workloads.keras_cifar10.reference:LOSS -o keras-cifar10.json
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, List, Tuple

from ipu_conformance.oracle.convergence import Verdict
from ipu_conformance.workloads import reference
from ipu_conformance.workloads.keras_cifar10.settings import NAME, Settings
from ipu_conformance.workloads.reference import Reference

if TYPE_CHECKING:
    from ipu_conformance.workloads.keras_training import Result


def _native(settings: Settings) -> Result:
    from ipu_conformance.workloads.keras_cifar10.strategy import train

    return train(settings, native=True)


def _losses(result: Result) -> Tuple[float, ...]:
    return result.losses


LOSS = Reference(NAME, NAME, "mean training loss", Settings(), _native, _losses)


def judgements(settings: Settings, result: Result) -> List[Verdict]:
    """What the shipped baseline says of a run, if it was recorded with these settings.

    However many IPUs share a batch, an update is that of one.
    """
    return reference.judgements((LOSS,), replace(settings, ipus=1), result)
