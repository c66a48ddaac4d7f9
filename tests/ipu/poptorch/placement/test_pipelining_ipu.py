"""Pipelined execution: the same results as one IPU, the limits on counts, and how blocks become stages."""

from __future__ import annotations

from typing import Any, Tuple

import pytest

from ipu_conformance.run import RunConfig

from .placed import (
    SPELLINGS,
    assert_same_run,
    batch,
    cases,
    chain,
    options,
    placed,
    placements,
    samples,
    train,
    trained,
)

TRAINING = (
    placed((0, 1), 1, 5, 3),
    placed((0, 1), 4, 3, 1),
    placed((0, 1, 2), 1, 5, 2),
    placed((0, 1, 0), 2, 5, 1),
    placed((0, 0, 1, 1), 1, 4, 3),
    placed((0, 1, 2, 3), 1, 7, 2),
    placed((0, 1, 1, 0), 2, 6, 1),
)
INFERENCE = (
    placed((0, 1), 3, 1, 5),
    placed((0, 1, 2), 5, 1, 2),
    placed((0, 1, 0), 4, 1, 2),
    placed((0, 1, 2, 3), 5, 1, 3),
    placed((1, 0), 4, 1, 2),
)


@pytest.mark.parametrize("config", cases(TRAINING))
def test_a_pipeline_trains_as_a_plain_loop_does(poptorch: Any, config: RunConfig) -> None:
    """Weights and outputs of a pipelined model are those of a loop over the micro-batches."""
    model, x = chain(poptorch, config.devices), batch(config)
    expected = trained(x, config, calls=2)

    actual = train(poptorch, model, options(poptorch, config), x, calls=2)

    assert_same_run(actual, expected)


@pytest.mark.parametrize("config", cases(INFERENCE))
def test_a_pipeline_infers_as_the_model_does(poptorch: Any, torch: Any, config: RunConfig) -> None:
    """Outputs of a pipelined model come back in the order of its inputs."""
    model, x = chain(poptorch, config.devices, loss=False), batch(config, micro=3)
    expected = model(x).detach()

    inference = poptorch.inferenceModel(model, options(poptorch, config, training=False))

    assert torch.equal(inference(x), expected)


@pytest.mark.ipus(8)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_blocks_pipelines(poptorch: Any, spelling: str) -> None:
    """Where a block was written, and how, makes no difference to what is learned."""
    config = placed((0, 1, 1), 1, 4, 3)
    model, x = chain(poptorch, config.devices, spelling), batch(config)
    expected = trained(x, config, calls=1)

    actual = train(poptorch, model, options(poptorch, config), x, calls=1)

    assert_same_run(actual, expected)


TOO_FEW = (
    ((0, 1), 2),
    ((0, 1, 2), 4),
    ((0, 1, 0), 4),
    ((0, 1, 2, 3), 6),
    ((1, 1), 2),
)
ENOUGH = (((0, 1), 3), ((0, 1, 0), 5), ((0, 1, 2, 3), 7), ((1, 1), 3), ((0, 0, 0), 1), ((0, 0, 1, 1), 3))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "accumulation"), TOO_FEW, ids=str)
def test_training_needs_an_accumulation_of_twice_the_stages_less_one(
    poptorch: Any, ipus: Tuple[int, ...], accumulation: int
) -> None:
    """F forward stages, counted by the changes of IPU from IPU 0, need a gradient accumulation of 2F-1."""
    config = placed(ipus, 1, accumulation, 1)

    with pytest.raises(poptorch.Error, match="gradientAccumulation"):
        train(poptorch, chain(poptorch, ipus), options(poptorch, config), batch(config), calls=1)


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "accumulation"), ENOUGH, ids=str)
def test_an_accumulation_of_twice_the_stages_less_one_trains(
    poptorch: Any, ipus: Tuple[int, ...], accumulation: int
) -> None:
    """The smallest accumulation that fills the pipeline trains as a plain loop does."""
    config = placed(ipus, 1, accumulation, 1)
    model, x = chain(poptorch, ipus), batch(config)
    expected = trained(x, config, calls=1)

    assert_same_run(train(poptorch, model, options(poptorch, config), x, calls=1), expected)


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "iterations"), [((0, 1), 1), ((0, 1, 2), 2), ((0, 1, 0), 2), ((1, 1), 1)], ids=str)
def test_inference_needs_as_many_device_iterations_as_stages(
    poptorch: Any, ipus: Tuple[int, ...], iterations: int
) -> None:
    """F stages need F device iterations."""
    made = poptorch.Options().deviceIterations(iterations).autoRoundNumIPUs(True)
    inference = poptorch.inferenceModel(chain(poptorch, ipus, loss=False), made)

    with pytest.raises(poptorch.Error, match="deviceIterations"):
        inference(samples(iterations))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "iterations"), [((0, 1), 2), ((0, 1, 0), 3), ((1, 1), 2), ((0, 0), 1)], ids=str)
