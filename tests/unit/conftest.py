"""How Hypothesis draws (at random on a developer's machine, the same examples where CI is set), and longer time limits."""

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
        if "_faults" in item.path.stem and "killed" in item.name:
            item.add_marker(pytest.mark.timeout(KILLS))
