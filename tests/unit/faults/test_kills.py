"""Every fault has a case that kills it, and the published matrix of faults is current."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator

import pytest

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.targets import FRAMEWORKS

from . import killing

AREAS = [(front_end, area) for front_end in (killing.CORE, *killing.FRONT_ENDS) for area in killing.located(front_end)]


@pytest.fixture(scope="session")
def devices() -> Iterator[killing.Devices]:
    """Processes that run cases; none is left at the end."""
    processes = killing.Devices()
    yield processes
    processes.close()


@pytest.mark.parametrize(("front_end", "area"), AREAS, ids=map("-".join, AREAS))
def test_every_fault_is_killed_by_its_case(devices: killing.Devices, front_end: str, area: str) -> None:
    """The named case passes on the right device and fails under the fault."""
    if front_end != killing.CORE and not FRAMEWORKS[front_end].installed:
        pytest.skip(f"needs {FRAMEWORKS[front_end].module}")

    killing.assert_all_killed(devices.of(front_end), area)


@pytest.mark.parametrize("front_end", list(killing.FRONT_ENDS))
def test_every_fault_can_be_named_in_the_environment(devices: killing.Devices, front_end: str) -> None:
    """Importing a framework turns on the faults that the environment names, its front end's own among them."""
    if not FRAMEWORKS[front_end].installed:
        pytest.skip(f"needs {FRAMEWORKS[front_end].module}")

    assert devices.of(front_end).turned_on() == [fault.name for fault in killing.registered(front_end)]


def test_every_area_is_tried() -> None:
    """A run that does not take every fault takes some of each area, but for those whose cases kill again."""
    for front_end in killing.FRONT_ENDS:
        areas = set(killing.kills(front_end)) - set(killing.AGAIN)
        assert areas <= set(killing.located(front_end))
        assert all(killing.located(front_end).values())


@pytest.mark.parametrize("front_end", list(killing.FRONT_ENDS))
def test_every_fault_of_a_front_end_has_a_case(front_end: str) -> None:
    """Each fault of the core or of a front end has one case, or a reason to have none."""
    areas = [rows for area, rows in killing.kills(front_end).items() if area not in killing.AGAIN]
    settled = [fault for rows in (*areas, killing.spared(front_end)) for fault in rows]

    assert sorted(settled) == sorted(fault.name for fault in killing.registered(front_end))


def test_every_point_has_a_fault() -> None:
    """No hook point is without a fault that shows it is hooked."""
    for front_end in killing.FRONT_ENDS:
        catalogue.load(front_end)

    assert {fault.point for fault in catalogue.table() if ":" not in fault.point} == set(faults.POINTS)


def test_every_fault_of_the_execution_has_a_case_of_the_core() -> None:
    """A fault of the core's execution is noticed without a framework, too."""
    executed = {
        "plan.slots",
        "streams.split",
        "streams.join",
        "execute.boundary",
        "reduce.gradients",
        "core.engine:Engine._update",
    }

    expected = {fault.name for fault in killing.registered(killing.CORE) if fault.point in executed}
    assert set(killing.kills(killing.CORE)["execution"]) == expected


@pytest.mark.parametrize(
    ("page", "written"),
    [(killing.KILLS, killing.list_of_kills), (killing.REFUSALS, killing.list_of_refusals)],
    ids=["kills", "refusals"],
)
def test_the_published_lists_are_current(page: Path, written: Callable[[], str]) -> None:
    """The pages are what ``python -m tests.unit.faults.killing`` writes."""
    assert page.read_text(encoding="utf-8") == written()
