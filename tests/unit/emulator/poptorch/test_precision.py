"""Rounding, partial sums and traps of single operations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

import numpy as np
import pytest
import torch

from ipu_conformance.emulator.core import numerics
from ipu_conformance.emulator.poptorch.options import Options
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.run import precision

TRAPS = numerics.Traps(inv=True, div0=True, oflo=True)
STEP = 2.0**-10
"""The distance of float16 values between 1 and 2."""


def test_stochastic_rounding_reaches_both_neighbours() -> None:
    """A sum that lies a quarter of a step above a float16 value is rounded up about a quarter of the times.

    The bound is five standard deviations of the binomial distribution, missed less than once in a million seeds.
    """
    count = 4096
    with precision.Arithmetic(seed=1):
        made = torch.ones(count, dtype=torch.float16) + torch.full((count,), STEP / 4, dtype=torch.float16)
    up = int((made == 1 + STEP).sum())

    assert made.dtype == torch.float16
    assert set(made.tolist()) == {1.0, 1 + STEP}
    assert abs(up - count / 4) < 5 * (count * 0.25 * 0.75) ** 0.5


def test_the_same_seed_rounds_alike() -> None:
    """Rounding is a function of the seed and of what was drawn for."""

    def rounded(seed: int, draw: int) -> List[float]:
        with precision.Arithmetic(seed=seed, draw=(draw,)):
            return (torch.full((64,), 1.0).mul(1 + STEP / 2).to(torch.float16)).tolist()

    assert rounded(1, 0) == rounded(1, 0)
    assert rounded(1, 0) != rounded(2, 0)
    assert rounded(1, 0) != rounded(1, 1)


def test_exact_values_stay() -> None:
    """Moving and adding representable values changes nothing."""
    x = torch.arange(12, dtype=torch.float16).reshape(3, 4)
    with precision.Arithmetic(seed=1):
        made = torch.cat([x.t().contiguous() + 1, x.view(4, 3)])

    assert torch.equal(made, torch.cat([x.t() + 1, x.view(4, 3)]))


def test_an_operation_in_place_keeps_its_tensor() -> None:
    """What is changed in place is the tensor that was given, in its own type."""
    x = torch.ones(8, dtype=torch.float16)
    with precision.Arithmetic(seed=1):
        returned = x.add_(torch.full((8,), STEP / 2, dtype=torch.float16))

    assert returned is x
    assert set(x.tolist()) <= {1.0, 1 + STEP}
    assert x.dtype == torch.float16


def test_gradients_are_rounded_too() -> None:
    """The backward pass runs through the same arithmetic."""
    x = torch.full((256,), 1 + STEP, dtype=torch.float16, requires_grad=True)
    with precision.Arithmetic(seed=3):
        (x * x * x).sum(dtype=torch.float32).backward()

    assert x.grad is not None
    assert len(set(x.grad.tolist())) > 1


def test_half_partials_lose_what_float_partials_keep() -> None:
    """A sum of many terms in float16 stops growing where float32 goes on; it equals the model of the device's dot."""
    terms = 4096
    left, right = torch.ones(1, terms, dtype=torch.float16), torch.full((terms, 1), 1.5, dtype=torch.float16)
    with precision.Arithmetic(partials="float16"):
        narrow = left @ right
    with precision.Arithmetic(partials="float32"):
        wide = left @ right
    expected = numerics.dot(left.numpy(), right.numpy(), partials="float16")

    assert wide.item() == np.float16(1.5 * terms)
    np.testing.assert_array_equal(narrow.numpy(), expected)
    assert narrow.dtype == torch.float16


