"""The time of tests that run a whole area of kills."""

from __future__ import annotations

from typing import List

import pytest

SECONDS = 1200
"""The time of a test that runs a whole area: many cases in one."""


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Give areas of kills their time."""
    for item in items:
        if item.name.startswith("test_every_fault_is_killed_by_its_case["):
            item.add_marker(pytest.mark.timeout(SECONDS))
