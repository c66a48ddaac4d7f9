"""How a combined batch is dealt to device iterations, accumulation steps and replicas."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import INFERENCE, TRAINING, assert_same, counts
from ..on_device import as_model, infer


@pytest.mark.parametrize("config", TRAINING, ids=counts_id)
def test_training_deals_out_by_iteration_then_accumulation_then_replica(
    poptorch: Any, torch: Any, config: RunConfig
) -> None:
    """Every micro-batch meets the weights of its device iteration, from call to call, and comes back in its place."""
    x = exact.batch(config)
    expected = exact.plain_run(x, config, calls=2)
    trainer, model = exact.trainer(poptorch, config)

    for call in range(2):
        out, losses = trainer(x)

        assert_same(out, torch.cat(expected.outputs[call]), f"the output of call {call}")
        assert_same(losses, torch.stack(expected.losses[call]), f"the vector of losses of call {call}")
    exact.assert_weights(model, expected.weights)


@pytest.mark.parametrize("micro", [1, 4])
@pytest.mark.parametrize("config", [counts(2, 1, 4), counts(3, 1, 2), counts(2, 3, 4)], ids=counts_id)
def test_the_model_sees_one_micro_batch(poptorch: Any, torch: Any, config: RunConfig, micro: int) -> None:
    """Inside the model dimension 0 is that of a micro-batch, not that of the combined batch."""

    def size(model: Any, x: Any) -> Any:
        return torch.zeros(1) + x.shape[0], poptorch.identity_loss(x.sum() * 0.0, reduction="none")

    trainer, _ = exact.trainer(poptorch, config, model=as_model(size, unused=torch.nn.Parameter(torch.ones(1))))

    sizes, _ = trainer(exact.batch(config, micro))

    check.equal(actual=sizes.tolist(), expected=[micro] * config.micro_batches, what="the list of sizes in the model")


@pytest.mark.parametrize("size", [1, 5, 11, 13, 23])
def test_a_batch_that_does_not_divide_is_refused(poptorch: Any, size: int) -> None:
    """2 x 3 x 2 micro-batches need a batch that is a multiple of 12; any other is refused, and nothing is compiled."""
    trainer, _ = exact.trainer(poptorch, counts(2, 3, 2))

    with check.raises(AssertionError, match="Invalid batch dimension", what=f"a batch of {size}"):
        trainer(exact.samples(size))

    check.equal(actual=trainer.isCompiled(), expected=False, what=f"isCompiled() after a batch of {size}")


@pytest.mark.parametrize("wrong", [0, 1])
def test_every_input_must_divide(poptorch: Any, torch: Any, wrong: int) -> None:
    """One input of the right size does not excuse another of the wrong one."""
    inputs = [torch.ones(6, 2), torch.ones(6, 2)]
    inputs[wrong] = torch.ones(7, 2)
    total = as_model(lambda model, x, y: x.sum() + y.sum())

    with check.raises(AssertionError, match="Invalid batch dimension", what=f"input {wrong} of 7 samples"):
        poptorch.inferenceModel(total, poptorch.Options().deviceIterations(3)).compile(*inputs)


SHAPES = (
    *((size, 2) for size in (*range(1, 18), 31, 32, 33, 64, 100)),
    *((3, 2, 1, 4, 5, 2)[:rank] for rank in (1, *range(3, 7))),
)


def test_a_micro_batch_has_any_shape(poptorch: Any, torch: Any) -> None:
    """Every sample counts and keeps its bits, however many there are and however many dimensions they have."""
    third = torch.tensor(1 / 3)
    for shape in SHAPES:
        x = (torch.arange(1, 1 + math.prod(shape)) * third).reshape(shape)

        out, total = infer(
            poptorch,
            lambda model, x: (x * model.weight, (x > model.weight).sum()),
            x,
            weight=torch.nn.Parameter(torch.tensor(0.5)),
        )

        assert_same(out, x * 0.5, f"the output for an input of shape {shape}")
        check.equal(actual=int(total), expected=x.numel() - 1, what=f"the number above a half, of {x.numel()}")


def test_a_scalar_is_a_batch_of_one(poptorch: Any, torch: Any) -> None:
    """A 0-d input passes as it is when one micro-batch is asked for, and is refused when more are."""
    scalar = torch.tensor(1.5)

    assert_same(infer(poptorch, lambda model, x: x * 2, scalar), torch.tensor(3.0), "the output")
    with check.raises(AssertionError, match="Invalid batch dimension", what="a scalar for two device iterations"):
        infer(poptorch, lambda model, x: x * 2, scalar, options=poptorch.Options().deviceIterations(2))


@pytest.mark.parametrize("config", INFERENCE, ids=counts_id)
def test_inputs_have_micro_batches_of_their_own_sizes(poptorch: Any, torch: Any, config: RunConfig) -> None:
    """Each input is divided by itself: one of 2 and one of 3 samples a micro-batch go together."""
    x = torch.arange(1.0, 1 + 2 * config.micro_batches)
    y = torch.arange(1.0, 1 + 3 * config.micro_batches) * 0.5

    def products(model: Any, x: Any, y: Any) -> Any:
        return x[:, None] * y[None, :]

    out = infer(poptorch, products, x, y, options=exact.options(poptorch, config))

    pairs = zip(x.chunk(config.micro_batches), y.chunk(config.micro_batches))
    assert_same(out, torch.cat([products(None, *pair) for pair in pairs]), "the output")


@pytest.mark.parametrize("kind", ["Consecutive", "Orthogonal"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_a_group_of_replicas_shares_its_input(poptorch: Any, torch: Any, iterations: int, kind: str) -> None:
    """With groups of 2 of 6 replicas half the batch is enough, and both members of a group see the same."""
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(6).autoRoundNumIPUs(True)
    options.inputReplicaGrouping(2, getattr(poptorch.CommGroupType, kind))
    model = exact.scale(poptorch, loss=False)
    x = exact.samples(iterations * 3)

    out = poptorch.inferenceModel(model, options)(x)

    member = [0, 0, 1, 1, 2, 2] if kind == "Consecutive" else [0, 1, 2, 0, 1, 2]
    fed = [iteration * 3 + group for iteration in range(iterations) for group in member]
    assert_same(out, model(x[torch.tensor(fed)]), "the output")


@pytest.mark.parametrize(
    ("iterations", "group", "error"),
    [pytest.param(3, 2, "Invalid batch dimension", id="batch"), pytest.param(1, 3, "", id="replicas")],
)
def test_groups_divide_replicas_and_batch(poptorch: Any, iterations: int, group: int, error: str) -> None:
    """A group counts once in what a batch is a multiple of, and its size divides the number of replicas."""
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(4).inputReplicaGrouping(group)
    model = poptorch.inferenceModel(exact.scale(poptorch, loss=False), options)

    with check.raises(AssertionError if error else poptorch.Error, match=error, what=f"groups of {group} replicas"):
        model(exact.samples(4))


@pytest.mark.parametrize("config", [counts(2, 3, 1), counts(4, 2, 1), counts(1, 5, 1)], ids=counts_id)
def test_batch_norm_sees_the_micro_batch(poptorch: Any, torch: Any, config: RunConfig) -> None:
    """The mean that is taken off is that of 4 samples, and running statistics move once per micro-batch."""

    def forward(model: Any, x: Any) -> Any:
        out = model.norm(x)
        return out, poptorch.identity_loss(out.mean() * model.weight, reduction="mean")

    def normed() -> Any:
        norm = torch.nn.BatchNorm1d(2, affine=False, momentum=0.5)
        return as_model(forward, norm=norm, weight=torch.nn.Parameter(torch.ones(1)))

    host, x = normed(), exact.batch(config, 4)
    expected = torch.cat([host(part)[0].detach() for part in x.chunk(config.micro_batches)])
    trainer, model = exact.trainer(poptorch, config, model=normed())

    out, _ = trainer(x)

    # The same kernel on the same micro-batches gives the same bits.
    assert_same(out, expected, "the output")
    for name, value in host.norm.named_buffers():
        assert_same(getattr(model.norm, name), value, name)
