"""Dropout: its modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance.oracle.op import OracleError
from tests.unit.oracle.ops.kinks import forward

X = np.array([1.0, -2.0, 4.0])
MASK = np.array([True, False, True])


@pytest.mark.parametrize(
    ("mode", "training", "expected"),
    [
        ("upscale_in_train", True, [2.0, 0.0, 8.0]),
        ("upscale_in_train", False, [1.0, -2.0, 4.0]),
        ("downscale_in_infer", True, [1.0, 0.0, 4.0]),
        ("downscale_in_infer", False, [0.5, -1.0, 2.0]),
    ],
)
def test_modes_by_hand(mode: str, training: bool, expected: Any) -> None:
    """One mode scales up what it keeps in training, the other scales down everything in inference."""
    np.testing.assert_array_equal(forward("dropout", X, MASK, rate=0.5, mode=mode, training=training), expected)


@pytest.mark.parametrize("attributes", [{"rate": 1.0}, {"rate": -0.1}, {"rate": 0.5, "mode": "halve"}])
def test_impossible_attributes_are_refused(attributes: Any) -> None:
    """A rate that keeps nothing, a negative one and an unknown mode are refused."""
    with pytest.raises(OracleError, match="dropout"):
        forward("dropout", X, MASK, **attributes)
