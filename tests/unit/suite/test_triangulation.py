"""The odd one out among frameworks is named from their results and their verdicts."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_conformance.triangulation import agree, point, verdict

EXACT = np.array([1.0, np.nan, np.inf])


def _points(**values):
    return {name: point("gelu float32 large", name, "[3]", value, 0.25) for name, value in values.items()}


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (EXACT, True),
        (EXACT + 0.5, True),
        (EXACT + 0.75, False),
        (np.array([1.0, 2.0, np.inf]), False),
        (np.array([1.0, np.nan, -np.inf]), False),
        (np.array([1.0, np.nan]), False),
    ],
    ids=["same", "both off", "too far", "number for NaN", "sign of infinity", "shape"],
)
def test_results_agree_within_what_both_may_be_off(other, expected):
    """Two results differ by at most the sum of their tolerances, with NaN and infinities in the same places."""
    points = _points(poptorch=EXACT, paddle=other)

    assert agree(points["poptorch"], points["paddle"]) is expected


@pytest.mark.parametrize(
    ("failed", "values", "expected"),
    [
        ([], {}, None),
        (
            ["paddle"],
            {"paddle": EXACT + 9},
            "paddle is the odd one out: poptorch and tensorflow give what the oracle expects",
        ),
        (
            ["poptorch", "tensorflow", "paddle"],
            {},
            "the oracle is the odd one out: poptorch and tensorflow and paddle agree with each other",
        ),
        (
            ["poptorch", "paddle"],
            {"paddle": EXACT + 9},
            "tensorflow alone gives what the oracle expects; poptorch and paddle differ from each other too",
        ),
    ],
    ids=["nobody", "one", "all", "two"],
)
def test_the_odd_one_out_is_named(failed, values, expected):
    """One that fails is the odd one; where all fail alike it is the oracle."""
    points = _points(**{"poptorch": EXACT, "tensorflow": EXACT, "paddle": EXACT, **values})

    assert verdict(points, failed) == expected


def test_one_framework_alone_has_no_odd_one():
    """A comparison needs two."""
    assert verdict(_points(poptorch=EXACT), ["poptorch"]) is None