def test_as_many_device_iterations_as_stages_infer(
    poptorch: Any, torch: Any, ipus: Tuple[int, ...], iterations: int
) -> None:
    """The smallest number of device iterations that fills the pipeline is enough."""
    model = chain(poptorch, ipus, loss=False)
    expected = model(samples(iterations)).detach()
    inference = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(iterations))

    assert torch.equal(inference(samples(iterations)), expected)


def test_inference_does_not_accumulate(poptorch: Any) -> None:
    """A gradient accumulation other than 1 is refused when an inference model is made."""
    made = poptorch.Options()
    made.Training.gradientAccumulation(3)

    with pytest.raises(poptorch.Error, match="gradientAccumulation"):
        poptorch.inferenceModel(chain(poptorch, (0,), loss=False), made)


def _by_stages(poptorch: Any) -> Any:
    return poptorch.PipelinedExecution(poptorch.Stage("layer0", "layer1").ipu(1), poptorch.Stage("layer2").ipu(0))


def _by_names(poptorch: Any) -> Any:
    strategy = poptorch.PipelinedExecution("layer0", "layer1", "layer2")
    strategy.stage("layer0").ipu(1)
    strategy.stage("layer1").ipu(1)
    strategy.stage("layer2").ipu(0)
    return strategy


def _by_list(poptorch: Any) -> Any:
    return poptorch.PipelinedExecution([poptorch.Stage("layer0", "layer1").ipu(1), poptorch.Stage("layer2").ipu(0)])


@pytest.mark.ipus(2)
@pytest.mark.parametrize("strategy", [_by_stages, _by_names, _by_list])
def test_a_strategy_moves_blocks(poptorch: Any, capfd: Any, strategy: Any) -> None:
    """The IPU that a strategy gives to a stage wins over the IPU that its blocks name."""
    model = chain(poptorch, (0, 1, 1), loss=False)
    expected = model(samples(4)).detach()
    made = poptorch.Options().deviceIterations(4).setExecutionStrategy(strategy(poptorch))
    inference = poptorch.inferenceModel(model, made)
    outputs = []
    lines = placements(capfd, poptorch, lambda: outputs.append(inference(samples(4))))

    assert lines == ["mode(Pipelined), ipu(1), stage(1)", "mode(Pipelined), ipu(0), stage(2)"]
    assert (outputs[0] == expected).all()


