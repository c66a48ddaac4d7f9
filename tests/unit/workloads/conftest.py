"""Processes that have imported a framework, for commands that would import it one after the other."""

import os

import pytest

from ipu_conformance.data import places
from tests.unit.commands import Forks


@pytest.fixture(autouse=True)
def nothing_fetched(monkeypatch, tmp_path):
    """What the user has fetched does not choose the data of a test, unless the test names a cache."""
    stock = places.own_cache
    monkeypatch.delenv(places.CACHE_VARIABLE, raising=False)
    monkeypatch.setattr(
        places, "own_cache", lambda: stock() if places.CACHE_VARIABLE in os.environ else tmp_path / "nothing-fetched"
    )


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
