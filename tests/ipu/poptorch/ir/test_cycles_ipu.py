"""Cycle counts: what they need, and how they move with the work."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from .dumped import Setup, executor, options_of


def _cycles(poptorch: Any, setup: Setup) -> int:
    """The cycles of one run, which are more than none; Adam updates the weights."""
    __tracebackhide__ = True
    options = options_of(poptorch, setup).logCycleCount(True)
    if setup.name.startswith("recomputing"):
        options._Popart.set("autoRecomputation", 3)
    model, inputs = executor(setup, lambda net: poptorch.optim.Adam(net.parameters(), lr=0.1), options)
    model(*inputs)
    cycles = int(model.cycleCount())
    check.holds(cycles > 0, f"a run of {setup} takes {cycles} cycles.")
    return cycles


def assert_more(poptorch: Any, more: Setup, less: Setup, times: int = 1) -> None:
    """One setup takes more cycles than a multiple of those of another."""
    __tracebackhide__ = True
    large, small = _cycles(poptorch, more), _cycles(poptorch, less)
    check.holds(large > times * small, f"{more} takes {large} cycles, {less} {small}: not above {times} times as many.")


def test_a_model_that_comes_back_to_an_ipu_takes_cycles(poptorch: Any) -> None:
    """The count is positive for a model on several IPUs too."""
    _cycles(poptorch, Setup("sharded", ipus=(0, 1, 1, 0), mode="Sharded"))


def test_training_takes_more_cycles_than_inference(poptorch: Any) -> None:
    """The backward pass and the update cost cycles."""
    assert_more(poptorch, Setup("training"), Setup("inference", training=False))


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_device_iterations_add_cycles(poptorch: Any, training: bool) -> None:
    """Six device iterations take more than three times the cycles of one."""
    six, one = Setup("six iterations", training=training, iterations=6), Setup("one iteration", training=training)
    assert_more(poptorch, six, one, times=3)


_STAGES: Any = {"ipus": (0, 1, 2, 3), "accumulation": 7}


@pytest.mark.parametrize(
    ("more", "less"),
    [
        (Setup("recomputing", **_STAGES), Setup("keeping", **_STAGES)),
        (Setup("four replicas", replicas=4), Setup("one replica")),
    ],
    ids=["recomputation", "reduction"],
)
@pytest.mark.ipus(4)
def test_what_is_done_besides_adds_cycles(poptorch: Any, more: Setup, less: Setup) -> None:
    """Computing again and reducing over replicas cost cycles, for the same passes."""
    assert_more(poptorch, more, less)


def test_accumulation_adds_cycles(poptorch: Any) -> None:
    """More micro-batches for one update take more cycles."""
    assert_more(poptorch, Setup("an accumulation of five", accumulation=5), Setup("an accumulation of one"))


def test_cycles_are_those_of_the_last_run(poptorch: Any) -> None:
    """Runs are not added up: after five of them the count is less than twice that of the first."""
    setup = Setup("five runs")
    options = options_of(poptorch, setup).logCycleCount(True)
    model, inputs = executor(setup, lambda net: poptorch.optim.Adam(net.parameters(), lr=0.1), options)
    counts = []
    for _ in range(5):
        model(*inputs)
        counts.append(int(model.cycleCount()))

    check.holds(max(counts) < 2 * counts[0], f"five runs of one model take {counts} cycles: later ones twice as many.")
