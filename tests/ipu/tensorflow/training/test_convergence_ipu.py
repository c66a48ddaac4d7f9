"""A small net learns digits on the device as fast and as well as the recorded reference runs do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict

import pytest

from ipu_conformance.run import RunConfig, learning_rate, optimizer

from ...training import DIGITS, Runs, learned_as_recorded

UPDATE = DIGITS.config(
    optimizer=optimizer("sgd", momentum=DIGITS.momentum, rate_in_velocity=True),
    accumulation_reduction="mean",
    replica_reduction="sum",
    output_layout="tensorflow",
)
# Replicas are added up, which the rate makes a mean of.
SHARED = replace(UPDATE, micro_batch=DIGITS.batch // 4, replicas=4, learning_rate=learning_rate(base=DIGITS.rate / 4))
WAYS: Dict[str, RunConfig] = {"single": UPDATE, "replicated": SHARED}
"""However an update's samples are shared out, they are those of one batch of the workload."""


@pytest.mark.level("premerge")
@pytest.mark.parametrize("config", [pytest.param(config, id=word) for word, config in WAYS.items()])
def test_digits_are_learned_as_by_the_reference(runs: Runs, config: Any) -> None:
    """The accuracy after every epoch is neither lower nor higher than the spread of the reference runs allows."""
    learned_as_recorded(runs.driver, config)
