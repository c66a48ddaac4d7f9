"""How Hypothesis draws, in one place, and which rooms are begun first."""

from __future__ import annotations

from typing import List

import pytest

from tests.unit import examples

examples.load_profile()

LONG = ("tests/unit/suite/test_wheel.py", "tests/unit/suite/", "tests/unit/emulate/", "tests/unit/workloads/")
"""Where tests start processes: what takes longest, and needs no framework in the worker."""


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Workers begin with long tests, so that at the end none waits for another; a file's tests stay together."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((n for n, path in enumerate(LONG) if item.nodeid.startswith(path)), len(LONG)))
