"""The references of the workload's convergence: native runs for many seeds, recorded in the shipped baselines.

    ipu-conformance baseline record ipu_conformance.workloads.paddle_mnist.reference:LOSS -o paddle-mnist-loss.json

As for PopTorch, the accuracy is what a user looks at, and the loss tells smaller differences in a shorter run.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Tuple

from ipu_conformance.workloads import reference
from ipu_conformance.workloads.paddle_mnist import NAME, Settings
from ipu_conformance.workloads.reference import Reference

if TYPE_CHECKING:
    from ipu_conformance.workloads.paddle_mnist.training import Result

TRAINING = "ipu_conformance.workloads.paddle_mnist.training"


def _accuracies(result: Result) -> Tuple[float, ...]:
    return tuple(each.accuracy for each in result.passes)


def _mean_costs(result: Result) -> Tuple[float, ...]:
    return reference.mean_of_each_epoch(result.costs, len(result.passes))


ACCURACY = Reference(NAME, NAME, "test accuracy", Settings(), TRAINING, _accuracies)
_SHORTER = Settings(epochs=2, train_size=1600, test_size=64)
LOSS = Reference(f"{NAME}-loss", NAME, "mean training loss", _SHORTER, TRAINING, _mean_costs)

judgements = functools.partial(reference.judgements, (ACCURACY, LOSS))
"""``judgements(settings, result)``: what each shipped baseline that was recorded with these settings says of a run."""
