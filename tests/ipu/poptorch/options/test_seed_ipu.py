"""Random numbers on the device: repeatable by a seed, different for every micro-batch and replica."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import assert_same, counts
from ..lazily import torch
from ..on_device import as_model

WIDTH = 64
RANDOM: Dict[str, Callable[[Any, Any], Any]] = {
    "dropout": lambda torch, x: torch.nn.functional.dropout(x, 0.5),
    "rand": lambda torch, x: x * torch.rand_like(x),
    "randn": lambda torch, x: x * torch.randn(x.shape),
    "bernoulli": lambda torch, x: x * torch.bernoulli(torch.full(x.shape, 0.5)),
    "random_": lambda torch, x: x * torch.empty_like(x).random_(3, 9),
    "two-bernoullis": lambda torch, x: (
        x * torch.bernoulli(torch.full(x.shape, 0.5)) * torch.bernoulli(torch.full(x.shape, 0.5))
    ),
    "two-dropouts": lambda torch, x: torch.nn.functional.dropout(torch.nn.functional.dropout(x, 0.5), 0.5),
}
"""What a random operation makes of an input."""


def dropping(poptorch: Any, kind: str = "dropout", options: Any = None) -> Any:
    """A training model that returns what a random operation makes of its input, and a loss."""

    def forward(model: Any, x: Any) -> Any:
        out = RANDOM[kind](torch, x * model.weight)
        return out, poptorch.identity_loss(out, reduction="mean")

    model = as_model(forward, weight=torch.nn.Parameter(torch.ones(WIDTH)))
    return poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.0))


def outputs(poptorch: Any, seed: Any, config: RunConfig, kind: str = "dropout", calls: int = 1) -> List[Any]:
    """What a fresh wrapper with that seed returns, call by call."""
    options = exact.options(poptorch, config)
    if seed is not None:
        options.randomSeed(seed)
    trainer = dropping(poptorch, kind, options)
    return [trainer(torch.ones(config.micro_batches, WIDTH))[0] for _ in range(calls)]


DISTRIBUTIONS: Dict[str, Tuple[Callable[[float], float], Sequence[float], Sequence[float]]] = {
    "rand": (lambda limit: limit, (0.125, 0.5, 0.9), (2.0**-8, 1 - 2.0**-8)),
    "randn": (lambda limit: 0.5 * math.erfc(-limit / math.sqrt(2.0)), (-1.5, 0.25, 1.5), (-3.0, 3.0)),
}
"""The share of random numbers that is at most a limit, limits, and limits that few numbers lie beyond."""


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_random_numbers_have_their_distribution(poptorch: Any, kind: str) -> None:
    """As many as specified are below a limit, whichever call, slot or position they are of."""
    share, limits, tails = DISTRIBUTIONS[kind]
    drawn = np.stack([each.numpy() for each in outputs(poptorch, 11, counts(2, 3, 5), kind, 9)])

    # Few numbers are in a tail: for these all calls together are one draw.
    for axes, numbers, bounds in ((("call",), drawn, limits), ((), drawn.reshape(-1), tails)):
        for limit in bounds:
            what = f"what {kind} draws below {limit}"
            check.dropout_masks(masks=numbers > limit, rate=share(limit), axes=axes, what=what)


def test_whole_numbers_are_drawn_up_to_their_bound(poptorch: Any) -> None:
    """random_(3, 9) draws 3, 4, 5, 6, 7 and 8, each as often as another."""
    drawn = np.stack([each.numpy() for each in outputs(poptorch, 11, counts(2, 3, 5), "random_", 9)])

    check.equal(actual=sorted(set(drawn.ravel())), expected=[3, 4, 5, 6, 7, 8], what="the numbers that are drawn")
    for number in range(3, 8):
        what = f"what random_ draws up to {number}"
        check.dropout_masks(masks=drawn > number, rate=(number - 2) / 6, axes=("call",), what=what)


@pytest.mark.parametrize("kind", RANDOM)
@pytest.mark.parametrize("config", [counts(3, 2, 1), counts(2, 1, 4)], ids=counts_id)
def test_the_same_seed_draws_the_same(poptorch: Any, config: RunConfig, kind: str) -> None:
    """A new wrapper with the same seed gives identical outputs, run after run."""
    first, second = (outputs(poptorch, 7, config, kind, calls=2) for _ in range(2))

    for call, (actual, expected) in enumerate(zip(second, first)):
        assert_same(actual, expected, f"the output of call {call}")


@pytest.mark.parametrize("kind", RANDOM)
@pytest.mark.parametrize("seeds", [(7, 8), (None, None)], ids=["other", "none"])
def test_another_seed_draws_something_else(poptorch: Any, seeds: Any, kind: str) -> None:
    """Of two seeds, or without one, 64 random values are not all the same: fair bits agree with probability 2^-64."""
    first, second = (outputs(poptorch, seed, counts(1, 1, 1), kind)[0].numpy() for seed in seeds)

    check.differs(actual=second, other=first, what=f"what the seed {seeds[1]} draws after {seeds[0]}")


@pytest.mark.parametrize("kind", RANDOM)
def test_every_micro_batch_and_replica_draws_for_itself(poptorch: Any, kind: str) -> None:
    """No two of 2 x 3 x 4 micro-batches, nor those of two runs, have the same 64 random values."""
    config = counts(2, 3, 4)

    first, second = outputs(poptorch, 7, config, kind, calls=2)

    rows = {tuple(row.tolist()) for row in [*first, *second]}
    check.equal(actual=len(rows), expected=2 * config.micro_batches, what="the number of distinct rows of two calls")


@pytest.mark.parametrize("kind", ["two-dropouts", "two-bernoullis"])
def test_two_operations_draw_for_themselves(poptorch: Any, kind: str) -> None:
    """Two random operations in one model have different masks: a quarter of the values pass both, not half."""
    out = outputs(poptorch, 7, counts(4, 2, 1), kind)[0]

    check.dropout_masks(masks=(out != 0).numpy(), rate=0.75, axes=("micro-batch",), what="the mask of both operations")


def test_a_random_state_can_be_restored(poptorch: Any, torch: Any) -> None:
    """Setting rng_state to an earlier value makes the next runs repeat what followed it."""
    trainer, x = dropping(poptorch), torch.ones(1, WIDTH)
    trainer(x)
    state = trainer.rng_state
    first = [trainer(x)[0] for _ in range(2)]

    trainer.rng_state = state

    for call, expected in enumerate(first):
        assert_same(trainer(x)[0], expected, f"the output of call {call} after restoring")


def test_the_random_state_survives_detaching(poptorch: Any, torch: Any) -> None:
    """A model that was detached goes on drawing where it was; what it would draw can be read meanwhile."""
    results = []
    for detach in (False, True):
        trainer, x = dropping(poptorch, options=poptorch.Options().randomSeed(3)), torch.ones(1, WIDTH)
        trainer(x)
        if detach:
            state = trainer.rng_state
            trainer.detachFromDevice()
            check.equal(actual=trainer.rng_state, expected=state, what="rng_state of a detached model")
        results.append(trainer(x)[0])

    assert_same(results[1], results[0], "the output after detaching")


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "left-out"])
def test_a_file_holds_the_random_state(poptorch: Any, torch: Any, tmp_path: Any, saved: bool) -> None:
    """A model that is loaded draws what the saved one draws next; without the state it draws from the beginning."""
    trainer, x = dropping(poptorch, options=poptorch.Options().randomSeed(3)), torch.ones(1, WIDTH)
    first = [trainer(x)[0] for _ in range(3)]
    file = str(tmp_path / "model.popef")
    trainer.save(file, export_model=False, save_rng_state=saved)
    following = trainer(x)[0]
    loaded = dropping(poptorch, options=poptorch.Options().randomSeed(3))
    loaded.loadExecutable(file)

    assert_same(loaded(x)[0], following if saved else first[0], "the first output after loading")


def test_the_device_leaves_torchs_random_numbers_alone(poptorch: Any, torch: Any) -> None:
    """What the host draws does not depend on whether a model ran in between."""
    drawn = []
    for run in (False, True):
        trainer = dropping(poptorch, "rand", exact.options(poptorch, counts(2, 1, 1)).randomSeed(5))
        torch.manual_seed(5)
        if run:
            trainer(torch.ones(2, WIDTH))
        drawn.append(torch.rand(4))

    assert_same(drawn[1], drawn[0], "what the host draws")
