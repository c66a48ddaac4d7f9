"""Cycle counts: what they need, and how they move with the work."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest

from ipu_conformance import check

from ..lazily import poptorch
from ..optim.regression import make
from .dumped import Setup, executor, options_of


def _cycles(setup: Setup, runs: int = 1) -> List[int]:
    """The cycles of each of some runs, which are more than none; Adam updates the weights."""
    __tracebackhide__ = True
    options = options_of(poptorch, setup).logCycleCount(True)
    if setup.name.startswith("recomputing"):
        options._Popart.set("autoRecomputation", 3)
    model, inputs = executor(setup, make("Adam"), options)
    cycles = []
    for _ in range(runs):
        model(*inputs)
        cycles.append(int(model.cycleCount()))
    check.holds(min(cycles) > 0, f"the runs of {setup} take {cycles} cycles.")
    return cycles


def test_a_model_that_comes_back_to_an_ipu_takes_cycles() -> None:
    """The count is positive for a model on several IPUs too."""
    _cycles(Setup("sharded", ipus=(0, 1, 1, 0), mode="Sharded"))


_STAGES: Any = {"ipus": (0, 1, 2, 3), "accumulation": 7}
MORE: Dict[str, Tuple[Setup, Setup, int]] = {
    "training": (Setup("training"), Setup("inference", training=False), 1),
    "iterations-of-inference": (
        Setup("six iterations", training=False, iterations=6), Setup("one iteration", training=False), 3),
    "iterations-of-training": (Setup("six iterations", iterations=6), Setup("one iteration"), 3),
    "recomputation": (Setup("recomputing", **_STAGES), Setup("keeping", **_STAGES), 1),
    "reduction": (Setup("four replicas", replicas=4), Setup("one replica"), 1),
    "accumulation": (Setup("an accumulation of five", accumulation=5), Setup("an accumulation of one"), 1),
}  # fmt: skip
"""Two setups: the first takes more than so many times the cycles of the second."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.ipus(row[0].replicas * (1 + max(row[0].ipus))))
        for name, row in MORE.items()
    ],
)
def test_what_is_done_besides_adds_cycles(name: str) -> None:
    """The backward pass, further micro-batches, computing again and reducing over replicas cost cycles."""
    more, less, times = MORE[name]
    (large,), (small,) = _cycles(more), _cycles(less)

    check.holds(large > times * small, f"{more} takes {large} cycles, {less} {small}: not above {times} times as many.")


def test_cycles_are_those_of_the_last_run() -> None:
    """Runs are not added up: after five of them the count is less than twice that of the first."""
    counts = _cycles(Setup("five runs"), runs=5)

    check.holds(max(counts) < 2 * counts[0], f"five runs of one model take {counts} cycles: later ones twice as many.")
