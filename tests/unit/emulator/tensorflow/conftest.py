"""TensorFlow for the tests of its front end."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from ipu_conformance.emulator import hook


@pytest.fixture(scope="session")
def tf() -> Any:
    """TensorFlow on the emulator, imported when a test first asks for it."""
    hook.install("tensorflow")
    return importlib.import_module("tensorflow")
