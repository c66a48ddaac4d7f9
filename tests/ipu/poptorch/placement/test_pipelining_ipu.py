"""Pipelined execution: the same results as one IPU, the limits on counts, and how blocks become stages."""

from __future__ import annotations

from typing import Any, List, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..on_device import as_model, infer
from .placed import (
    SPELLINGS,
    assert_infers,
    assert_placed,
    assert_trains,
    batch,
    chain,
    options,
    placed,
    placements,
    samples,
    train,
)


@pytest.mark.ipus(8)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_blocks_pipelines(poptorch: Any, spelling: str) -> None:
    """Where a block was written, and how, makes no difference to what is learned."""
    assert_trains(poptorch, placed((0, 1, 1), 1, 4, 3), spelling=spelling)


TOO_FEW = (((0, 1), 2), ((0, 1, 2), 4), ((0, 1, 0), 4), ((0, 1, 2, 3), 6), ((1, 1), 2))
ENOUGH = (((0, 1), 3), ((0, 1, 0), 5), ((0, 1, 2, 3), 7), ((1, 1), 3), ((0, 0, 0), 1), ((0, 0, 1, 1), 3))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "accumulation"), TOO_FEW, ids=str)
def test_training_needs_an_accumulation_of_twice_the_stages_less_one(
    poptorch: Any, ipus: Tuple[int, ...], accumulation: int
) -> None:
    """F forward stages, counted by the changes of IPU from IPU 0, need a gradient accumulation of 2F-1."""
    config = placed(ipus, 1, accumulation, 1)

    what = f"an accumulation of {accumulation} for layers on the IPUs {ipus}"
    with check.raises(poptorch.Error, match="gradientAccumulation", what=what):
        train(poptorch, chain(poptorch, ipus), options(poptorch, config), batch(config), calls=1)


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "accumulation"), ENOUGH, ids=str)
def test_an_accumulation_of_twice_the_stages_less_one_trains(
    poptorch: Any, ipus: Tuple[int, ...], accumulation: int
) -> None:
    """The smallest accumulation that fills the pipeline trains as a plain loop does."""
    assert_trains(poptorch, placed(ipus, 1, accumulation, 1))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "iterations"), [((0, 1), 1), ((0, 1, 2), 2), ((0, 1, 0), 2), ((1, 1), 1)], ids=str)
def test_inference_needs_as_many_device_iterations_as_stages(
    poptorch: Any, ipus: Tuple[int, ...], iterations: int
) -> None:
    """F stages need F device iterations."""
    options = poptorch.Options().deviceIterations(iterations).autoRoundNumIPUs(True)
    inference = poptorch.inferenceModel(chain(poptorch, ipus, loss=False), options)

    with check.raises(poptorch.Error, match="deviceIterations", what=f"{iterations} iterations for the IPUs {ipus}"):
        inference(samples(iterations))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "iterations"), [((0, 1), 2), ((0, 1, 0), 3), ((1, 1), 2), ((0, 0), 1)], ids=str)
def test_as_many_device_iterations_as_stages_infer(poptorch: Any, ipus: Tuple[int, ...], iterations: int) -> None:
    """The smallest number of device iterations that fills the pipeline is enough."""
    options = poptorch.Options().deviceIterations(iterations)

    assert_infers(poptorch, ipus, options, samples(iterations))


def test_inference_does_not_accumulate(poptorch: Any) -> None:
    """A gradient accumulation other than 1 is refused when an inference model is made."""
    options = poptorch.Options()
    options.Training.gradientAccumulation(3)

    with check.raises(poptorch.Error, match="gradientAccumulation", what="inference with an accumulation of 3"):
        poptorch.inferenceModel(chain(poptorch, (0,), loss=False), options)


def _pipelined(poptorch: Any, strategy: Any, iterations: int) -> Any:
    """Options of a pipeline under a strategy."""
    options = poptorch.Options().deviceIterations(iterations).autoRoundNumIPUs(True)
    return options.setExecutionStrategy(strategy)


def _placements(capfd: Any, poptorch: Any, model: Any, options: Any, x: Any) -> Tuple[List[str], Any]:
    """Where the operations of an inference model are placed, and its output."""
    inference = poptorch.inferenceModel(model, options)
    outputs: List[Any] = []
    places = placements(capfd, poptorch, lambda: outputs.append(inference(x)))
    return places, outputs[0]


def _in_order(stages: int) -> List[str]:
    """The places of a pipeline whose stage i is on IPU i."""
    return [f"mode(Pipelined), ipu({number}), stage({number})" for number in range(stages)]


