"""Model parallelism: a net spread over IPUs without pipelining computes what one IPU computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Tuple

import pytest

from ipu_conformance import check, nets

from ...training import CUT, Runs, cut, ipus
from ..training.config import counted

PLAIN = counted(1, 1, 1, steps=3)


@pytest.mark.ipus(4)
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", CUT)
def test_shards_train_as_specified(runs: Runs, name: str, stages: int) -> None:
    """Neither accumulation nor several batches of a step are needed to use several IPUs by turns."""
    runs.compare(name, cut(name, PLAIN, stages, "sharded"))


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", [name for name in CUT if name != "tied_weights"])
def test_shards_change_no_bit(runs: Runs, name: str) -> None:
    """A net on three IPUs leaves the bits of the same net on one."""
    check.runs_identical(actual=runs.train(name, cut(name, PLAIN, 3, "sharded")), expected=runs.train(name, PLAIN))


@pytest.mark.ipus(4)
@pytest.mark.parametrize("devices", [(1, 0), (2, 0, 1), (3, 1, 2, 0)], ids=str)
def test_shards_may_be_on_any_ipu(runs: Runs, devices: Tuple[int, ...]) -> None:
    """Which IPU holds which part of the net changes no bit."""
    config = replace(cut("mlp", PLAIN, len(devices), "sharded"), devices=devices)

    check.runs_identical(actual=runs.train("mlp", config), expected=runs.train("mlp", PLAIN))


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


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(config, id=word, marks=ipus(config))
        for word, config in {
            "2-D3-G1-R4": cut("residual", counted(3, 1, 4), 2, "sharded"),
            "3-D2-G4-R1": cut("residual", counted(2, 4, 1), 3, "sharded"),
            "3-D1-G4-R2": cut("residual", counted(1, 4, 2), 3, "sharded"),
        }.items()
    ],
)
def test_shards_replicate_and_accumulate(runs: Runs, config: Any) -> None:
    """Sharded replicas with accumulation and batches per step train as specified."""
    runs.compare("residual", config)
