"""The time and the order of tests that ask a process for what its cases notice."""

from __future__ import annotations

from typing import List

import pytest

from ipu_conformance.workers import scheduling

SECONDS = 1200
"""The time of a test that runs a whole area: many cases in one."""
KILLED = "test_every_fault_is_killed_by_its_case["
ASKING = (KILLED, "test_every_fault_can_be_named_in_the_environment[")
"""The tests that ask the process of a front end."""


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Give areas of kills their time; the tests that ask the same process follow each other."""
    places = [place for place, item in enumerate(items) if item.name.startswith(ASKING)]
    asking = sorted((items[place] for place in places), key=lambda item: scheduling.framework_of(item.nodeid) or "")
    for place, item in zip(places, asking):
        items[place] = item
        if item.name.startswith(KILLED):
            item.add_marker(pytest.mark.timeout(SECONDS))
