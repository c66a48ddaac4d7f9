"""Random numbers on the device: repeatable by a seed, different for every micro-batch and replica."""

from __future__ import annotations

from typing import Any, List

import pytest

from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import assert_same, counts

WIDTH = 64


def dropping(poptorch: Any, kind: str = "dropout") -> Any:
    """A model that returns what a random operation makes of its input, and a loss."""
    import torch
    import torch.nn.functional as F

    class Dropping(torch.nn.Module):
        """One weight, one random operation."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Any) -> Any:
            x = x * self.weight
            if kind == "dropout":
                out = F.dropout(x, 0.5)
            elif kind == "rand":
                out = x * torch.rand_like(x)
            elif kind == "randn":
                out = x * torch.randn(x.shape)
            elif kind == "bernoulli":
                out = x * torch.bernoulli(torch.full(x.shape, 0.5))
            else:
                out = F.dropout(F.dropout(x, 0.5), 0.5)
            return out, poptorch.identity_loss(out, reduction="mean")

    return Dropping()


def outputs(poptorch: Any, seed: Any, config: RunConfig, kind: str = "dropout", calls: int = 1) -> List[Any]:
    """What a fresh wrapper with that seed returns, call by call."""
    import torch

    made = exact.options(poptorch, config)
    if seed is not None:
        made.randomSeed(seed)
    model = dropping(poptorch, kind)
    trainer = poptorch.trainingModel(model, made, torch.optim.SGD(model.parameters(), lr=0.0))
    return [trainer(torch.ones(config.micro_batches, WIDTH))[0] for _ in range(calls)]


KINDS = ("dropout", "rand", "randn", "bernoulli", "two-dropouts")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", [counts(3, 2, 1), counts(2, 1, 4)], ids=counts_id)
def test_the_same_seed_draws_the_same(poptorch: Any, config: RunConfig, kind: str) -> None:
    """A new wrapper with the same seed gives identical outputs, run after run."""
    first, second = (outputs(poptorch, 7, config, kind, calls=2) for _ in range(2))

    for own, other in zip(first, second):
        assert_same(own, other, "output")


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_draws_something_else(poptorch: Any, torch: Any, kind: str) -> None:
    """64 random values of two seeds are not all the same."""
    config = counts(1, 1, 1)

    assert not torch.equal(outputs(poptorch, 7, config, kind)[0], outputs(poptorch, 8, config, kind)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_every_micro_batch_and_replica_draws_for_itself(poptorch: Any, kind: str) -> None:
    """No two of 2 x 3 x 4 micro-batches, nor those of two runs, have the same 64 random values."""
    config = counts(2, 3, 4)

    first, second = outputs(poptorch, 7, config, kind, calls=2)

    rows = {tuple(row.tolist()) for row in [*first, *second]}
    assert len(rows) == 2 * config.micro_batches


def test_two_operations_draw_for_themselves(poptorch: Any) -> None:
    """Two dropouts in one model have different masks: about a quarter of the values pass both, not half."""
    out = outputs(poptorch, 7, counts(4, 2, 1), "two-dropouts")[0]

    passed = int((out != 0).sum())
    # 512 values pass with probability 1/4: mean 128, standard deviation 9.8; half of them would be 256.
    assert 128 - 6 * 9.8 < passed < 128 + 6 * 9.8


def test_without_a_seed_runs_differ(poptorch: Any, torch: Any) -> None:
    """Two wrappers without a seed draw differently: 64 fair bits agree with probability 2^-64."""
    config = counts(1, 1, 1)

    assert not torch.equal(outputs(poptorch, None, config)[0], outputs(poptorch, None, config)[0])


def test_dropout_scales_what_it_keeps(poptorch: Any) -> None:
    """Values are dropped or doubled, at a rate of one half."""
    out = outputs(poptorch, 7, counts(4, 2, 1))[0]

    assert set(out.unique().tolist()) == {0.0, 2.0}
    # 512 fair bits: mean 256, standard deviation 11.3.
    assert abs(int((out == 0).sum()) - 256) < 6 * 11.3


def test_a_random_state_can_be_restored(poptorch: Any, torch: Any) -> None:
    """Setting rng_state to what was read makes the next runs draw the same again."""
    model, x = dropping(poptorch), torch.ones(1, WIDTH)
    trainer = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))
    trainer(x)
    state = trainer.rng_state
    first = [trainer(x)[0] for _ in range(2)]

    trainer.rng_state = state

    for own, other in zip([trainer(x)[0] for _ in range(2)], first):
        assert_same(own, other, "output")


def test_the_random_state_survives_detaching(poptorch: Any, torch: Any) -> None:
    """A model that was detached goes on drawing where it was."""
    results = []
    for detach in (False, True):
        model, x = dropping(poptorch), torch.ones(1, WIDTH)
        made = poptorch.Options().randomSeed(3)
        trainer = poptorch.trainingModel(model, made, torch.optim.SGD(model.parameters(), lr=0.0))
        trainer(x)
        if detach:
            trainer.detachFromDevice()
        results.append(trainer(x)[0])

    assert_same(results[1], results[0], "output")


def test_the_seed_is_torchs_seed_too(poptorch: Any, torch: Any) -> None:
    """randomSeed seeds torch on the host, so that weights that are made after it are repeatable."""
    made = []
    for _ in range(2):
        poptorch.Options().randomSeed(11)
        made.append(torch.nn.Linear(4, 4).weight.detach())

    assert_same(made[1], made[0], "weight")


def test_the_device_leaves_torchs_random_numbers_alone(poptorch: Any, torch: Any) -> None:
    """What the host draws does not depend on whether a model ran in between."""
    drawn = []
    for run in (False, True):
        made = exact.options(poptorch, counts(2, 1, 1)).randomSeed(5)
        model = dropping(poptorch, "rand")
        trainer = poptorch.trainingModel(model, made, torch.optim.SGD(model.parameters(), lr=0.0))
        torch.manual_seed(5)
        if run:
            trainer(torch.ones(2, WIDTH))
        drawn.append(torch.rand(4))

    assert_same(drawn[1], drawn[0], "random numbers of the host")


def test_inference_in_eval_mode_drops_nothing(poptorch: Any, torch: Any) -> None:
    """A dropout layer in eval mode passes everything."""
    x = torch.ones(3, WIDTH)

    assert_same(poptorch.inferenceModel(torch.nn.Dropout(0.5).eval())(x), x, "output")
