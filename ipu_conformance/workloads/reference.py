"""References of convergence: native runs of a workload for many seeds, recorded in the shipped baselines."""

from __future__ import annotations

import importlib
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple

from ipu_conformance.oracle.convergence import baseline as baselines
from ipu_conformance.oracle.convergence.band import Verdict, judge


@dataclass(frozen=True)
class Reference:
    """Native runs of fixed settings, with one value for each epoch."""

    name: str
    workload: str
    metric: str
    settings: Any
    """A frozen dataclass with a ``seed``; the defaults of the workload, or a shorter run."""
    training: str
    """The module whose ``train(settings, native=True)`` is a native run of such settings."""
    values: Callable[[Any], Sequence[float]]
    """What of a run is compared."""

    @property
    def budget(self) -> Dict[str, Any]:
        """All that the values depend on besides the seed."""
        return {key: value for key, value in asdict(self.settings).items() if key != "seed"}

    def __call__(self, seed: int) -> Sequence[float]:
        """The values of the native twin's run."""
        train = importlib.import_module(self.training).train
        return self.values(train(replace(self.settings, seed=seed), native=True))


def verdict(reference: Reference, results: Sequence[Any]) -> Verdict:
    """What the shipped baseline says of runs with the reference's settings and seeds of their own, taken together."""
    baseline = baselines.load(Path(reference.name))
    values = [reference.values(result) for result in results]
    return judge(baseline.band(len(values)), values, metric=f"{reference.workload}'s {baseline.metric}")


def judgements(references: Iterable[Reference], settings: Any, result: Any) -> List[Verdict]:
    """What the baseline of each reference that has these settings, whatever the seed, says of a run."""
    fitting = [each for each in references if replace(each.settings, seed=0) == replace(settings, seed=0)]
    return [verdict(reference, [result]) for reference in fitting]


def mean_of_each_epoch(values: Sequence[float], epochs: int) -> Tuple[float, ...]:
    """The means of equally long epochs."""
    batches = len(values) // epochs
    return tuple(sum(values[epoch * batches :][:batches]) / batches for epoch in range(epochs))


def show(verdicts: Sequence[Verdict], accuracy: float) -> int:
    """Print what baselines say of a run, then the accuracy; the exit code is 1 if the run leaves a band."""
    for each in verdicts:
        print(each.sentence, file=sys.stdout if each.passed else sys.stderr, flush=True)
    print(f"Accuracy on test set: {100 * accuracy:.2f}%")
    return 0 if all(each.passed for each in verdicts) else 1
