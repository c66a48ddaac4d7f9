"""Traces: recorded, compared with the plan in a sentence, and written for Perfetto."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from hypothesis import given

from ipu_conformance.emulator.core import trace as traces
from ipu_conformance.emulator.core.plan import Kind, Plan, plan
from ipu_conformance.emulator.core.topology import pipeline
from ipu_conformance.emulator.core.trace import Recorder, Trace, compare
from tests.unit.emulator.core import strategies
from tests.unit.examples import at_most

PLAN = plan(pipeline(3, 2), "popart", 5, recompute=True)


@given(strategies.plans())
@at_most(30)
def test_a_trace_of_the_plan_has_no_difference(planned: Plan) -> None:
    """Ideal execution is compared with the plan without a complaint, slot by slot."""
    trace = traces.from_plan(planned)

    assert compare(planned, trace) is None
    assert len(trace) == len(planned)
    assert [list(trace.slots(replica)) for replica in range(planned.replicas)] == [
        list(planned.slots(replica)) for replica in range(planned.replicas)
    ]


def swap(events: np.ndarray) -> np.ndarray:
    """Slots 4 and 5 of replica 1 the other way round."""
    at = len(PLAN.columns) + 4
    events[[at, at + 1]] = events[[at + 1, at]]
    return events


def change(name: str, value: int) -> Callable[[np.ndarray], np.ndarray]:
    """Slot 3 of replica 0 with another value in one column."""

    def changed(events: np.ndarray) -> np.ndarray:
        events[name][3] = value
        return events

    return changed


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (change("ipu", 2), f"slot 3: the plan has {PLAN.slot(3)}, but {PLAN.slot(3)._replace(ipu=2)} was executed."),
        (
            change("micro_batch", 4),
            f"slot 3: the plan has {PLAN.slot(3)}, but {PLAN.slot(3)._replace(micro_batch=4)} was executed.",
        ),
        (
            change("kind", Kind.UPDATE),
            f"slot 3: the plan has {PLAN.slot(3)}, but {PLAN.slot(3)._replace(kind=Kind.UPDATE)} was executed.",
        ),
        (swap, f"slot 4: the plan has {PLAN.slot(4, 1)}, but {PLAN.slot(5, 1)} was executed."),
        (
            lambda events: events[:-1],
            f"slot {len(PLAN.columns) - 1}: the plan has {PLAN.slot(-1, 1)}, but nothing more was executed.",
        ),
        (
            lambda events: np.append(events, events[-1]),
            f"slot {len(PLAN.columns)}: the plan has ended, but {PLAN.slot(-1, 1)} was executed.",
        ),
        (change("replica", 7), "replica 7 was executed, but the plan has 2 replicas."),
    ],
)
def test_the_first_difference_is_named(wrong: Any, expected: str) -> None:
    """The sentence has the slot of the plan and the slot that was executed instead."""
    events = wrong(traces.from_plan(PLAN).events)

    assert compare(PLAN, Trace(events)) == expected


def test_times_are_no_difference() -> None:
    """A slow device executes the same plan."""
    slow = traces.from_plan(PLAN, nanoseconds_per_tick=10**9)

    assert compare(PLAN, slow) is None


def test_perfetto_finds_a_process_a_replica_and_a_thread_an_ipu() -> None:
    """Every slot is a complete event with time and duration in microseconds, and the names are metadata."""
    written = traces.chrome(traces.from_plan(PLAN, nanoseconds_per_tick=2500))
    slots = [event for event in written["traceEvents"] if event["ph"] == "X"]
    names = {
        (event["name"], event["pid"], event.get("tid")): event["args"]["name"]
        for event in written["traceEvents"]
        if event["ph"] == "M" and event["name"].endswith("_name")
    }

    assert len(slots) == len(PLAN)
    assert {event["ph"] for event in written["traceEvents"]} == {"X", "M"}
    assert names == {
        **{("process_name", replica, 0): f"replica {replica}" for replica in range(2)},
        **{("thread_name", replica, ipu): f"IPU {ipu}" for replica in range(2) for ipu in range(3)},
    }
    for event, slot in zip(slots, [*PLAN.slots(0), *PLAN.slots(1)]):
        assert (event["pid"], event["tid"], event["cat"]) == (slot.replica, slot.ipu, str(slot.kind))
        assert (event["ts"], event["dur"]) == (slot.tick * 2.5, 2.5)
        assert event["args"] == {
            "tick": slot.tick,
            "stage": slot.stage,
            "micro_batch": slot.micro_batch,
            "iteration": slot.iteration,
        }
    assert slots[0]["name"] == "forward 0 micro-batch 0"
    assert slots[-1]["name"] == "update 2"


def test_events_of_one_ipu_do_not_overlap() -> None:
    """Perfetto nests events that overlap on a thread; a slot ends before the next starts."""
    slots = [event for event in traces.chrome(traces.from_plan(PLAN))["traceEvents"] if event["ph"] == "X"]

    for replica in range(2):
        for ipu in range(3):
            spans = sorted((e["ts"], e["dur"]) for e in slots if (e["pid"], e["tid"]) == (replica, ipu))
            assert all(start + duration <= after for (start, duration), (after, _) in zip(spans, spans[1:]))


def test_the_file_is_json_and_appears_whole(tmp_path: Path) -> None:
    """What is read back is what was made, and nothing else is left in the folder."""
    trace = traces.from_plan(PLAN)

    path = traces.write(trace, tmp_path / "trace.json")

    assert json.loads(path.read_text(encoding="utf-8")) == traces.chrome(trace)
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When writing breaks off, the file that was there stays and no partial file is left."""
    target = tmp_path / "trace.json"
    target.write_text("before", encoding="utf-8")

    def broken(*arguments: Any, **options: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(json, "dump", broken)
    with pytest.raises(OSError, match="disk full"):
        traces.write(traces.from_plan(PLAN), target)

    assert target.read_text(encoding="utf-8") == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]


def test_a_recorder_without_events_is_an_empty_trace() -> None:
    """Nothing executed is a trace of length 0, which differs from any plan in its first slot, and can be written."""
    trace = Recorder(2).trace()

    assert len(trace) == 0
    assert compare(PLAN, trace) == f"slot 0: the plan has {PLAN.slot(0)}, but nothing more was executed."
    assert traces.chrome(trace)["traceEvents"] == []
