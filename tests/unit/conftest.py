"""How Hypothesis draws (the same examples every time where CI is set), and the time of tests that are many in one."""

import os

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


KILLS = 1200
"""Seconds for a test that runs a whole table of cases once for each fault: many tests in one."""


def pytest_collection_modifyitems(items):
    """Give the tables of kills the time of many tests."""
    for item in items:
        if "_faults" in item.path.stem:
            item.add_marker(pytest.mark.timeout(KILLS))
