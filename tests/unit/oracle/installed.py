"""The frameworks that bear witness, imported when a test first needs them."""

from __future__ import annotations

import warnings
from functools import lru_cache
from importlib import import_module
from typing import Any

import pytest

from ipu_conformance.targets import FRAMEWORKS


@lru_cache(maxsize=None)
def _imported(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a framework's own import warns of is not ours to mend
        try:
            return import_module(name)
        except ImportError:
            return None


def framework_using(library: str) -> str:
    """What a test's id calls a library, for the worker that has it: torch is what PopTorch stands on."""
    return next((name for name, framework in FRAMEWORKS.items() if framework.module == library), library)


def installed(name: str) -> Any:
    """The framework ``name``; the test is skipped where it is not installed."""
    module = _imported(name)
    if module is None:
        pytest.skip(f"{name} is not installed")
    return module
