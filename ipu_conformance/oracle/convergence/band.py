"""Does a run converge like the reference runs did? A two-sided band around a baseline, and what it can detect.

At each epoch the reference values of n seeds have mean m and standard deviation s. The mean of k runs of a correct
device differs from m by Student's t with n - 1 degrees of freedom, times s * sqrt(1/k + 1/n). The band is

    m ± t(1 - a / 2) * s * sqrt(1/k + 1/n),    a = false-alarm rate / number of epochs,

so that a correct device leaves it anywhere with at most the false-alarm rate, and too low and too high both fail.
Read the other way round it is an equivalence test: a device whose mean is shifted by the *detectable shift* or more
passes with a probability of at most 1 - power. That shift follows from the non-central t distribution.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from ipu_conformance import notes
from ipu_conformance.errors import ConformanceError
from ipu_conformance.oracle.convergence.distributions import noncentral_shift, student_quantile_above

FALSE_ALARM_RATE = 1e-3
"""How often a correct device fails one convergence check, unless a baseline states another rate."""
POWER = 0.95
"""How surely a shift of the stated size is detected."""
LEAST_SEEDS = 20
"""A baseline of fewer seeds knows too little of its own spread."""


class ConvergenceError(ConformanceError):
    """Values cannot be judged: the baseline or the run has a wrong number of them, or none that are finite."""


@dataclass(frozen=True)
class EpochBand:
    """What is allowed of one epoch's value, and the smallest shift of it that is detected."""

    epoch: int
    mean: float
    low: float
    high: float
    detectable_shift: float


@dataclass(frozen=True)
class Band:
    """What is allowed of a run (or of the mean of several) at each epoch, and how that was derived."""

    epochs: Tuple[EpochBand, ...]
    seeds: int
    runs: int
    false_alarm_rate: float
    power: float

    def explain(self) -> str:
        """Where the band comes from."""
        of = "a run" if self.runs == 1 else f"the mean of {self.runs} runs"
        return (
            f"Student's band of {of} from {self.seeds} seeds, false-alarm rate {self.false_alarm_rate:g} over "
            f"{len(self.epochs)} epoch{'' if len(self.epochs) == 1 else 's'}"
        )


@dataclass(frozen=True)
class Verdict:
    """Whether a run converges like its baseline, since which epoch that is certain, and why, in one sentence."""

    passed: bool
    epoch: int
    sentence: str


def band(
    values: Sequence[Sequence[float]],
    *,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    power: float = POWER,
    runs: int = 1,
) -> Band:
    """The band of the mean of ``runs`` runs around the reference ``values``, one row for each seed."""
    _require_values(values)
    for name, rate in (("false-alarm rate", false_alarm_rate), ("power", power)):
        if not 0.0 < rate < 1.0:
            raise ConvergenceError(f"the {name} is {rate}; it must lie between 0 and 1, both excluded")
    if runs < 1:
        raise ConvergenceError(f"{runs} runs cannot be judged; give at least 1")
    seeds, epochs = len(values), len(values[0])
    threshold = student_quantile_above(false_alarm_rate / (2 * epochs), seeds - 1)
    shift = noncentral_shift(power, threshold, seeds - 1)
    rows: List[EpochBand] = []
    for epoch, column in enumerate(zip(*values), start=1):
        mean = math.fsum(column) / seeds
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in column) / (seeds - 1))
        if spread == 0.0:
            raise ConvergenceError(
                f"every seed has the value {mean:g} at epoch {epoch}, which leaves no spread to judge by; "
                "choose a budget at which seeds differ"
            )
        unit = spread * math.sqrt(1.0 / runs + 1.0 / seeds)
        rows.append(EpochBand(epoch, mean, mean - threshold * unit, mean + threshold * unit, shift * unit))
    return Band(tuple(rows), seeds, runs, false_alarm_rate, power)


def judge(reference: Band, runs: Sequence[Sequence[float]], *, metric: str = "the metric") -> Verdict:
    """The verdict on ``runs``, each with one value per epoch, taken together by their mean at each epoch."""
    if len(runs) != reference.runs:
        raise ConvergenceError(f"{len(runs)} runs are given to a band made for {reference.runs}")
    for run in runs:
        if len(run) != len(reference.epochs):
            raise ConvergenceError(
                f"a run has {len(run)} values, and the baseline has {len(reference.epochs)} epochs; give one for each"
            )
    monitor = ConvergenceMonitor(reference, metric=metric)
    means = [sum(column) / len(column) for column in zip(*runs)]
    for epoch, mean in enumerate(means, start=1):
        verdict = monitor.update(epoch, mean)
        if verdict is not None:
            if notes.wanted():
                _tell_curve(reference, means, metric, verdict)
            return verdict
    raise AssertionError("a monitor gives its verdict by the last epoch")


