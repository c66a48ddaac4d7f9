"""How many IPUs a model reserves: a power of two, at most 64, counted by the highest IPU that it names."""

from __future__ import annotations

from typing import Any, Tuple

import pytest

from ipu_conformance import check

from .placed import accepted, assert_infers, samples


def _run(poptorch: Any, ipus: Tuple[int, ...], replicas: int, *, round_up: bool = False, model: bool = False) -> None:
    """Infer with the chain on these IPUs, and compare with the host."""
    options = poptorch.Options().replicationFactor(replicas).deviceIterations(4)
    options.setExecutionStrategy(poptorch.ShardedExecution())
    if round_up:
        options.autoRoundNumIPUs(True)
    if model:
        options.useIpuModel(True)
    assert_infers(poptorch, ipus, options, samples(4 * replicas))


NO_POWER_OF_TWO = (((0, 1, 2), 1, 3), ((0,), 3, 3), ((0, 1), 3, 6), ((0, 2), 1, 3), ((2,), 2, 6), ((0, 4), 1, 5))


@pytest.mark.ipus(8)
@pytest.mark.parametrize(("ipus", "replicas", "number"), NO_POWER_OF_TWO)
def test_a_number_that_is_no_power_of_two_is_refused(
    poptorch: Any, ipus: Tuple[int, ...], replicas: int, number: int
) -> None:
    """The error names the number of IPUs and the option that rounds it up."""
    match = rf"\b{number} IPUs[\s\S]*autoRoundNumIPUs"
    with check.raises(poptorch.Error, match=match, what=f"{replicas} replicas on the IPUs {ipus}"):
        _run(poptorch, ipus, replicas)


@pytest.mark.ipus(8)
@pytest.mark.parametrize(("ipus", "replicas", "number"), NO_POWER_OF_TWO)
def test_auto_rounding_reserves_a_power_of_two(
    poptorch: Any, ipus: Tuple[int, ...], replicas: int, number: int
) -> None:
    """With autoRoundNumIPUs the same models run."""
    with accepted(poptorch, ipus):
        _run(poptorch, ipus, replicas, round_up=True)


@pytest.mark.ipus(8)
@pytest.mark.parametrize(
    ("ipus", "replicas"), [((0, 1), 1), ((0, 3), 1), ((3, 1), 2), ((0,), 8), ((0, 1), 4), ((0, 2, 3), 1)]
)
def test_a_power_of_two_needs_no_rounding(poptorch: Any, ipus: Tuple[int, ...], replicas: int) -> None:
    """IPUs that are skipped count too: the number is the highest IPU plus one, times the replicas."""
    with accepted(poptorch, ipus):
        _run(poptorch, ipus, replicas)


@pytest.mark.ipus(64)
def test_64_ipus_are_reserved(poptorch: Any) -> None:
    """64 IPUs are the most, and allowed."""
    with accepted(poptorch, (0, 31)):
        _run(poptorch, (0, 31), 2)


@pytest.mark.parametrize(("ipus", "replicas"), [((0, 1, 2), 1), ((0,), 3)])
def test_the_model_of_an_ipu_takes_any_number(poptorch: Any, ipus: Tuple[int, ...], replicas: int) -> None:
    """Only hardware comes in powers of two."""
    with accepted(poptorch, ipus):
        _run(poptorch, ipus, replicas, model=True)


@pytest.mark.parametrize(("ipus", "replicas"), [((64,), 1), ((0, 32), 2), ((0,), 128)])
def test_more_than_64_ipus_are_refused(poptorch: Any, ipus: Tuple[int, ...], replicas: int) -> None:
    """One process reserves 64 IPUs at most, after rounding."""
    with check.raises(poptorch.Error, match="IPUs", what=f"{replicas} replicas on the IPUs {ipus}"):
        _run(poptorch, ipus, replicas, round_up=True)


def test_rounding_needs_no_argument(poptorch: Any) -> None:
    """autoRoundNumIPUs() switches the option on."""
    actual = poptorch.Options().autoRoundNumIPUs().auto_round_num_ipus
    check.equal(actual=actual, expected=True, what="auto_round_num_ipus")
