"""What a device executes, and when, is compared with a specification that is not the code that planned it."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import pytest

from ipu_conformance import check, notes
from ipu_conformance.oracle.training.execution import slots
from ipu_conformance.run import RunConfig

from .frame import Runs
from .table import STAGED, each, table
from .test_pipelining_ipu import LEAST

TRACED = {**STAGED, **{f"least-{word}": row for word, row in LEAST.items()}}
PLANS = table(*({word: row} for word, row in TRACED.items()))
UNSHOWN = {"tensorflow": "a trace of its slots"}
FORWARD, BACKWARD = "forward", "backward"
Pass = Tuple[str, int, int]
"""Forward or backward, the stage, and the micro-batch counted from 0 in its pipeline run."""


def _passes(runs: Runs, name: Any, config: RunConfig) -> List[List[Tuple[int, int, Pass]]]:
    """For every replica and device iteration: tick, IPU and pass of each slot that went forward or backward."""
    trace = runs.train(name, config).trace
    if trace is None:
        pytest.skip(f"{notes.NOT_SHOWN}what it has executed")
    groups: Dict[Tuple[int, int], List[Any]] = {}
    for slot in trace:
        if str(slot.kind) in (FORWARD, BACKWARD):
            groups.setdefault((slot.replica, slot.iteration), []).append(slot)
    check.equal(
        actual=sorted(groups),
        expected=[(r, d) for r in range(config.replicas) for d in range(config.device_iterations)],
        what="the list of replicas and device iterations that were executed",
    )
    first = {key: min(slot.micro_batch for slot in group) for key, group in groups.items()}
    return [
        [(slot.tick, slot.ipu, (str(slot.kind), slot.stage, slot.micro_batch - first[key])) for slot in group]
        for key, group in groups.items()
    ]


def _specified(config: RunConfig) -> List[Pass]:
    """The oracle's order."""
    return list(slots(config.schedule, config.number_of_stages, config.gradient_accumulation, True))


def _of_micro_batch(order: Sequence[Pass], number: int) -> List[Tuple[str, int]]:
    return [(kind, stage) for kind, stage, micro_batch in order if micro_batch == number]


def _of_stage(order: Sequence[Pass], kind: str, stage: int) -> List[int]:
    return [micro_batch for way, where, micro_batch in order if (way, where) == (kind, stage)]


@each(PLANS, without=UNSHOWN)
def test_micro_batches_pass_the_stages_in_the_oracle_s_order(runs: Runs, name: Any, config: RunConfig) -> None:
    """A micro-batch goes through all stages and back, and every stage takes micro-batches in the order of the feed."""
    wanted = _specified(config)

    for group in _passes(runs, name, config):
        order = [each for _, _, each in group]
        for number in range(config.gradient_accumulation):
            check.equal(
                actual=_of_micro_batch(order, number),
                expected=_of_micro_batch(wanted, number),
                what=f"the way of micro-batch {number}",
            )
        for kind, stage in dict.fromkeys((kind, stage) for kind, stage, _ in wanted):
            check.equal(
                actual=_of_stage(order, kind, stage),
                expected=_of_stage(wanted, kind, stage),
                what=f"the order of micro-batches going {kind} through stage {stage}",
            )


def _cycle(config: RunConfig, each: Pass) -> int:
    """When a pass is, by a closed formula.

    A pipeline of PopART's has 2 S - 1 stages, since the last goes back as soon as it went forward, and a micro-batch
    enters in every cycle. Without a pipeline every pass has a cycle of its own.
    """
    kind, stage, micro_batch = each
    stages = config.number_of_stages
    place = stage if kind == FORWARD else 2 * (stages - 1) - stage
    if config.schedule != "sequential":
        return micro_batch + place
    return 2 * stages * micro_batch + (stage if kind == FORWARD else 2 * stages - 1 - stage)


@each(PLANS, without=UNSHOWN)
def test_every_pass_is_in_its_cycle(runs: Runs, name: Any, config: RunConfig) -> None:
    """Cycles follow one another as the closed formula of the schedule has it, and none is left out."""
    for group in _passes(runs, name, config):
        cycles = [_cycle(config, each) for _, _, each in sorted(group, key=lambda slot: slot[0])]
        check.equal(actual=cycles, expected=sorted(cycles), what="the cycles of the passes by tick")
        last = max(_cycle(config, each) for each in _specified(config))
        check.equal(actual=sorted(set(cycles)), expected=list(range(last + 1)), what="the list of cycles")


@each(PLANS, without=UNSHOWN)
def test_an_ipu_does_one_thing_at_a_time(runs: Runs, name: Any, config: RunConfig) -> None:
    """In one tick an IPU goes forward or backward with one micro-batch."""
    for group in _passes(runs, name, config):
        taken = [(tick, ipu) for tick, ipu, _ in group]
        check.equal(actual=len(set(taken)), expected=len(taken), what="the number of ticks of IPUs in use")