def _tell_curve(reference: Band, means: Sequence[float], metric: str, verdict: Verdict) -> None:
    """Tell a curve, as far as it is finite, and the band that it was judged by."""
    finite = [float(mean) for mean in itertools.takewhile(math.isfinite, means)]
    rows = reference.epochs
    bounds = {word: [float(getattr(row, word)) for row in rows] for word in ("low", "mean", "high")}
    notes.tell("curve", {"metric": metric, "passed": verdict.passed, "values": finite, **bounds})


def left_out(values: Sequence[Sequence[float]], *, false_alarm_rate: float = FALSE_ALARM_RATE) -> int:
    """How many of the seeds lie outside the band of all the others: a check of the band by its own data."""
    outside = 0
    for number, row in enumerate(values):
        others = [*values[:number], *values[number + 1 :]]
        epochs = len(row)
        threshold = student_quantile_above(false_alarm_rate / (2 * epochs), len(others) - 1)
        for value, column in zip(row, zip(*others)):
            mean = math.fsum(column) / len(column)
            square = math.fsum((each - mean) ** 2 for each in column) / (len(column) - 1)
            if abs(value - mean) > threshold * math.sqrt(square * (1.0 + 1.0 / len(column))):
                outside += 1
                break
    return outside


class ConvergenceMonitor:
    """Follows one run epoch by epoch and says when its verdict is certain, so that a failed run can stop."""

    def __init__(self, reference: Band, *, metric: str = "the metric") -> None:
        self._reference = reference
        self._metric = metric
        self._verdict: Optional[Verdict] = None
        self._next = 1

    def update(self, epoch: int, value: float) -> Optional[Verdict]:
        """The verdict if it is certain after ``epoch``: outside the band at once, inside only at the last epoch."""
        if self._verdict is not None:
            raise ConvergenceError(f"the verdict was certain at epoch {self._verdict.epoch}; epoch {epoch} is too late")
        if epoch != self._next:
            raise ConvergenceError(f"epoch {epoch} follows epoch {self._next - 1}; give every epoch once, from 1")
        self._next += 1
        row = self._reference.epochs[epoch - 1]
        if not row.low <= value <= row.high:
            self._verdict = Verdict(False, epoch, self._outside(row, value))
        elif epoch == len(self._reference.epochs):
            self._verdict = Verdict(True, epoch, self._inside(row, value))
        return self._verdict

    def _outside(self, row: EpochBand, value: float) -> str:
        side = "not finite" if not math.isfinite(value) else "too low" if value < row.low else "too high"
        return (
            f"{self._metric} is {side} at epoch {row.epoch}: {value:.6g}, allowed {row.low:.6g} to {row.high:.6g} "
            f"around {row.mean:.6g} ({self._reference.explain()}); {self._detected(row)}."
        )

    def _inside(self, row: EpochBand, value: float) -> str:
        return (
            f"{self._metric} converges like the baseline: {value:.6g} at epoch {row.epoch}, allowed {row.low:.6g} to "
            f"{row.high:.6g} around {row.mean:.6g} ({self._reference.explain()}); {self._detected(row)}."
        )

    def _detected(self, row: EpochBand) -> str:
        return f"a shift of {row.detectable_shift:.3g} is detected with {self._reference.power:.0%} power"


def _require_values(values: Sequence[Sequence[float]]) -> None:
    if len(values) < LEAST_SEEDS:
        raise ConvergenceError(f"the baseline has {len(values)} seeds; it needs at least {LEAST_SEEDS}")
    epochs = len(values[0])
    for number, row in enumerate(values):
        if len(row) != epochs or not epochs:
            raise ConvergenceError(
                f"row {number} of the baseline has {len(row)} values and row 0 has {epochs}; each needs one per epoch"
            )
        for epoch, value in enumerate(row, start=1):
            if not math.isfinite(value):
                raise ConvergenceError(f"row {number} of the baseline is {value} at epoch {epoch}; it must be finite")
