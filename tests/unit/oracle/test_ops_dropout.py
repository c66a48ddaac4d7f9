"""Dropout: its modes, and the facts that tell right masks from wrong ones."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.ops.dropout import agreement_fact, mask_of, neighbour_fact, rate_fact
from tests.unit.oracle.kinks import forward

X = np.array([1.0, -2.0, 4.0])
MASK = np.array([True, False, True])
SIZE = 4096
ALARM = 1e-6


def _mask(seed: int, rate: float = 0.3, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).random(size) >= rate


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


def test_mask_is_read_from_the_output() -> None:
    """Zeros in the output are dropped elements, which an input with zeros would hide."""
    np.testing.assert_array_equal(mask_of(X, forward("dropout", X, MASK, rate=0.5)), MASK)
    with pytest.raises(OracleError, match="non-zero"):
        mask_of(np.array([0.0, 1.0]), np.array([0.0, 1.0]))


FACTS = {
    "rate": lambda seed, size: rate_fact(_mask(seed, size=size), 0.3),
    "agreement": lambda seed, size: agreement_fact(_mask(seed, size=size), _mask(seed + 10_000, size=size), 0.3),
    "neighbours": lambda seed, size: neighbour_fact(_mask(seed, size=size), 0.3, lag=3),
}


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS.keys())
def test_right_masks_rarely_look_wrong(fact: Callable[..., Any]) -> None:
    """Of 500 right masks no more have a p-value below 1 % than a binomial count allows once in a million."""
    from scipy import stats

    below = sum(fact(seed, 600).p_value < 0.01 for seed in range(500))

    assert below <= stats.binom.isf(ALARM, 500, 0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        rate_fact(_mask(1, rate=0.36), 0.3),
        rate_fact(np.ones(SIZE), 0.3),
        rate_fact(_mask(1), 0.7),
        agreement_fact(_mask(1), _mask(1), 0.3),
        agreement_fact(_mask(1), ~_mask(1), 0.3),
        neighbour_fact(np.repeat(_mask(1), 2), 0.3),
        neighbour_fact(np.tile(_mask(1, size=64), 64), 0.3, lag=64),
        rate_fact(_mask(1), 0.0),
    ],
    ids=["rate", "nothing dropped", "swapped", "same mask", "opposite mask", "pairs", "repeating", "dropped at rate 0"],
)
def test_wrong_masks_are_told(wrong: Any) -> None:
    """A fact about a wrong mask is less probable than one in a million."""
    assert wrong.p_value < ALARM


@given(size=st.integers(1, 50), lag=st.integers(1, 9))
def test_neighbours_are_pairs_without_a_shared_element(size: int, lag: int) -> None:
    """No more pairs are counted than there are elements to fill them, and all agree in a constant mask."""
    fact = neighbour_fact(np.ones(size), 0.5, lag=lag)

    assert 2 * fact.trials <= size
    assert fact.count == fact.trials


def test_masks_of_different_shapes_are_refused() -> None:
    """Masks are compared element by element."""
    with pytest.raises(OracleError, match="take equal shapes"):
        agreement_fact(np.ones(3), np.ones(4), 0.5)
