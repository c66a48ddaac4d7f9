"""The time of tests that run a whole area of kills, and their place among the others."""

from __future__ import annotations

import itertools
from typing import Dict, List, Optional

import pytest

from ipu_conformance.scheduling import CHUNK, framework_of

from . import killing

SECONDS = 1200
"""The time of a test that runs a whole area: many cases in one."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Give areas of kills their time, and put them first, one to a chunk of work of a worker, the largest area first.

    A chunk is filled up with short tests of the same framework: a worker keeps to a framework, and so to the process
    that runs the cases of one front end.
    """
    areas = [item for item in items if item.name.startswith("test_every_fault_is_killed_by_its_case[")]
    for item in areas:
        item.add_marker(pytest.mark.timeout(SECONDS))
    if hasattr(config, "workerinput"):
        waiting = set(map(id, areas))
        short: Dict[Optional[str], List[pytest.Item]] = {}
        for item in items:
            if id(item) not in waiting:
                short.setdefault(framework_of(item.nodeid), []).append(item)
        fillers = {framework: reversed(tests) for framework, tests in short.items()}  # the last are the shortest
        mixed: List[pytest.Item] = []
        for area in sorted(areas, key=_kills, reverse=True):
            filler = fillers.get(framework_of(area.nodeid), iter(()))
            mixed += [area, *itertools.islice(filler, CHUNK - 1)]
        placed = set(map(id, mixed))
        items[:] = [*mixed, *(item for item in items if id(item) not in placed)]


def _kills(area: pytest.Item) -> int:
    parameters = area.callspec.params  # type: ignore[attr-defined]
    return len(killing.kills(parameters["front_end"])[parameters["area"]])
