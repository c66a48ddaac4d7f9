"""Processes that have imported a framework, for commands that would import it one after the other."""

import pytest

from tests.unit.commands import Forks


def _forks(module):
    @pytest.fixture(scope="session")
    def forks():
        """Starts commands as forks of a process that has imported the framework."""
        processes = Forks(module)
        yield processes.run
        processes.close()

    return forks


after_torch, after_tensorflow, after_paddle = map(_forks, ("torch", "tensorflow", "paddle"))