def _stages(poptorch: Any) -> List[Any]:
    return [poptorch.Stage("layer0", "layer1").ipu(1), poptorch.Stage("layer2").ipu(0)]


def _by_stages(poptorch: Any) -> Any:
    return poptorch.PipelinedExecution(*_stages(poptorch))


def _by_names(poptorch: Any) -> Any:
    strategy = poptorch.PipelinedExecution("layer0", "layer1", "layer2")
    for number, ipu in enumerate((1, 1, 0)):
        strategy.stage(f"layer{number}").ipu(ipu)
    return strategy


@pytest.mark.ipus(2)
@pytest.mark.parametrize("strategy", [_by_stages, _by_names])
def test_a_strategy_moves_blocks(poptorch: Any, capfd: Any, strategy: Any) -> None:
    """The IPU that a strategy gives to a stage wins over the IPU that its blocks name."""
    model, x = chain(poptorch, (0, 1, 1), loss=False), samples(4)
    places, output = _placements(capfd, poptorch, model, _pipelined(poptorch, strategy(poptorch), 4), x)

    assert_placed(places, ["mode(Pipelined), ipu(1), stage(1)", "mode(Pipelined), ipu(0), stage(2)"])
    assert_same(output, model(x), "the output")


@pytest.mark.ipus(4)
def test_stages_without_an_ipu_take_their_number(poptorch: Any, capfd: Any) -> None:
    """Stage i of a strategy runs on IPU i when neither it nor its blocks name one."""

    def forward(model: Any, x: Any) -> Any:
        for name in ("a", "b", "c"):
            with poptorch.Block(name):
                x = x * 2
        return x

    options = _pipelined(poptorch, poptorch.PipelinedExecution("a", "b", "c"), 3)

    assert_placed(_placements(capfd, poptorch, as_model(forward), options, samples(3))[0], _in_order(3))


@pytest.mark.ipus(4)
def test_auto_increment_numbers_blocks_from_one(poptorch: Any, capfd: Any) -> None:
    """What comes before the first block is stage 0; each block without an IPU is the next stage."""

    def forward(model: Any, x: Any) -> Any:
        x = x + 1
        poptorch.Block.start("a")
        x = x * 2
        poptorch.Block.start("b")
        return x - 3

    options = _pipelined(poptorch, poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement), 3)
    places, output = _placements(capfd, poptorch, as_model(forward), options, samples(3))

    assert_placed(places, _in_order(3))
    assert_same(output, (samples(3) + 1) * 2 - 3, "the output")


@pytest.mark.ipus(2)
def test_an_unknown_block_is_refused(poptorch: Any) -> None:
    """A block that the strategy does not name is an error that names it."""
    options = _pipelined(poptorch, poptorch.PipelinedExecution("layer0", "other"), 3)
    inference = poptorch.inferenceModel(chain(poptorch, (0, 1), loss=False), options)

    with check.raises(poptorch.Error, match="layer1", what="a block that no stage names"):
        inference(samples(3))


@pytest.mark.ipus(2)
def test_a_block_without_an_id_needs_auto_ids(poptorch: Any) -> None:
    """Under stages that name their blocks, a block without an id has no place."""

    def forward(model: Any, x: Any) -> Any:
        poptorch.Block.start(ipu_id=0)
        return x * 2

    with check.raises(poptorch.Error, match="useAutoId", what="a block without an id"):
        infer(poptorch, forward, samples(1), options=_pipelined(poptorch, poptorch.PipelinedExecution("0"), 1))


@pytest.mark.ipus(2)
def test_auto_ids_count_blocks_without_an_id(poptorch: Any, capfd: Any) -> None:
    """Automatic ids are "0", "1" and so on, skip blocks that have an id, and start again with every forward."""

    def forward(model: Any, x: Any) -> Any:
        poptorch.Block.useAutoId()
        poptorch.Block.start()
        x = x * 2
        poptorch.Block.start("named")
        x = x + 1
        poptorch.Block.start()
        return x - 3

    strategy = poptorch.PipelinedExecution(poptorch.Stage("0").ipu(0), poptorch.Stage("named", "1").ipu(1))
    options = _pipelined(poptorch, strategy, 2)
    for _ in range(2):
        places, output = _placements(capfd, poptorch, as_model(forward), options.clone(), samples(2))

        assert_placed(places, _in_order(2))
        assert_same(output, samples(2) * 2 - 2, "the output")


@pytest.mark.ipus(2)
def test_every_value_that_crosses_has_its_gradient(poptorch: Any, torch: Any) -> None:
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
