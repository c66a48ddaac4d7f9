"""How many IPUs a model reserves: a power of two, at most 64, counted by the highest IPU that it names."""

from __future__ import annotations

from typing import Optional, Tuple

import pytest

from ipu_conformance import check

from ..lazily import poptorch
from .placed import assert_infers, samples


def _run(ipus: Tuple[int, ...], replicas: int, option: Optional[str] = None) -> None:
    """Infer with the chain on these IPUs, and compare with the host."""
    options = poptorch.Options().replicationFactor(replicas).deviceIterations(4)
    options.setExecutionStrategy(poptorch.ShardedExecution())
    if option:
        getattr(options, option)(True)
    assert_infers(ipus, options, samples(4 * replicas))


NO_POWER_OF_TWO = (((0, 1, 2), 1, 3), ((0,), 3, 3), ((0, 1), 3, 6), ((0, 2), 1, 3), ((2,), 2, 6), ((0, 4), 1, 5))
POWERS_OF_TWO = (((0, 1), 1), ((0, 3), 1), ((3, 1), 2), ((0,), 8), ((0, 1), 4), ((0, 2, 3), 1))


@pytest.mark.ipus(8)
@pytest.mark.parametrize(("ipus", "replicas", "number"), NO_POWER_OF_TWO)
def test_a_number_that_is_no_power_of_two_is_refused(ipus: Tuple[int, ...], replicas: int, number: int) -> None:
    """The error names the number of IPUs and the option that rounds it up."""
    match = rf"\b{number} IPUs[\s\S]*autoRoundNumIPUs"
    with check.raises(poptorch.Error, match=match, what=f"{replicas} replicas on the IPUs {ipus}"):
        _run(ipus, replicas)


@pytest.mark.parametrize(
    ("ipus", "replicas", "option"),
    [
        *(pytest.param(*row, None, marks=pytest.mark.ipus(8)) for row in POWERS_OF_TWO),
        pytest.param((0, 31), 2, None, marks=pytest.mark.ipus(64)),
        *(pytest.param(*row[:2], "autoRoundNumIPUs", marks=pytest.mark.ipus(8)) for row in NO_POWER_OF_TWO),
        ((0, 1, 2), 1, "useIpuModel"),
        ((0,), 3, "useIpuModel"),
    ],
    ids=str,
)
def test_a_power_of_two_needs_no_rounding(ipus: Tuple[int, ...], replicas: int, option: Optional[str]) -> None:
    """The highest IPU plus one, times the replicas, is a power of two up to 64, rounded to one, or of the model."""
    with check.accepted(f"inference on the IPUs {ipus} with {replicas} replicas and the option {option}"):
        _run(ipus, replicas, option)


@pytest.mark.parametrize(("ipus", "replicas"), [((64,), 1), ((0, 32), 2), ((0,), 128)])
def test_more_than_64_ipus_are_refused(ipus: Tuple[int, ...], replicas: int) -> None:
    """One process reserves 64 IPUs at most, after rounding."""
    with check.raises(poptorch.Error, match="IPUs", what=f"{replicas} replicas on the IPUs {ipus}"):
        _run(ipus, replicas, "autoRoundNumIPUs")


def test_rounding_needs_no_argument() -> None:
    """autoRoundNumIPUs() switches the option on."""
    actual = poptorch.Options().autoRoundNumIPUs().auto_round_num_ipus
    check.equal(actual=actual, expected=True, what="auto_round_num_ipus")
