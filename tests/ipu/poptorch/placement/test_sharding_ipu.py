"""Sharded execution: the same results as one IPU and as a pipeline, without a pipeline's limits."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from ..lazily import poptorch
from .placed import assert_infers, chain, options, placed, placements, samples


@pytest.mark.ipus(4)
@pytest.mark.parametrize("ipus", [(0, 1), (0, 1, 2), (0, 1, 0), (2, 0), (0, 3)], ids=str)
def test_one_device_iteration_is_enough(ipus: Any) -> None:
    """Shards work one after the other, so that one micro-batch fills them."""
    chosen = options(placed(ipus, 1, 1, 1), training=False).setExecutionStrategy(poptorch.ShardedExecution())

    assert_infers(ipus, chosen, samples(5))


@pytest.mark.ipus(2)
def test_a_strategy_moves_blocks(capfd: Any) -> None:
    """The IPU of a shard wins over the IPU that its blocks name."""
    strategy = poptorch.ShardedExecution(poptorch.Stage("layer0").ipu(1), poptorch.Stage("layer1").ipu(0))
    options = poptorch.Options().setExecutionStrategy(strategy)

    places, _ = placements(capfd, poptorch.inferenceModel(chain((0, 1), loss=False), options), samples(2))

    actual = [place.split(", stage")[0] for place in places]
    expected = ["mode(Sharded), ipu(1)", "mode(Sharded), ipu(0)"]
    check.equal(actual=actual, expected=expected, what="the list of the places of the operations")


@pytest.mark.parametrize("strategy", ["PipelinedExecution", "ShardedExecution"])
@pytest.mark.parametrize("given", [(["a", "b"], "c"), (["a", "b", "c"],)], ids=["two", "one"])
def test_a_list_of_names_is_one_stage(strategy: str, given: Any) -> None:
    """Blocks that are named in one list are in one stage, also where there is no other."""
    made = getattr(poptorch, strategy)(*given)

    stages = [made.stage(name) for name in ("a", "b", "c")]
    check.holds(stages[0] is stages[1], "The blocks of one list are in two stages.")
    check.equal(actual=stages[2] is stages[0], expected=len(given) == 1, what="whether the third block is with them")


@pytest.mark.parametrize("kind", ["PipelinedExecution", "ShardedExecution"])
def test_a_stage_is_found_by_its_block(kind: str) -> None:
    """``stage`` gives the stage that holds a block, and refuses a block that no stage holds."""
    first, second = poptorch.Stage("a", "b"), poptorch.Stage("c")
    strategy = getattr(poptorch, kind)(first, second)

    for found, stage in ((strategy.stage("b"), first), (strategy.stage("c"), second), (second.ipu(3), second)):
        check.holds(found is stage, f"the stage of {found.blocks} is found where that of {stage.blocks} is asked for.")
    with check.raises((poptorch.Error, AssertionError), match="d", what="a block that no stage holds"):
        strategy.stage("d")


def test_a_stage_names_its_blocks() -> None:
    """A stage knows its blocks, which are named by strings or whole numbers."""
    check.equal(actual=list(poptorch.Stage("a", "b").blocks), expected=["a", "b"], what="the list of a stage's blocks")
    with check.raises(AssertionError, what="Stage('a', 2.0)"):
        poptorch.Stage("a", 2.0)
