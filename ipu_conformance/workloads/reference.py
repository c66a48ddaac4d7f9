"""References of convergence: native runs of a workload for many seeds, recorded in the shipped baselines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Sequence

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
    train: Callable[[Any], Any]
    """A native run of such settings."""
    values: Callable[[Any], Sequence[float]]
    """What of a run is compared."""

    @property
    def budget(self) -> Dict[str, Any]:
        """All that the values depend on besides the seed."""
        return {key: value for key, value in asdict(self.settings).items() if key != "seed"}

    def __call__(self, seed: int) -> Sequence[float]:
        """The values of the native twin's run."""
        return self.values(self.train(replace(self.settings, seed=seed)))


def verdict(reference: Reference, results: Sequence[Any]) -> Verdict:
    """What the shipped baseline says of runs with the reference's settings and seeds of their own, taken together."""
    baseline = baselines.load(Path(reference.name))
    values = [reference.values(result) for result in results]
    return judge(baseline.band(len(values)), values, metric=f"{reference.workload}'s {baseline.metric}")


def judgements(references: Iterable[Reference], settings: Any, result: Any) -> List[Verdict]:
    """What the baseline of each reference that has these settings, whatever the seed, says of a run."""
    fitting = [each for each in references if replace(each.settings, seed=0) == replace(settings, seed=0)]
    return [verdict(reference, [result]) for reference in fitting]
