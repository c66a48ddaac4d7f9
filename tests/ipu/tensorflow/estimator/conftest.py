"""What the cases of estimators share."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pipelines import Programs
from .programs import Estimators


@pytest.fixture
def estimators(tmp_path: Path) -> Estimators:
    """Estimators in a folder of the case."""
    return Estimators(tmp_path / "models")


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    """Pipelined estimators in a folder of the case."""
    return Programs(tmp_path)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Estimators:
    """Estimators whose folders outlive a case: for runs at which several cases look."""
    return Estimators(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Pipelined estimators whose folders outlive a case."""
    return Programs(tmp_path_factory.mktemp("pipelines"))