@pytest.mark.ipus(4)
def test_stages_without_an_ipu_take_their_number(poptorch: Any, torch: Any, capfd: Any) -> None:
    """Stage i of a strategy runs on IPU i when neither it nor its blocks name one."""

    class Unplaced(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            for name in ("a", "b", "c"):
                with poptorch.Block(name):
                    x = x * 2
            return x

    made = poptorch.Options().deviceIterations(3).autoRoundNumIPUs(True)
    made.setExecutionStrategy(poptorch.PipelinedExecution("a", "b", "c"))
    inference = poptorch.inferenceModel(Unplaced(), made)
    lines = placements(capfd, poptorch, lambda: inference(samples(3)))

    assert lines == [f"mode(Pipelined), ipu({number}), stage({number})" for number in range(3)]


@pytest.mark.ipus(4)
def test_auto_increment_numbers_blocks_from_one(poptorch: Any, torch: Any, capfd: Any) -> None:
    """What comes before the first block is stage 0; each block without an IPU is the next stage."""

    class Unplaced(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            x = x + 1
            poptorch.Block.start("a")
            x = x * 2
            poptorch.Block.start("b")
            return x - 3

    made = poptorch.Options().deviceIterations(3).autoRoundNumIPUs(True)
    made.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    inference = poptorch.inferenceModel(Unplaced(), made)
    outputs = []
    lines = placements(capfd, poptorch, lambda: outputs.append(inference(samples(3))))

    assert lines == [f"mode(Pipelined), ipu({number}), stage({number})" for number in range(3)]
    assert (outputs[0] == (samples(3) + 1) * 2 - 3).all()


@pytest.mark.ipus(2)
def test_an_unknown_block_is_refused(poptorch: Any) -> None:
    """A block that the strategy does not name is an error that names it."""
    made = poptorch.Options().deviceIterations(3)
    made.setExecutionStrategy(poptorch.PipelinedExecution("layer0", "other"))
    inference = poptorch.inferenceModel(chain(poptorch, (0, 1), loss=False), made)

    with pytest.raises(poptorch.Error, match="layer1"):
        inference(samples(3))


@pytest.mark.ipus(2)
def test_a_block_without_an_id_needs_auto_ids(poptorch: Any, torch: Any) -> None:
    """Under stages that name their blocks, a block without an id has no place."""

    class Unnamed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            poptorch.Block.start(ipu_id=0)
            return x * 2

    made = poptorch.Options().setExecutionStrategy(poptorch.PipelinedExecution("0"))

    with pytest.raises(poptorch.Error, match="useAutoId"):
        poptorch.inferenceModel(Unnamed(), made)(samples(1))


@pytest.mark.ipus(2)
def test_auto_ids_count_blocks_without_an_id(poptorch: Any, torch: Any, capfd: Any) -> None:
    """Automatic ids are "0", "1" and so on, skip blocks that have an id, and start again with every forward."""

    class Unnamed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            poptorch.Block.useAutoId()
            poptorch.Block.start()
            x = x * 2
            poptorch.Block.start("named")
            x = x + 1
            poptorch.Block.start()
            return x - 3

    strategy = poptorch.PipelinedExecution(poptorch.Stage("0").ipu(0), poptorch.Stage("named", "1").ipu(1))
    made = poptorch.Options().deviceIterations(2).setExecutionStrategy(strategy)
    outputs = []
    for _ in range(2):
        inference = poptorch.inferenceModel(Unnamed(), made.clone())
        call: Any = lambda model=inference: outputs.append(model(samples(2)))  # noqa: E731
        lines = placements(capfd, poptorch, call)

        assert lines == [f"mode(Pipelined), ipu({number}), stage({number})" for number in range(2)]
    assert all((output == samples(2) * 2 - 2).all() for output in outputs)


@pytest.mark.ipus(2)
def test_dropout_does_not_depend_on_the_cut(poptorch: Any, torch: Any) -> None:
    """With one seed, a pipelined and a sharded model draw the same masks."""

    class Dropping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Dropout(0.5), torch.nn.Dropout(0.25)
            poptorch.BeginBlock(self.second, ipu_id=1)

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x))

    x = torch.ones(4, 300)
    outputs = []
    for strategy in (poptorch.PipelinedExecution(), poptorch.ShardedExecution()):
        made = poptorch.Options().deviceIterations(4).randomSeed(11).setExecutionStrategy(strategy)
        model = Dropping()
        model.train()
        outputs.append(poptorch.inferenceModel(model, made)(x))

    assert torch.equal(*outputs)
    assert 0 < (outputs[0] == 0).sum() < x.numel()
