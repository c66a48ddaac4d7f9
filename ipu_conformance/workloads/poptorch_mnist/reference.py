"""The references of the workload's convergence: native runs for many seeds, recorded in the shipped baselines.

    ipu-conformance baseline record ipu_conformance.workloads.poptorch_mnist.reference:LOSS -o poptorch-mnist-loss.json

The accuracy is what a user looks at; its baseline is of the default settings. The loss, a mean over all batches of an
epoch, differs less from seed to seed and so tells smaller differences between devices in a shorter run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence, Tuple

from ipu_conformance.oracle import baseline as baselines
from ipu_conformance.oracle.convergence import Verdict, judge
from ipu_conformance.workloads.poptorch_mnist.settings import NAME, Settings

if TYPE_CHECKING:
    from ipu_conformance.workloads.poptorch_mnist.training import Result


@dataclass(frozen=True)
class Reference:
    """Native runs of fixed settings, with one value for each epoch."""

    name: str
    metric: str
    values: Callable[[Result], Sequence[float]]
    settings: Settings = field(default_factory=Settings)

    @property
    def budget(self) -> Dict[str, Any]:
        """All that the values depend on besides the seed."""
        return {key: value for key, value in asdict(self.settings).items() if key != "seed"}

    def __call__(self, seed: int) -> Sequence[float]:
        """The values of the native twin's run."""
        from ipu_conformance.workloads.poptorch_mnist.training import train

        return self.values(train(replace(self.settings, seed=seed), native=True))


def _mean_losses(result: Result) -> Tuple[float, ...]:
    epochs = len(result.accuracies)
    batches = len(result.losses) // epochs
    return tuple(sum(result.losses[epoch * batches :][:batches]) / batches for epoch in range(epochs))


ACCURACY = Reference(NAME, "test accuracy", lambda result: result.accuracies)
LOSS = Reference(f"{NAME}-loss", "mean training loss", _mean_losses, Settings(epochs=2, train_size=1600, test_size=80))


def verdict(reference: Reference, results: Sequence[Result]) -> Verdict:
    """What the shipped baseline says of runs with the reference's settings and seeds of their own, taken together."""
    baseline = baselines.load(Path(reference.name))
    values = [reference.values(result) for result in results]
    return judge(baseline.band(len(values)), values, metric=f"{NAME}'s {baseline.metric}")


def judgements(settings: Settings, result: Result) -> List[Verdict]:
    """What each shipped baseline that was recorded with these settings says of a run."""
    fitting = [each for each in (ACCURACY, LOSS) if replace(each, settings=settings).budget == each.budget]
    return [verdict(reference, [result]) for reference in fitting]