def test_a_bias_is_added_to_a_product_with_half_partials() -> None:
    """The fused product and sum gives the product and then the sum."""
    bias = torch.tensor([0.5, -1.0], dtype=torch.float16)
    left, right = torch.ones(3, 4, dtype=torch.float16), torch.full((4, 2), 2.0, dtype=torch.float16)
    with precision.Arithmetic(partials="float16"):
        made = torch.addmm(bias, left, right)

    assert made.tolist() == [[8.5, 7.0]] * 3


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda: torch.ones(2) / torch.zeros(2), "divides by zero"),
        (lambda: torch.zeros(2).log(), "divides by zero"),
        (lambda: torch.full((2,), 3e38) * 10, "overflows float32"),
        (lambda: torch.full((2,), 60000.0).half() * 2, "overflows float16"),
        (lambda: torch.zeros(2) / torch.zeros(2), "not a number"),
        (lambda: torch.full((2,), -1.0).sqrt(), "not a number"),
        (lambda: torch.full((2,), 3e38).mul_(10), "overflows float32"),
    ],
)
def test_a_trapped_operation_is_an_error(function: Any, what: str) -> None:
    """A division by zero, an overflow or an invalid operation raises where it happens."""
    with pytest.raises(Error, match=what) as raised, precision.Arithmetic(traps=TRAPS):
        function()

    assert raised.value.type == precision.TRAPPED


def test_infinities_that_were_given_pass() -> None:
    """Adding to an infinity is exact, one that a mask writes is meant, and memory without values is not looked at."""
    infinite = float("inf")
    with precision.Arithmetic(traps=TRAPS):
        added = torch.full((2,), infinite) + 1
        masked = torch.zeros(2).masked_fill(torch.tensor([True, False]), -infinite)
        weights = masked.softmax(0)
        filled = torch.full((2,), float("nan")).fill_(1.0)

    assert added.tolist() == [infinite, infinite]
    assert weights.tolist() == [0.0, 1.0]
    assert filled.tolist() == [1.0, 1.0]


class Machine(SimpleNamespace):
    """Something with the methods of a machine; each does the same."""

    def step(self, replica: int) -> torch.Tensor:
        return torch.ones(64, dtype=torch.float16) + torch.full((64,), STEP / 2, dtype=torch.float16)

    forward = recompute = backward = update = step


def test_default_options_leave_a_machine_alone() -> None:
    """Nothing is intercepted unless an option of precision is on."""
    machine = Machine()
    precision.apply(machine, Options(), 1)

    assert vars(machine) == {}


def slots(name: str) -> List[List[float]]:
    """What two slots of replica 0 and one of replica 1 make."""
    options = Options()
    options.Precision.enableStochasticRounding(True)
    machine = Machine()
    precision.apply(machine, options, 5)
    return [getattr(machine, name)(replica).tolist() for replica in (0, 0, 1)]


@pytest.mark.parametrize("name", precision.SLOT_METHODS)
def test_every_slot_of_a_machine_rounds(name: str) -> None:
    """With stochastic rounding every slot draws anew, and the same seed draws the same."""
    first, second, _ = slots(name)

    assert first != second
    assert slots(name)[:2] == [first, second]


@pytest.mark.parametrize("name", precision.SLOT_METHODS)
def test_only_updates_round_alike_on_every_replica(name: str) -> None:
    """Replicas draw for themselves, but their updates draw the same, so that their weights stay the same bits."""
    first, _, other = slots(name)

    assert (first == other) is (name == "update")


def test_types_that_are_asked_for_are_kept() -> None:
    """A sum that is asked for in float32 is not rounded; a cast to float16 is; a check of types sees the given ones."""
    x = torch.full((3,), 1 + STEP, dtype=torch.float16)
    with precision.Arithmetic(seed=1):
        wide, narrow = x.sum(dtype=torch.float32), torch.full((3,), 1.0).to(torch.float16)
        torch.ops.aten._assert_tensor_metadata(x, dtype=torch.float16)
        mixed = x + torch.ones(3)

    assert (wide.dtype, wide.item()) == (torch.float32, 3 * (1 + STEP))
    assert narrow.dtype == torch.float16
    assert mixed.dtype == torch.float32
