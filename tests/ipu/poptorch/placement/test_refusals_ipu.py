"""What blocks, stages and phases cannot be: refused at once, or on compiling where a model does not fit a strategy."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from ..lazily import poptorch, torch
from ..on_device import infer
from .placed import chain, samples

STAGED, PHASED = ("PipelinedExecution", "ShardedExecution"), ("SerialPhasedExecution", "ParallelPhasedExecution")
BEGIN = ("Block({})", "Block.start({})", "BlockFunction({})", "BeginBlock(torch.nn.ReLU(), {})")
WRONG = ("user_id=-5", "user_id=b'a'", "ipu_id='0'", "ipu_id=-1", "ipu_id=0.5", "ipu_id=True")
ASSERTED = [
    *(f"poptorch.{begin.format(wrong)}" for begin in BEGIN for wrong in WRONG),
    "poptorch.Stage('a', 2.0)",
    *(f"poptorch.Stage('a').ipu({wrong!r})" for wrong in (-1, "0", None, 0.5)),
    *(f"poptorch.{kind}('a', {wrong})" for kind in STAGED for wrong in (3, 1.5, None)),
    *(f"poptorch.{kind}(poptorch.Stage('a', 'twice'), poptorch.Stage('twice'))" for kind in STAGED),
    *(f"poptorch.{kind}(poptorch.Phase('twice'), poptorch.Phase('b', 'twice'))" for kind in PHASED),
    *(
        f"poptorch.{kind}(poptorch.Phase(poptorch.Stage('a'), poptorch.Stage('b'))).phase(0).ipus({wrong})"
        for kind in PHASED
        for wrong in ("0", "0, 1, 2")
    ),
    "poptorch.SerialPhasedExecution('a').setTensorsLiveness('AlwaysLive')",
]
"""Ids, IPUs, stages and phases that raise an AssertionError."""
UNFIT = [
    *(f"poptorch.BeginBlock({wrong!r}, ipu_id=0)" for wrong in (None, 3, "layer")),
    "poptorch.BeginBlock(poptorch.BeginBlock(torch.nn.Linear(2, 3), 'first', ipu_id=0), 'second', ipu_id=1)",
]
"""What cannot be called and a layer that has a block already raise PopTorch's Error."""


@pytest.mark.parametrize("text", [*ASSERTED, *UNFIT])
def test_what_is_no_place_is_refused(text: str) -> None:
    """Blocks are named by strings and whole numbers, IPUs are counted from 0, and a block is in one stage."""
    with check.raises(poptorch.Error if text in UNFIT else AssertionError, what=text):
        eval(text, {"poptorch": poptorch, "torch": torch})


def after_with(model: Any, x: Any) -> Any:
    with poptorch.Block(ipu_id=0):
        x = x * 2
    return x + 1


def after_function(model: Any, x: Any) -> Any:
    return poptorch.BlockFunction("inside", ipu_id=0)(lambda x: x * 2)(x) + 1


def between(model: Any, x: Any) -> Any:
    with poptorch.Block("a"):
        x = x * 2
    x = x + 1
    with poptorch.Block("b"):
        return x - 3


def on_two_ipus(model: Any, x: Any) -> Any:
    poptorch.Block.start("same", ipu_id=0)
    x = x * 2
    poptorch.Block.start("same", ipu_id=1)
    return x + 1


def without_id(model: Any, x: Any) -> Any:
    poptorch.Block.start(ipu_id=0)
    return x * 2


def chained(model: Any, x: Any) -> Any:
    return chain((0,) * 4, "with", loss=False)(x)


UNPLACED: Dict[str, Tuple[Callable[[Any, Any], Any], str, str]] = {
    "after_with": (after_with, "poptorch.ShardedExecution()", "No active Block"),
    "after_function": (after_function, "poptorch.ShardedExecution()", "No active Block"),
    "between": (between, "poptorch.ShardedExecution()", "No active Block"),
    "on_two_ipus": (on_two_ipus, "poptorch.ShardedExecution()", ""),
    "without_id": (without_id, "poptorch.PipelinedExecution('0')", "useAutoId"),
    "unknown-to-stages": (chained, "poptorch.PipelinedExecution('layer0', 'other')", "layer1"),
    "unknown-to-serial": (chained, "poptorch.SerialPhasedExecution('layer0', 'layer1', 'layer2')", "layer3"),
    "unknown-to-parallel": (chained, "poptorch.ParallelPhasedExecution('layer0', 'layer1', 'layer2')", "layer3"),
    "back-to-a-phase": (
        chained, "poptorch.SerialPhasedExecution(['layer0', 'layer2'], ['layer1', 'layer3'])", "phase"),
}  # fmt: skip
"""What is computed, the strategy, and what the error says."""


CLOSED = ("after_with", "after_function", "between")


@pytest.mark.parametrize(
    "name", [*CLOSED, *(pytest.param(name, marks=pytest.mark.ipus(2)) for name in UNPLACED if name not in CLOSED)]
)
def test_operations_outside_a_closed_block_are_refused(name: str) -> None:
    """Every operation is in a block that its strategy knows, a block is on one IPU, and phases run in order."""
    forward, strategy, match = UNPLACED[name]
    options = poptorch.Options().deviceIterations(3).autoRoundNumIPUs(True)
    options.setExecutionStrategy(eval(strategy, {"poptorch": poptorch}))

    with check.raises(poptorch.Error, match=match, what=f"operations {name}"):
        infer(poptorch, forward, samples(3), options=options)
