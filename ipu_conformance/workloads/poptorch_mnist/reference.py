"""The references of the workload's convergence: native runs for many seeds, recorded in the shipped baselines.

    ipu-conformance baseline record ipu_conformance.workloads.poptorch_mnist.reference:LOSS -o poptorch-mnist-loss.json

The accuracy is what a user looks at; its baseline is of the default settings. The loss, a mean over all batches of an
epoch, differs less from seed to seed and so tells smaller differences between devices in a shorter run.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Tuple

from ipu_conformance.workloads import reference
from ipu_conformance.workloads.poptorch_mnist import NAME, Settings
from ipu_conformance.workloads.reference import Reference

if TYPE_CHECKING:
    from ipu_conformance.workloads.poptorch_mnist.training import Result

TRAINING = "ipu_conformance.workloads.poptorch_mnist.training"


def _accuracies(result: Result) -> Tuple[float, ...]:
    return result.accuracies


def _mean_losses(result: Result) -> Tuple[float, ...]:
    return reference.mean_of_each_epoch(result.losses, len(result.accuracies))


ACCURACY = Reference(NAME, NAME, "test accuracy", Settings(), TRAINING, _accuracies)
_SHORTER = Settings(epochs=2, train_size=1600, test_size=80)
LOSS = Reference(f"{NAME}-loss", NAME, "mean training loss", _SHORTER, TRAINING, _mean_losses)

judgements = functools.partial(reference.judgements, (ACCURACY, LOSS))
"""``judgements(settings, result)``: what each shipped baseline that was recorded with these settings says of a run."""
