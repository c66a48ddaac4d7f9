"""The reference of the workload's convergence: native runs for many seeds, recorded in the shipped baseline.

    ipu-conformance baseline record ipu_conformance.workloads.poptorch_mnist.reference:REFERENCE -o poptorch-mnist.json
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from ipu_conformance.oracle import baseline as baselines
from ipu_conformance.oracle.convergence import Verdict, judge
from ipu_conformance.workloads.poptorch_mnist.settings import NAME, Settings


@dataclass(frozen=True)
class Reference:
    """Native runs of fixed settings; the value of an epoch is the test accuracy after it."""

    settings: Settings

    name = NAME
    metric = "test accuracy"

    @property
    def budget(self) -> Dict[str, Any]:
        """All that the values depend on besides the seed."""
        return {key: value for key, value in asdict(self.settings).items() if key != "seed"}

    def __call__(self, seed: int) -> Sequence[float]:
        """The test accuracy after each epoch of the native twin."""
        from ipu_conformance.workloads.poptorch_mnist.training import train

        return train(replace(self.settings, seed=seed), native=True).accuracies


REFERENCE = Reference(Settings())


def judgement(settings: Settings, accuracies: Sequence[float]) -> Optional[Verdict]:
    """What the shipped baseline says of a run; None if it was recorded with other settings."""
    if Reference(settings).budget != REFERENCE.budget:
        return None
    baseline = baselines.load(Path(NAME))
    return judge(baseline.band(), [accuracies], metric=f"{baseline.workload}'s {baseline.metric}")
