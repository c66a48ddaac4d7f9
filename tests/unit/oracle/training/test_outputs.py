"""Outputs come back in the order and the shape that each framework specifies."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance.oracle.training.outputs import returned
from ipu_conformance.run import RunConfig

D, G, R, B = 2, 3, 5, 4
# The marker of a micro-batch spells its place: 10 000 D + 100 G + R, and a sample adds nothing but its own axis.
MARKERS = np.array([[[10_000 * d + 100 * g + r for r in range(R)] for g in range(G)] for d in range(D)], dtype=float)
PLACES = [(d, g, r) for d in range(D) for g in range(G) for r in range(R)]


def config(**changes: Any) -> RunConfig:
    return RunConfig(device_iterations=D, gradient_accumulation=G, replicas=R, micro_batch=B, **changes)


def marked(places: List[Tuple[int, int, int]]) -> List[float]:
    return [10_000 * d + 100 * g + r for d, g, r in places]


CASES: Dict[str, Tuple[Dict[str, Any], Tuple[int, ...], List[float]]] = {
    "poptorch-all": ({}, (30,), marked(PLACES)),
    "poptorch-every_n": (
        {"output_mode": "every_n", "output_period": 2},
        (15,),
        marked([(d, g, r) for d, g in [(0, 1), (1, 0), (1, 2)] for r in range(R)]),
    ),
    "poptorch-final": ({"output_mode": "final"}, (5,), marked([(1, 2, r) for r in range(R)])),
    "poptorch-sum": ({"output_mode": "sum"}, (5,), [3 * 10_000 + 2 * 300 + 6 * r for r in range(R)]),
    "paddle-all": ({"output_layout": "paddle"}, (5, 3, 2), marked(PLACES)),
    "tensorflow-all": ({"output_layout": "tensorflow"}, (6, 5), marked(PLACES)),
    "tensorflow-final": (
        {"output_layout": "tensorflow", "output_mode": "final"},
        (5,),
        marked([(1, 2, r) for r in range(R)]),
    ),
    "tensorflow-sum": (
        {"output_layout": "tensorflow", "output_mode": "sum"},
        (2, 5),
        [3 * 10_000 * d + 300 + 3 * r for d in range(D) for r in range(R)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_scalars_come_back_at_their_place(case: str) -> None:
    """Each micro-batch's scalar is where the framework puts it."""
    changes, shape, expected = CASES[case]
    result = returned(MARKERS, config(**changes))

    scalar_shape = (*shape, 1) if case == "paddle-all" else shape
    assert result.shape == scalar_shape
    assert result.ravel().tolist() == expected


@pytest.mark.parametrize("case", CASES)
def test_tensors_come_back_at_their_place(case: str) -> None:
    """PopTorch joins micro-batches along axis 0; the others put axes before that of the samples."""
    changes, shape, expected = CASES[case]
    samples = MARKERS[..., None, None] + np.zeros((B, 2))
    result = returned(samples, config(**changes))

    assert result.shape == ((shape[0] * B, 2) if case.startswith("poptorch") else (*shape, B, 2))
    assert result.reshape(-1, B, 2)[:, 0, 0].tolist() == expected


@pytest.mark.parametrize(("layout", "shape"), [("poptorch", ()), ("paddle", (1,)), ("tensorflow", (1,))])
def test_a_single_scalar(layout: str, shape: Tuple[int, ...]) -> None:
    """One scalar stays one in PopTorch; Paddle makes it a vector and TensorFlow counts enqueues."""
    result = returned(np.full((1, 1, 1), 7.0), RunConfig(output_layout=layout))

    assert result.shape == shape
    assert result.item() == 7.0
