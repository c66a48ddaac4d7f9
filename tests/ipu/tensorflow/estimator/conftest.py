"""What the cases of estimators share."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from .pipelines import Programs, Trainings
from .programs import Estimators


@pytest.fixture
def estimators(tf: Any, ipu: Any, tmp_path: Path) -> Estimators:
    """Estimators in a folder of the case."""
    return Estimators(tf, ipu, tmp_path / "models")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Estimators:
    """Estimators whose folders outlive a case: for trainings at which several cases look."""
    tf = importlib.import_module("tensorflow")
    ipu = importlib.import_module("tensorflow.python.ipu")
    return Estimators(tf, ipu, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    """The runs that the cases share."""
    return Trainings(tmp_path_factory.mktemp("pipelines"))


@pytest.fixture
def programs(tf: Any, ipu: Any, tmp_path: Path) -> Programs:
    """Estimators with folders of this case."""
    return Programs(tf, ipu, tmp_path)
