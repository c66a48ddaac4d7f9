"""A chain of products whose arithmetic rounds nothing, and what the oracle makes of it.

The loss of a sample x is x * w0 * w1 ...; see ``oracle.exact``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

import numpy as np

from ipu_conformance import check
from ipu_conformance.oracle import exact
from ipu_conformance.oracle.exact import SCALARS as START
from ipu_conformance.oracle.exact import scalars as samples
from ipu_conformance.run import RunConfig, learning_rate, optimizer

__all__ = ["RATE", "START", "Trained", "check_trained", "check_weight", "counts", "samples", "trained"]

RATE = 2.0**-7
"""The learning rate."""
PLAIN = RunConfig(
    micro_batch=1,
    learning_rate=learning_rate(base=RATE),
    accumulation_reduction="sum",
    output_layout="tensorflow",
)


class Trained(NamedTuple):
    """What training leaves: the weights of replica 0, and the losses by micro-batch and replica."""

    weights: np.ndarray
    losses: np.ndarray


def counts(updates: int, accumulation: int = 1, replicas: int = 1, momentum: float = 0.0, **changes: Any) -> RunConfig:
    """A run of ``updates``, each with the sum over ``accumulation`` micro-batches of every replica."""
    rule = optimizer("sgd", momentum=momentum)
    return PLAIN.with_counts(updates, accumulation, replicas, **{"optimizer": rule, **changes})


def trained(
    number_of_weights: int, config: RunConfig, start: Tuple[float, ...] = START, fed: Optional[np.ndarray] = None
) -> Trained:
    """What a chain learns from the first samples, or what it is fed; element i * R + r is replica r's."""
    inputs = samples(config.micro_batches) if fed is None else fed
    record = exact.train(exact.scalar_products(number_of_weights, start), inputs, config)
    weights = [(record.weights or {})[f"w{place}"] for place in range(number_of_weights)]
    return Trained(exact.float32(weights), exact.float32(record.losses[0]))


def check_trained(actual: Trained, number_of_weights: int, config: RunConfig) -> None:
    """Weights and losses are what the oracle's training leaves, bit by bit."""
    __tracebackhide__ = True
    expected = trained(number_of_weights, config)
    check.identical(actual=actual.weights, expected=expected.weights, what="the weights")
    check.identical(actual=actual.losses, expected=expected.losses, what="the losses")


def check_weight(actual: Any, config: RunConfig, start: float = START[0]) -> None:
    """The weight of a chain of one is what the oracle's training leaves, bit by bit."""
    __tracebackhide__ = True
    check.identical(actual=actual, expected=trained(1, config, (start,)).weights[0], what="the weight")
