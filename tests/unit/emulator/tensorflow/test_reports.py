"""Profiles hold the estimates of the core, timelines the slots of the plan, and pages stand alone."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest
from hypothesis import given

from ipu_conformance.emulator.core import cost, memory
from ipu_conformance.emulator.core.plan import Kind, Plan, plan
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.core.trace import Trace, compare
from ipu_conformance.emulator.tensorflow.reports import folders
from ipu_conformance.emulator.tensorflow.reports import page as report_page
from ipu_conformance.emulator.tensorflow.reports import profile as report_profile
from ipu_conformance.ir.graph import Graph
from ipu_conformance.ir.tensor import IRError
from tests.unit.examples import at_most

from ..core.graphs import Case, cases, chain

FEW = at_most(25)
PIPELINE = plan((0, 1), "grouped", 4)


def profile_of(planned: Plan, graph: Graph, optimizer: str = "adam") -> Any:
    """The profile as it is read from its file."""
    return json.loads(json.dumps(report_profile.profile("program", planned, lambda: graph, optimizer)))


@FEW
@given(cases())
def test_memory_is_the_cores_estimate(case: Case) -> None:
    """Every IPU has the parts that the core estimates; together they are its peak."""
    graph = case.graph(batch=2)
    expected = memory.estimate(case.plan, graph, optimizer="adam")
    found = profile_of(case.plan, graph)["memory"]

    assert found["peak"] == expected.peak
    assert found["fits"] is (expected.peak <= case.plan.topology.device.memory)
    for own, ipu in zip(found["ipus"], expected.ipus):
        parts = {part: getattr(ipu, part) for part in (*memory.PERSISTENT, *memory.VARYING)}
        assert {part: own[part] for part in parts} == parts
        assert own["peak"] == sum(parts.values()) == max([ipu.persistent, *own["over_time"]["nbytes"]])


@FEW
@given(cases())
def test_cost_is_the_cores_estimate(case: Case) -> None:
    """Cycles, time and use of the IPUs are those that the core estimates."""
    graph = case.graph()
    expected = cost.estimate(case.plan, graph, optimizer="sgd")
    found = profile_of(case.plan, graph, "sgd")["cost"]

    assert found["cycles"] == expected.cycles
    assert found["utilisation"] == list(expected.utilisation)
    assert found["cycles_by_kind"] == dict(expected.by_kind)


@FEW
@given(cases())
def test_the_timeline_is_the_plan(case: Case) -> None:
    """The timeline holds every slot of the plan, in its order, and no tick begins before the one before has ended."""
    timeline = report_profile.timeline(case.plan, profile_of(case.plan, case.graph()))
    first = timeline.replica(0)
    ends = np.zeros(case.plan.ticks, np.int64)
    np.maximum.at(ends, first["tick"], first["start"] + first["duration"])

    assert compare(case.plan, timeline) is None
    assert (first["duration"] > 0).all()
    assert all(event["start"] >= ends[event["tick"] - 1] for event in first if event["tick"])


def test_slots_of_a_kind_last_alike() -> None:
    """A slot lasts its share of the cycles of its kind."""
    profile = profile_of(PIPELINE, chain([64, 64, 64]))
    timeline = report_profile.timeline(PIPELINE, profile)
    for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.UPDATE):
        durations = timeline.events["duration"][timeline.events["kind"] == kind]
        cycles = profile["cost"]["cycles_by_kind"][str(kind)] / len(durations)

        assert set(durations.tolist()) == {round(cycles / PIPELINE.topology.device.clock_hz * 1e9)}


def test_a_program_is_described() -> None:
    """The profile counts slots by kind, and says where stages are and what trains them."""
    program = profile_of(PIPELINE, chain([8, 8, 8]))["program"]

    assert program["placement"] == [0, 1]
    assert program["slots"] == {"forward": 8, "recompute": 0, "backward": 8, "reduce": 0, "update": 2}
    assert (program["schedule"], program["optimizer"], program["training"]) == ("grouped", "adam", True)


def failing() -> Graph:
    """A graph that cannot be read."""
    raise IRError("the op Spin is not known")


@pytest.mark.parametrize(("graph", "why"), [(None, "not kept"), (failing, "Spin")], ids=["none", "unreadable"])
def test_what_is_not_estimated_has_a_reason(graph: Any, why: str) -> None:
    """Without a graph the estimates are left out, the reason stands in their place, and ticks are equally long."""
    profile = report_profile.profile("program", PIPELINE, graph, "sgd")
    timeline = report_profile.timeline(PIPELINE, profile)
    page = report_page.page(profile, timeline)

    assert all(why in profile[part]["not_estimated"] for part in ("memory", "cost", "ops"))
    assert set(timeline.events["duration"].tolist()) == {report_profile.EQUAL_TICK}
    assert "Not estimated" in page
    assert why in page


class Page(HTMLParser):
    """Collects what a page shows, and which tags are left open."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.text: List[str] = []
        self.open: List[str] = []
        self.fetched: List[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("name", ["train", "<script>alert(1)</script>", "a & b"])
def test_a_page_is_well_formed_and_stands_alone(name: str) -> None:
    """Every tag is closed, names are text, nothing is fetched, and every IPU and the largest tensors are shown."""
    profile = report_profile.profile(name, PIPELINE, lambda: chain([8, 16, 8]), "adam")
    page = Page()
    page.feed(report_page.page(profile, report_profile.timeline(PIPELINE, profile)))

    assert page.open == []
    assert page.fetched == []
    assert page.text.count(name) == 3  # the title, the heading, and the table of the program
    assert {"IPU 0", "IPU 1"} <= set(page.text)
    assert any("w0" in text for text in page.text)


def test_a_long_timeline_is_cut() -> None:
    """A page draws a part of a long timeline, and says so."""
    planned = plan(Topology((0,), 2), "sequential", 1500)
    profile = report_profile.profile("long", planned, None, "sgd")
    page = report_page.page(profile, report_profile.timeline(planned, profile))

    # Both replicas are drawn, and their slots have room.
    assert f"The first {2 * report_page.MOST_SLOTS} of " in page
    assert page.count("<rect") == 2 * report_page.MOST_SLOTS


def test_nothing_executed_is_shown_as_nothing() -> None:
    """A timeline without slots is no error."""
    profile = report_profile.profile("program", PIPELINE, None, "sgd")
    page = report_page.page(profile, Trace(report_profile.timeline(PIPELINE, profile).events[:0]))

    assert "Nothing is executed" in page


def test_folders_are_new_and_sort_by_time(tmp_path: Path) -> None:
    """Folders that are made in a hurry have names of their own, in the order of their making."""
    made = [folders._new_folder(tmp_path / "deep" / "down") for _ in range(50)]

    assert len(set(made)) == 50
    assert sorted(made) == made


def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable no graph is read and no folder is made."""
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)
    monkeypatch.chdir(tmp_path)

    assert folders.write(folders.Program("program", PIPELINE, failing)) is None
    assert list(tmp_path.iterdir()) == []


def test_a_report_holds_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of a pipeline holds its profile, its trace and its page."""
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    folder = folders.write(folders.Program("train", PIPELINE, lambda: chain([8, 8, 8]), "momentum"))

    assert folder is not None
    profile = json.loads((folder / folders.PROFILE).read_text())
    trace = json.loads((folder / folders.TRACE).read_text())
    assert profile["memory"]["state_of"] == "momentum"
    assert profile["versions"]["tensorflow"]
    assert profile["environment"]["POPLAR_ENGINE_OPTIONS"] == json.dumps(options)
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == sum(profile["program"]["slots"].values())
    assert (folder / folders.PAGE).read_text().startswith("<!doctype html>")
