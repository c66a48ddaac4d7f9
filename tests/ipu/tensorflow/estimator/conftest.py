"""What the cases of estimators share."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from .pipelines import Programs
from .programs import Estimators


@pytest.fixture
def estimators(tf: Any, ipu: Any, tmp_path: Path) -> Estimators:
    """Estimators in a folder of the case."""
    return Estimators(tf, ipu, tmp_path / "models")


@pytest.fixture
def programs(tf: Any, ipu: Any, tmp_path: Path) -> Programs:
    """Pipelined estimators in a folder of the case."""
    return Programs(tf, ipu, tmp_path)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Estimators:
    """Estimators whose folders outlive a case: for runs at which several cases look."""
    tf, ipu = (importlib.import_module(name) for name in ("tensorflow", "tensorflow.python.ipu"))
    return Estimators(tf, ipu, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Pipelined estimators whose folders outlive a case."""
    tf, ipu = (importlib.import_module(name) for name in ("tensorflow", "tensorflow.python.ipu"))
    return Programs(tf, ipu, tmp_path_factory.mktemp("pipelines"))
