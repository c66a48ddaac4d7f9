"""Runs of pytest inside of tests start without plug-ins that have no part in what is tested."""

from __future__ import annotations

import pytest

LEAN = "-p no:hypothesispytest -p no:anyio"
"""Hypothesis alone takes as long to import as pytest and all its other plug-ins, in every worker once more."""


@pytest.fixture(autouse=True)
def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test starts in a process of its own."""
    monkeypatch.setenv("PYTEST_ADDOPTS", LEAN)


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """What a test starts with pytester, which forgets the variable."""
    monkeypatch.setenv("PYTEST_ADDOPTS", LEAN)
    return pytester
