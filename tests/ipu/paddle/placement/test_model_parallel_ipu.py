"""Model parallelism: a net spread over IPUs without pipelining computes what one IPU computes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipu_conformance import check, nets

from ...training import Runs, cut
from ..training.config import counted

PLAIN = counted(1, 1, 1, steps=3)


@pytest.mark.ipus(4)
@pytest.mark.parametrize("stages", [2, 3])
def test_stages_are_ignored_without_pipelining(runs: Runs, stages: int) -> None:
    """Ops that carry a pipeline stage train with pipelining off as those that carry an index only."""
    driver, net = runs.driver, nets.mlp()
    sharded = cut("mlp", PLAIN, stages, "sharded")
    data = nets.distinct_micro_batches(net, sharded)
    with driver.build(net, replace(sharded, schedule="grouped")) as made:
        compiled, run = driver.compiled_for(made, driver.strategy(sharded))
        losses = [driver.array(run(made.feed(data, step))[1]) for step in range(sharded.steps)]
        compiled._backend.weights_to_host()
        weights = made.weights()
    expected = runs.train("mlp", sharded)

    for step, loss in enumerate(losses):
        check.identical(actual=loss, expected=expected.losses[step], what=f"the loss of step {step}")
    for name, value in (expected.weights or {}).items():
        check.identical(actual=weights[name], expected=value, what=name)
