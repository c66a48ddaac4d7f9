"""A verdict on convergence, told to who listens together with the curve and the band that it rests on."""

from __future__ import annotations

import itertools
import math
from typing import Sequence

from ipu_conformance import notes
from ipu_conformance.oracle.convergence.band import Band, Verdict, judge


def judged(reference: Band, runs: Sequence[Sequence[float]], *, metric: str = "the metric") -> Verdict:
    """The oracle's verdict on runs with one value per epoch."""
    verdict = judge(reference, runs, metric=metric)
    if notes.wanted():
        means = (sum(column) / len(column) for column in zip(*runs))
        finite = [float(mean) for mean in itertools.takewhile(math.isfinite, means)]
        bounds = {word: [float(getattr(row, word)) for row in reference.epochs] for word in ("low", "mean", "high")}
        notes.tell("curve", {"metric": metric, "passed": verdict.passed, "values": finite, **bounds})
    return verdict
