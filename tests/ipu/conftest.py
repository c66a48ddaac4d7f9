"""What the cases of all frameworks share."""

from __future__ import annotations

from typing import Dict

import pytest

from ipu_conformance.targets import FRAMEWORKS

from .training.frame import Runs


@pytest.fixture(scope="session")
def runs_of_session() -> Dict[str, Runs]:
    """The runs by framework; they end with the session, so that a case under a fault runs again."""
    return {}


@pytest.fixture
def runs(request: pytest.FixtureRequest, runs_of_session: Dict[str, Runs]) -> Runs:
    """The runs of the suite's nets that the cases of a framework share; the folder names the framework."""
    framework = next(part for part in reversed(request.path.parts) if part in FRAMEWORKS)
    return runs_of_session.setdefault(framework, Runs(framework))
