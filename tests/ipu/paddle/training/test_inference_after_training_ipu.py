"""What was learned on the device is what an inference program computes with, on one IPU or on several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.oracle.tolerance.runs import for_inference

from ...training import Runs, configured, cut, inference
from .config import counted

WAYS = {
    "single": counted(2, 3, 1, steps=2),
    "replicated": counted(2, 1, 3, steps=2),
    "pipelined": cut("mlp", counted(2, 5, 1, steps=2), 3),
    "sharded": cut("mlp", counted(2, 3, 1, steps=2), 4, "sharded"),
}


@pytest.mark.parametrize("config", configured(WAYS))
@pytest.mark.parametrize("name", ["mlp", "bn_convnet"])
def test_what_was_learned_is_used(runs: Runs, name: str, config: Any) -> None:
    """An inference program that is given the trained weights and statistics computes with all their bits."""
    net, driver = nets.NETS[name](), runs.driver
    if config.stages:
        config = replace(config, stages=net.cut(config.number_of_stages))
    asked = replace(inference(config), steps=1)
    data, questions = distinct_micro_batches(net, config), distinct_micro_batches(net, asked, seed=7)
    with driver.build(net, config) as made:
        compiled, run = driver.compiled_for(made, driver.strategy(config))
        for step in range(config.steps):
            run(made.feed(data, step))
        compiled._backend.weights_to_host()
        weights, statistics = made.weights(), made.statistics()
        learned = made.main.state_dict(mode="param", scope=made.scope)
    with driver.build(net, asked) as asking:
        asking.main.set_state_dict(learned, asking.scope)
        _, run = driver.compiled_for(asking, driver.strategy(asked))
        output = driver.array(run(asking.feed(questions, 0))[0])

    expected, allowed = for_inference(net, questions, asked, weights=weights, statistics=statistics)
    check.close(actual=output, expected=expected[0], tolerance=allowed[0], what="the output after training")
