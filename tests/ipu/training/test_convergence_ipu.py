"""A small net learns digits on the device as fast and as well as the recorded reference runs do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ipu_conformance.oracle.convergence import baseline
from ipu_conformance.oracle.convergence.band import band, judge
from ipu_conformance.run import RunConfig, learning_rate
from ipu_conformance.workloads.oracle_digits import WORKLOADS

from .frame import Runs
from .table import Row, each

DIGITS = WORKLOADS["oracle-mlp"]
SEED = 100
"""A seed that none of the baseline's runs has: theirs are 0 to 19."""
UPDATE = DIGITS.config()
WAYS = {
    "single": Row("mlp", UPDATE),
    "accumulated": Row("mlp", replace(UPDATE, micro_batch=DIGITS.batch // 4, gradient_accumulation=4)),
    "replicated": Row("mlp", replace(UPDATE, micro_batch=DIGITS.batch // 4, replicas=4)),
}
"""However an update's samples are shared out, they are those of one batch of the workload."""


@each(WAYS)
def test_digits_are_learned_as_by_the_reference(runs: Runs, name: str, config: RunConfig, converges: Any) -> None:
    """The accuracy after every epoch is neither lower nor higher than the spread of the reference runs allows."""
    if config.replica_reduction == "sum":
        # Where replicas are added up the rate makes a mean of it.
        config = replace(config, learning_rate=learning_rate(base=DIGITS.rate / config.replicas))
    recorded = baseline.load(Path("oracle-mlp"))
    train = runs.driver.train
    curve = DIGITS.accuracies(lambda net, data, config: train(net, config, data), replace(config, seed=SEED))

    converges(judge(band(recorded.values), [curve], metric=recorded.metric))
