"""Checks, the oracle and drivers tell what a report shows; without a listener nothing is computed."""

from typing import Any, List, NamedTuple, Tuple

import numpy as np
import pytest

from ipu_conformance import check, frameworks, notes, targets
from ipu_conformance.check import CheckFailure
from ipu_conformance.ir import read
from ipu_conformance.oracle.convergence.band import band, judge
from tests.unit.ir import networks

Heard = List[Tuple[str, Any]]


@pytest.fixture
def heard():
    """What is told during a test."""
    notebook: Heard = []
    with notes.heard_by(lambda kind, facts: notebook.append((kind, facts))):
        yield notebook


class Limits:
    """A tolerance of some numbers."""

    def __init__(self, *allowed):
        self.allowed = np.array(allowed)

    def explain(self):
        return "by hand"


def test_without_a_listener_nothing_is_told():
    """And a listener hears nothing after its block."""
    notebook: Heard = []
    with notes.heard_by(lambda kind, facts: notebook.append((kind, facts))):
        assert notes.wanted()
    notes.tell("margin", {})

    assert not notes.wanted()
    assert notebook == []


def test_a_comparison_tells_the_largest_share_of_its_tolerance(heard):
    """Whether it passes or fails; where nothing is allowed there is no share."""
    want, near, far = np.array([1.0, 2.0, 3.0]), np.array([1.125, 2.5, 3.0]), np.array([2.5, 2.5, 3.0])
    check.close(actual=near, expected=want, tolerance=Limits(0.5, 1.0, 0.0), what="the loss")
    with pytest.raises(CheckFailure):
        check.close(actual=far, expected=want, tolerance=Limits(0.5, 1.0, 0.0), what="the weight")
    check.close(actual=want, expected=want, tolerance=Limits(0.0, 0.0, 0.0), what="nothing")

    assert heard == [
        ("margin", {"what": "the loss", "used": 0.5}),
        ("margin", {"what": "the weight", "used": 3.0}),
    ]


@pytest.mark.parametrize(("last", "told"), [(3.0, [1.0, 2.0, 3.0]), (float("nan"), [1.0, 2.0])])
def test_a_judged_curve_is_told_with_its_band(heard, last, told):
    """As far as it is finite."""
    seeds = [[1.0 + 0.01 * number, 2.0 - 0.01 * number, 3.0 + 0.02 * number] for number in range(-10, 11)]
    reference = band(seeds)
    verdict = judge(reference, [[1.0, 2.0, last]], metric="the loss")

    ((kind, facts),) = heard
    assert kind == "curve"
    assert (facts["metric"], facts["passed"], facts["values"]) == ("the loss", verdict.passed, told)
    assert facts["high"] == [row.high for row in reference.epochs]
    assert facts["low"] == [row.low for row in reference.epochs]


@pytest.mark.parametrize(
    "use", [lambda graph: check.ir_equal(actual=graph, expected=graph), frameworks.keep_ir], ids=["compared", "kept"]
)
def test_a_graph_is_told_as_it_was(heard, use):
    """Its text is the graph again."""
    graph = networks.convnet()
    use(graph)

    ((kind, text),) = heard
    assert kind == "ir"
    assert read(text.encode()) == graph


class Slot(NamedTuple):
    """What an inspector shows of a slot."""

    tick: int
    replica: int
    ipu: int
    stage: int
    micro_batch: int
    kind: str


class Door:
    """An inspector of a program on several IPUs."""

    def __init__(self, ipus):
        self.ipus = ipus

    def trace(self, program, replicas):
        return tuple(Slot(ipu, replica, ipu, ipu, 0, "forward") for ipu in range(self.ipus) for replica in range(3))


class MemoryDoor(Door):
    """One that shows memory, too."""

    def memory(self, program):
        return ({"ipu": 0, "peak": 17},)


@pytest.mark.parametrize(("door", "memory"), [(Door(2), None), (MemoryDoor(2), [{"ipu": 0, "peak": 17}])])
def test_the_timeline_of_a_pipeline_is_told_for_one_replica(heard, monkeypatch, door, memory):
    """With the memory of its IPUs, where the target shows it."""
    monkeypatch.setattr(targets, "inspector", lambda framework: door)
    frameworks.trace("paddle", None, 3)

    slots = [[0, 0, 0, 0, 0, "forward"], [1, 0, 1, 1, 0, "forward"]]
    assert heard == [("timeline", {"framework": "paddle", "slots": slots, "memory": memory})]


@pytest.mark.parametrize(("workload", "told"), [("", []), ("paddle-mnist", [[[0, 0, 0, 0, 0, "forward"]]])])
def test_one_ipu_has_a_timeline_in_a_workload_only(heard, monkeypatch, workload, told):
    """In a case of a small net there is nothing to see."""
    monkeypatch.setattr(targets, "inspector", lambda framework: Door(1))

    assert len(frameworks.trace("paddle", None, 3, workload) or ()) == 3
    assert [facts["slots"] for _, facts in heard] == told
    assert {facts["workload"] for _, facts in heard} == {workload} - {""}
