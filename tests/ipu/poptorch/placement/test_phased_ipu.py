"""Phased execution: serial and parallel phases, their IPUs and their order."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ..exact import assert_same
from ..lazily import poptorch
from .placed import assert_ipus, assert_trains, cases, chain, options, placed, samples


def _pairs(kind: str) -> Any:
    """Two phases of two stages each."""
    return getattr(poptorch, kind)(
        poptorch.Phase(poptorch.Stage("layer0"), poptorch.Stage("layer1")),
        poptorch.Phase(poptorch.Stage("layer2"), poptorch.Stage("layer3")),
    )


def _singles(kind: str) -> Any:
    """Four phases of one stage each, named by their blocks."""
    return getattr(poptorch, kind)("layer0", "layer1", "layer2", "layer3")


KINDS = ("SerialPhasedExecution", "ParallelPhasedExecution")


@pytest.mark.ipus(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [_pairs, _singles])
@pytest.mark.parametrize("config", cases([placed((0,) * 4, 3, 1, 2), placed((0,) * 4, 1, 3, 2)]))
def test_phases_train_as_a_plain_loop_does(kind: str, make: Any, config: RunConfig) -> None:
    """Weights and outputs of a phased model are those of a loop over the micro-batches."""
    phased = options(config).setExecutionStrategy(make(kind))

    assert_trains(config, phased, spelling="with")


def _inference(strategy: Any) -> Any:
    """The chain as an inference model under a strategy."""
    options = poptorch.Options().autoRoundNumIPUs(True).setExecutionStrategy(strategy)
    return poptorch.inferenceModel(chain((0,) * 4, "with", loss=False), options)


def _phase_ipus(strategy: Any) -> None:
    strategy.phase(0).ipus(1, 0)
    strategy.phase(1).ipus(2, 3)


def _stage_ipus(strategy: Any) -> None:
    strategy.phase(0).stage(1).ipu(3)
    strategy.stage("layer3").ipu(2)


@pytest.mark.ipus(4)
@pytest.mark.parametrize(
    ("kind", "choose", "ipus"),
    [
        pytest.param(KINDS[0], None, [0, 1, 0, 1], id="serial"),
        pytest.param(KINDS[1], None, [0, 2, 1, 3], id="parallel"),
        pytest.param(KINDS[0], _phase_ipus, [1, 0, 2, 3], id="chosen-for-a-phase"),
        pytest.param(KINDS[0], _stage_ipus, [0, 3, 0, 2], id="chosen-for-a-stage"),
    ],
)
def test_stages_of_phases_are_on_their_ipus(capfd: Any, kind: str, choose: Any, ipus: Any) -> None:
    """Stage i of serial phases is on IPU i, parallel phases alternate even and odd IPUs, and both can be chosen."""
    strategy = _pairs(kind)
    if choose is not None:
        choose(strategy)

    assert_ipus(capfd, _inference(strategy), ipus)


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("phase", "ipus"), [(0, (1, 2)), (0, (0, 1)), (1, (0, 1)), (1, (3, 2))])
def test_the_parity_of_parallel_phases_is_checked(phase: int, ipus: Any) -> None:
    """A parallel phase on an IPU of the other parity is refused."""
    strategy = _pairs(KINDS[1])

    with check.raises((poptorch.Error, AssertionError), what=f"the parallel phase {phase} on the IPUs {ipus}"):
        strategy.phase(phase).ipus(*ipus)
        _inference(strategy)(samples(2))


@pytest.mark.parametrize("kind", KINDS)
def test_phases_and_stages_are_reached_by_index(kind: str) -> None:
    """A phase is found by its number, a stage by its place in the phase; names are the blocks of one stage."""
    first = poptorch.Phase("a", "b")
    strategy = getattr(poptorch, kind)(first, [poptorch.Stage("c", "d"), poptorch.Stage("e")], ["f", "g", "h"])

    check.holds(strategy.phase(0) is first, "phase(0) is not the first phase.")
    second = strategy.phase(1).stage(0)
    check.equal(actual=list(second.blocks), expected=["c", "d"], what="the list of blocks of the second phase")
    check.holds(strategy.stage("d") is second, "stage('d') is not the stage that holds the block.")
    together = [strategy.stage(name) is strategy.phase(2).stage(0) for name in ("f", "g", "h", "e")]
    check.equal(actual=together, expected=[True, True, True, False], what="which blocks are in the third phase's stage")
    check.equal(actual=list(first.stage(0).blocks), expected=["a", "b"], what="the list of blocks of the first phase")
    for reach, number in ((strategy.phase, 3), (first.stage, 1)):
        with check.raises(IndexError, what=f"{reach.__name__}({number}) of {number}"):
            reach(number)


@pytest.mark.parametrize("name", ["AlwaysLive", "OffChipAfterFwd", "OffChipAfterFwdNoOverlap", "OffChipAfterEachPhase"])
def test_liveness_changes_no_result(name: str) -> None:
    """Where tensors wait between phases makes no difference to the output."""
    strategy = _singles(KINDS[0])
    strategy.setTensorsLiveness(getattr(poptorch.Liveness, name))
    strategy.useSeparateBackwardPhase(True)
    expected = chain((0,) * 4, "with", loss=False)(samples(3))

    assert_same(_inference(strategy)(samples(3)), expected, f"the output with {name}")


PHASES = {"execution_mode": 2, "separate_backward_phase": True}
MODES: Dict[str, Tuple[Callable[[Any], Any], Dict[str, Any], str]] = {
    "PipelinedExecution": (lambda strategy: None, {"execution_mode": 0}, ""),
    "ShardedExecution": (lambda strategy: None, {"execution_mode": 1}, ""),
    "SerialPhasedExecution": (
        lambda strategy: strategy.setTensorsLiveness(poptorch.Liveness.OffChipAfterFwdNoOverlap),
        {**PHASES, "serial_phases_execution": True}, "OffChipAfterFwdNoOverlap"),
    "ParallelPhasedExecution": (
        lambda strategy: strategy.sendTensorsOffChipAfterFwd(),
        {**PHASES, "serial_phases_execution": False}, "OffChipAfterFwd"),
}  # fmt: skip
"""What is set, and what the backend is told, with the liveness of tensors."""


@pytest.mark.parametrize("name", MODES)
def test_the_backend_is_told_of_the_strategy(name: str) -> None:
    """backendOptions gives the mode of a strategy, and of one with phases how they are run."""
    change, expected, liveness = MODES[name]
    strategy = getattr(poptorch, name)("a", "b")
    change(strategy)
    if liveness:
        strategy.useSeparateBackwardPhase(True)
        expected = {**expected, "tensors_liveness": getattr(poptorch.Liveness, liveness).value}

    check.equal(actual=strategy.backendOptions(), expected=expected, what=f"the backendOptions of {name}")
