"""The time of tests that run a whole area of kills, and their place among the others."""

from __future__ import annotations

import itertools
from typing import List

import pytest

from ipu_conformance.scheduling import CHUNK, framework_of

SECONDS = 1200
"""The time of a test that runs a whole area: many cases in one."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Give areas of kills their time, and put them among short tests, one to a chunk of work of a worker."""
    areas = [item for item in items if item.name.startswith("test_every_fault_is_killed_by_its_case[")]
    for item in areas:
        item.add_marker(pytest.mark.timeout(SECONDS))
    if hasattr(config, "workerinput"):
        others = [item for item in items if item not in areas]
        short = iter([item for item in others if framework_of(item.nodeid) is None])
        mixed = [item for area in areas for item in (area, *itertools.islice(short, CHUNK - 1))]
        placed = set(mixed)
        items[:] = [*mixed, *(item for item in others if item not in placed)]
