"""Prefix beam search against the sum over all alignments."""

from __future__ import annotations

import itertools
import math
from typing import Dict, List, Tuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.poptorch.ops.ctc import decode
from tests.unit.examples import at_most


def _summed(logs: np.ndarray, blank: int) -> Dict[Tuple[int, ...], float]:
    """The probability of every label sequence: the sum over the alignments that collapse to it."""
    sums: Dict[Tuple[int, ...], List[float]] = {}
    for alignment in itertools.product(range(logs.shape[1]), repeat=len(logs)):
        labels = tuple(label for label, _ in itertools.groupby(alignment) if label != blank)
        sums.setdefault(labels, []).append(math.exp(sum(logs[step, label] for step, label in enumerate(alignment))))
    return {labels: math.fsum(terms) for labels, terms in sums.items()}


@given(st.integers(1, 5), st.integers(2, 3), st.integers(0, 2**32 - 1), st.data())
@at_most(30)
def test_a_beam_that_holds_everything_is_exact(steps: int, classes: int, seed: int, data: st.DataObject) -> None:
    """All label sequences come back with the probability of their alignments, best first."""
    blank = data.draw(st.integers(0, classes - 1), label="blank")
    raw = np.random.default_rng(seed).normal(size=(steps, classes))
    logs = raw - np.log(np.exp(raw).sum(1, keepdims=True))
    expected = _summed(logs, blank)

    found = decode(logs, blank, beam_width=classes**steps + 1)

    # Every step adds logs of at most classes + 1 terms in float64.
    allowed = 4 * steps * (classes + 1) * np.finfo(np.float64).eps
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert {labels for labels, score in found if score > -math.inf} == set(expected)
    for labels, score in found:
        if score > -math.inf:
            assert abs(score - math.log(expected[labels])) <= allowed * max(1.0, abs(score))


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
@at_most(20)
def test_a_narrow_beam_keeps_that_many_prefixes(steps: int, width: int, seed: int) -> None:
    """A beam never holds more prefixes than it is wide, and never scores one higher than all its alignments."""
    raw = np.random.default_rng(seed).normal(size=(steps, 3))
    logs = raw - np.log(np.exp(raw).sum(1, keepdims=True))
    expected = _summed(logs, 0)

    found = decode(logs, 0, beam_width=width)

    assert 1 <= len(found) <= width
    slack = 16 * steps * np.finfo(np.float64).eps
    assert all(score <= math.log(expected[labels]) + slack * max(1.0, abs(score)) for labels, score in found)
