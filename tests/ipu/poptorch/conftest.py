"""What the cases of PopTorch share."""

import importlib
from typing import Any

import pytest


@pytest.fixture
def poptorch() -> Any:
    """The vendor's package, or whatever the target puts in its place."""
    return importlib.import_module("poptorch")
