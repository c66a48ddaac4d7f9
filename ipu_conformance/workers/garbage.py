"""Lets Python look for garbage among what cases leave, not among the cases nor in a framework that they import."""

from __future__ import annotations

import gc
import sys
from typing import Any, Generator

import pytest

THRESHOLD = (50_000, 20, 10)
"""When Python looks for garbage: a framework makes so many objects for a graph that the usual look takes a tenth of the
time of a run."""
MANY_MODULES = 500
"""Modules that come with a framework at least: they stay, and so do their functions and classes."""


class Garbage:
    """A plug-in of its own, in every process of a run."""

    def __init__(self) -> None:
        self._modules = 0
        """How many modules there were when Python was last told to leave alone what there was."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Collect without looking for garbage: thousands of cases come to stay, and later looks leave them out, too."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            if was_on:
                gc.enable()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Look for garbage once and leave alone what stays: pytest looks five times before it ends."""
        gc.collect()
        gc.freeze()

    def leave_modules_alone(self) -> None:
        """Look among what cases have left, not in a framework that they have imported."""
        if len(sys.modules) - self._modules >= MANY_MODULES:
            gc.collect()
            gc.freeze()
            self._modules = len(sys.modules)


GARBAGE = pytest.StashKey[Garbage]()
