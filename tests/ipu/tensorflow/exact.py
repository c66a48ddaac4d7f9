"""A chain of products whose arithmetic has no rounding, and what a plain loop over the micro-batches makes of it.

The loss of a sample x is x·w0·w1·…; weights, samples and rates are small multiples of powers of two, so that any order
of computing gives the same bits. ``trained`` proves it each time: it computes in float64 and in float32 and asks for
the same values.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Tuple

import numpy as np

RATE = 2.0**-7
"""The learning rate."""
START = (1.0, -2.0, 0.5, 1.5)
"""The initial weights of the chain."""


def samples(number: int) -> np.ndarray:
    """Different samples in an order that is none."""
    return np.float32([((5 * index + 3) % 17 + 1) / 4 for index in range(number)])


class Trained(NamedTuple):
    """What training leaves: the weights of replica 0, and the losses by micro-batch and replica."""

    weights: np.ndarray
    losses: np.ndarray


def trained(
    links: int,
    updates: int,
    count: int = 1,
    replicas: int = 1,
    method: str = "sum",
    across: str = "mean",
    momentum: float = 0.0,
    start: Tuple[float, ...] = START,
) -> Trained:
    """So many updates, each after ``count`` micro-batches of every replica; element i·R + r goes to replica r."""
    double = _trained(np.float64, links, updates, count, replicas, method, across, momentum, start)
    single = _trained(np.float32, links, updates, count, replicas, method, across, momentum, start)
    for exact, rounded in zip(double, single):
        np.testing.assert_array_equal(exact, rounded)
    return single


def _trained(
    dtype: Any,
    links: int,
    updates: int,
    count: int,
    replicas: int,
    method: str,
    across: str,
    momentum: float,
    start: Tuple[float, ...],
) -> Trained:
    weights = np.array([start[:links]] * replicas, dtype)
    velocity = np.zeros_like(weights)
    data = samples(updates * count * replicas).astype(dtype).reshape(updates, count, replicas)
    losses: List[Any] = []
    for update in data:
        total = np.zeros_like(weights)
        for row in update:
            losses.append([x * np.prod(own) for x, own in zip(row, weights)])
            total += np.array(
                [[x * np.prod(np.delete(own, link)) for link in range(links)] for x, own in zip(row, weights)]
            )
        if method != "sum":
            total /= dtype(count)
        if across == "mean":
            total = np.broadcast_to(total.mean(axis=0, dtype=dtype), total.shape)
        velocity = velocity * dtype(momentum) + total
        weights = weights - dtype(RATE) * velocity
    leading = np.array(losses, dtype)
    return Trained(weights[0], leading if replicas > 1 else leading[:, 0])
