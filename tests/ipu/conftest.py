"""What the cases of all frameworks share."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check, plugin
from ipu_conformance.oracle.convergence.band import Verdict
from ipu_conformance.targets import FRAMEWORKS

from .training.frame import Runs

framework, inspector = plugin.framework, plugin.inspector  # here they precede those of a foreign conftest.py


@pytest.fixture(scope="session")
def runs_of_session() -> Dict[str, Runs]:
    """The runs by framework; they end with the session, so that a case under a fault runs again."""
    return {}


@pytest.fixture
def runs(request: pytest.FixtureRequest, runs_of_session: Dict[str, Runs]) -> Runs:
    """The runs of the suite's nets that the cases of a framework share; the folder names the framework."""
    framework = next(part for part in reversed(request.path.parts) if part in FRAMEWORKS)
    return runs_of_session.setdefault(framework, Runs(framework))


@pytest.fixture(scope="session")
def workload_runs() -> Dict[str, Callable[[Any], Any]]:
    """The runs of workloads on the device, by file."""
    return {}


@pytest.fixture
def trained(request: pytest.FixtureRequest, workload_runs: Dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """What the ``train`` of a file leaves for some settings, one run for all its cases that only look at it."""
    cached = functools.lru_cache(maxsize=None)(request.module.train)
    return workload_runs.setdefault(request.module.__name__, cached)


@pytest.fixture
def converges(request: pytest.FixtureRequest) -> Callable[[Verdict], None]:
    """Fails a case whose runs leave the band of their baseline; reports have the verdict of those that stay, too.

    The sentence states the false-alarm rate and the smallest shift that is detected.
    """

    def within_band(verdict: Verdict) -> None:
        __tracebackhide__ = True
        request.node.user_properties.append(("convergence", verdict.sentence))
        check.holds(verdict.passed, verdict.sentence)

    return within_band
