"""What the cases of all frameworks share."""

from __future__ import annotations

import pytest

from .training import Runs, runs_of


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> Runs:
    """The runs of the suite's nets that the cases of a framework share; the folder names the framework."""
    return runs_of(request.path.parent.name)
