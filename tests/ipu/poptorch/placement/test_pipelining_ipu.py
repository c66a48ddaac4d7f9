"""Pipelined execution: the same results as one IPU, the limits on counts, and how blocks become stages."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model
from .placed import (
    SPELLINGS,
    assert_infers,
    assert_trains,
    chain,
    options,
    placed,
    placements,
    samples,
    train,
)


@pytest.mark.ipus(8)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_blocks_pipelines(spelling: str) -> None:
    """Where a block was written, and how, makes no difference to what is learned."""
    assert_trains(placed((0, 1, 1), 1, 4, 3), spelling=spelling)


TOO_FEW = (((0, 1), 2), ((0, 1, 2), 4), ((0, 1, 0), 4), ((0, 1, 2, 3), 6), ((1, 1), 2))
ENOUGH = (((0, 1), 3), ((0, 1, 0), 5), ((0, 1, 2, 3), 7), ((1, 1), 3), ((0, 0, 0), 1), ((0, 0, 1, 1), 3))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "accumulation"), TOO_FEW, ids=str)
def test_training_needs_an_accumulation_of_twice_the_stages_less_one(ipus: Tuple[int, ...], accumulation: int) -> None:
    """F forward stages, counted by the changes of IPU from IPU 0, need a gradient accumulation of 2F-1."""
    config = placed(ipus, 1, accumulation, 1)

    what = f"an accumulation of {accumulation} for layers on the IPUs {ipus}"
    with check.raises(poptorch.Error, match="gradientAccumulation", what=what):
        train(chain(ipus), options(config), samples(config.micro_batches))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "accumulation"), ENOUGH, ids=str)
def test_an_accumulation_of_twice_the_stages_less_one_trains(ipus: Tuple[int, ...], accumulation: int) -> None:
    """The smallest accumulation that fills the pipeline trains as a plain loop does."""
    assert_trains(placed(ipus, 1, accumulation, 1))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "iterations"), [((0, 1), 1), ((0, 1, 2), 2), ((0, 1, 0), 2), ((1, 1), 1)], ids=str)
def test_inference_needs_as_many_device_iterations_as_stages(ipus: Tuple[int, ...], iterations: int) -> None:
    """F stages need F device iterations."""
    options = poptorch.Options().deviceIterations(iterations).autoRoundNumIPUs(True)
    inference = poptorch.inferenceModel(chain(ipus, loss=False), options)

    with check.raises(poptorch.Error, match="deviceIterations", what=f"{iterations} iterations for the IPUs {ipus}"):
        inference(samples(iterations))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "iterations"), [((0, 1), 2), ((0, 1, 0), 3), ((1, 1), 2), ((0, 0), 1)], ids=str)
def test_as_many_device_iterations_as_stages_infer(ipus: Tuple[int, ...], iterations: int) -> None:
    """The smallest number of device iterations that fills the pipeline is enough."""
    options = poptorch.Options().deviceIterations(iterations)

    assert_infers(ipus, options, samples(iterations))


def test_inference_does_not_accumulate() -> None:
    """A gradient accumulation other than 1 is refused when an inference model is made."""
    options = poptorch.Options()
    options.Training.gradientAccumulation(3)

    with check.raises(poptorch.Error, match="gradientAccumulation", what="inference with an accumulation of 3"):
        poptorch.inferenceModel(chain((0,), loss=False), options)


def _by_names() -> Any:
    strategy = poptorch.PipelinedExecution("layer0", "layer1", "layer2")
    for number, ipu in enumerate((1, 1, 0)):
        strategy.stage(f"layer{number}").ipu(ipu)
    return strategy


def _named(model: Any, x: Any) -> Any:
    for name in ("a", "b", "c"):
        with poptorch.Block(name):
            x = x * 2
    return x


def _begun_late(model: Any, x: Any) -> Any:
    x = x + 1
    poptorch.Block.start("a")
    x = x * 2
    poptorch.Block.start("b")
    return x - 3


def _numbered(model: Any, x: Any) -> Any:
    poptorch.Block.useAutoId()
    poptorch.Block.start()
    x = x * 2
    poptorch.Block.start("named")
    x = x + 1
    poptorch.Block.start()
    return x - 3


STRATEGIES: Dict[str, Tuple[Callable[[], Any], Callable[[], Any], List[Tuple[int, int]]]] = {
    # The IPU that a strategy gives to a stage wins over the IPU that its blocks name.
    "by-stages": (
        lambda: poptorch.PipelinedExecution(poptorch.Stage("layer0", "layer1").ipu(1), poptorch.Stage("layer2").ipu(0)),
        lambda: chain((0, 1, 1), loss=False), [(1, 1), (0, 2)]),
    "by-names": (_by_names, lambda: chain((0, 1, 1), loss=False), [(1, 1), (0, 2)]),
    # Stage i runs on IPU i when neither it nor its blocks name one.
    "without-ipus": (
        lambda: poptorch.PipelinedExecution("a", "b", "c"), lambda: as_model(_named), [(0, 0), (1, 1), (2, 2)]),
    # What comes before the first block is stage 0; each block without an IPU is the next stage.
    "auto-increment": (
        lambda: poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
        lambda: as_model(_begun_late), [(0, 0), (1, 1), (2, 2)]),
    # By the other rule a stage has the number of its IPU: blocks that name none are on the first.
    "same-as-ipu": (
        lambda: poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu),
        lambda: as_model(_begun_late), [(0, 0)]),
    # Automatic ids are "0", "1" and so on, skip blocks that have an id, and start again with every forward.
    "auto-ids": (
        lambda: poptorch.PipelinedExecution(poptorch.Stage("0").ipu(0), poptorch.Stage("named", "1").ipu(1)),
        lambda: as_model(_numbered), [(0, 0), (1, 1)]),
}  # fmt: skip
"""Strategies, models, and the IPU and stage of their operations, in order."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            # No document says where a block is that names no IPU.
            marks=[pytest.mark.ipus(4 if (2, 2) in row[2] else 2), *[pytest.mark.emulator] * (name == "same-as-ipu")],
        )
        for name, row in STRATEGIES.items()
    ],
)
def test_a_strategy_moves_blocks(capfd: Any, name: str) -> None:
    """Operations are on the IPU and in the stage that the strategy has for their block, and give what the host does."""
    strategy, make, places = STRATEGIES[name]
    options = poptorch.Options().deviceIterations(4).autoRoundNumIPUs(True).setExecutionStrategy(strategy())
    model, x = make(), samples(4)
    for _ in range(2):
        actual, output = placements(capfd, poptorch.inferenceModel(model, options.clone()), x)

        expected = [f"mode(Pipelined), ipu({ipu}), stage({stage})" for ipu, stage in places]
        check.equal(actual=actual, expected=expected, what="the list of the places of the operations")
        assert_same(output, model(x), "the output")


@pytest.mark.ipus(2)
def test_every_value_that_crosses_has_its_gradient() -> None:
    """Of four values that one stage hands to the next, each brings its own gradient back."""
    factors, rate, accumulation = (2.0, 3.0, 5.0, 7.0), 0.125, 4

    def forward(model: Any, x: Any) -> Any:
        with poptorch.Block("first", ipu_id=0):
            values = [x * weight for weight in model.weights]
        with poptorch.Block("second", ipu_id=1):
            total = sum(value * factor for value, factor in zip(values, factors))
            return poptorch.identity_loss(total, reduction="sum")

    model = as_model(forward, weights=torch.nn.ParameterList(torch.nn.Parameter(torch.ones(1)) for _ in factors))
    chosen = poptorch.Options()
    chosen.Training.gradientAccumulation(accumulation)
    trainer = poptorch.trainingModel(model, chosen, torch.optim.SGD(model.parameters(), lr=rate))
    x = torch.tensor([1.0, 2.0, 4.0, 9.0])
    trainer(x)

    for weight, factor in zip(model.weights, factors):
        assert_same(weight, 1.0 - rate * factor * x.mean(dim=0, keepdim=True), f"the weight of the factor {factor:g}")
