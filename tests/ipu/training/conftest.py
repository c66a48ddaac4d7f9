"""What the cases of training share: the runs of a framework, and configurations in its dialect."""

from __future__ import annotations

from typing import Dict

import pytest

from ipu_conformance.frameworks import Driver, dialects
from ipu_conformance.run import RunConfig

from .frame import Runs, net_of


@pytest.fixture
def runs(framework: Driver, request: pytest.FixtureRequest, runs_of_session: Dict[str, Runs]) -> Runs:
    """The runs of one framework; the cases of all files share them."""
    name = request.node.callspec.params["framework"]
    return runs_of_session.setdefault(name, Runs(name))


@pytest.fixture
def config(request: pytest.FixtureRequest, runs: Runs) -> RunConfig:
    """A row's configuration as the framework says it.

    The table has left out what the framework has no words for; what the installed version lacks besides is a skip.
    """
    spoken = dialects.spoken(runs.framework, request.param)
    reason = runs.driver.supports(net_of(request.node.callspec.params["name"]), spoken)
    if reason is not None:
        pytest.skip(reason)
    return spoken
