"""Recording a baseline: one reference run for each seed, in a journal that a kill does not lose."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple, runtime_checkable

from ipu_conformance.oracle.convergence.band import FALSE_ALARM_RATE, LEAST_SEEDS, POWER
from ipu_conformance.oracle.convergence.baseline import Baseline, BaselineError, digest, environment, write_atomically

Progress = Callable[[int, int, int, Sequence[float]], None]
"""``progress(done, total, seed, values)`` is called after every seed."""


@runtime_checkable
class Recordable(Protocol):
    """What a baseline can be recorded of: a workload with a budget that gives one value per epoch for a seed."""

    @property
    def name(self) -> str:
        """The workload's name."""

    @property
    def metric(self) -> str:
        """What its values are."""

    @property
    def budget(self) -> Mapping[str, Any]:
        """All that the values depend on besides the seed, as JSON values."""

    def __call__(self, seed: int) -> Sequence[float]:
        """The value of each epoch."""


def record(
    workload: Recordable,
    seeds: Sequence[int],
    journal: Path,
    *,
    regenerate: str,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    progress: Optional[Progress] = None,
) -> Baseline:
    """Run ``workload`` for every seed that ``journal`` does not have yet and return the baseline of all of them."""
    if len(set(seeds)) < max(LEAST_SEEDS, len(seeds)):
        raise BaselineError(f"{len(set(seeds))} different seeds are given; a baseline needs at least {LEAST_SEEDS}")
    identity = _identity(workload)
    done = _resume(journal, identity)
    with journal.open("a", encoding="utf-8") as stream:
        if stream.tell() == 0:
            print(json.dumps({"identity": identity}), file=stream, flush=True)
        for number, seed in enumerate(seeds, start=1):
            if seed not in done:
                done[seed] = _values(workload, seed)
                print(json.dumps({"seed": seed, "values": done[seed]}), file=stream, flush=True)
            if progress is not None:
                progress(number, len(seeds), seed, done[seed])
    baseline = Baseline(
        workload=workload.name,
        metric=workload.metric,
        budget=workload.budget,
        seeds=tuple(seeds),
        values=tuple(tuple(done[seed]) for seed in seeds),
        false_alarm_rate=false_alarm_rate,
        power=POWER,
        regenerate=regenerate,
        environment=environment(),
    )
    baseline.band()  # refuses values that decide nothing before they are called a baseline
    return baseline


def _identity(workload: Recordable) -> str:
    """A journal is gone on with only by the same workload, budget and versions."""
    return digest(
        {
            "workload": workload.name,
            "metric": workload.metric,
            "budget": dict(workload.budget),
            "environment": environment(),
        }
    )


def _values(workload: Recordable, seed: int) -> List[float]:
    values = [float(value) for value in workload(seed)]
    for epoch, value in enumerate(values, start=1):
        if not math.isfinite(value):
            raise BaselineError(f"{workload.name} with seed {seed} gives {value} at epoch {epoch}; it must be finite")
    return values


def _resume(journal: Path, identity: str) -> Dict[int, List[float]]:
    """The finished seeds of ``journal``; a last line that a kill cut short is taken out."""
    if not journal.exists():
        journal.parent.mkdir(parents=True, exist_ok=True)
        return {}
    whole, entries = _whole_lines(journal)
    if entries and entries[0].get("identity") != identity:
        raise BaselineError(f"{journal} was begun with another workload, budget or version; delete it to begin again")
    write_atomically(journal, whole)
    return {entry["seed"]: entry["values"] for entry in entries[1:]}


def _whole_lines(journal: Path) -> Tuple[str, List[Dict[str, Any]]]:
    whole, entries = "", []
    for line in journal.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        try:
            entry = json.loads(line)
        except ValueError:
            raise BaselineError(f"{journal} has a damaged line; delete it to begin again") from None
        whole += line
        entries.append(entry)
    return whole, entries
