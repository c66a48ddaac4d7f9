"""Processes that have imported a framework, for commands that would import it one after the other."""

import pytest

from tests.unit.commands import Forks


def _forks(*modules):
    @pytest.fixture(scope="session")
    def forks():
        """Starts commands as forks of a process that has imported the framework."""
        processes = Forks(*modules)
        yield processes.run
        processes.close()

    return forks


after_torch, after_tensorflow = _forks("torch"), _forks("tensorflow")
# A PIL that comes after Paddle takes Paddle's zlib for its own, and crashes.
after_paddle = _forks("PIL.Image", "paddle")
