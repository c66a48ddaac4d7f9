"""TensorFlow for the tests of its front end."""

from __future__ import annotations

import importlib
from typing import Any, Iterator

import pytest

from ipu_conformance.emulator import hook
from ipu_conformance.emulator.tensorflow.config import system


@pytest.fixture(scope="session")
def tf() -> Any:
    """TensorFlow on the emulator, imported when a test first asks for it."""
    hook.install("tensorflow")
    return importlib.import_module("tensorflow")


@pytest.fixture(scope="module")
def tf_of_file(request: pytest.FixtureRequest, tf: Any) -> None:
    """Gives a file its ``tf``, for functions beside its tests: nothing imports TensorFlow when tests are collected."""
    request.module.tf = tf


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    """No configuration is in force, whatever ran before in this process, and none is left behind."""
    system.reset()
    yield
    system.reset()
