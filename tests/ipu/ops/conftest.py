"""The bench of a case: what runs the calls of its framework and type of number."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest

from ipu_conformance import frameworks
from ipu_conformance.asking import SELECTION
from ipu_conformance.ops import Row
from ipu_conformance.trials.bench import Bench

Place = Tuple[str, str, str]
"""A framework, a type of number and a family: the cases of one place share programs."""


@pytest.fixture(scope="session")
def asked(request: pytest.FixtureRequest) -> Dict[Place, List[Tuple[Row, str]]]:
    """What this run asks of each place, so that a program holds no call that no case looks at."""
    places: Dict[Place, List[Tuple[Row, str]]] = {}
    for item in request.session.items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if "bench" in params:
            row = params["row"]
            places.setdefault((*params["bench"], row.op.family), []).append((row, params["edge"]))
    return places


@pytest.fixture(scope="session")
def benches() -> Dict[Place, Bench]:
    """The benches so far; they end with the session, so that a case under a fault runs again."""
    return {}


def makes_every_call(request: pytest.FixtureRequest, framework: str) -> bool:
    """Whether the target is the emulator, which is asked for more than the framework's public sources take."""
    choice = request.config.stash[SELECTION].choice(framework)
    return choice is None or choice.kind == "emulator"


@pytest.fixture
def bench(
    request: pytest.FixtureRequest, asked: Dict[Place, List[Tuple[Row, str]]], benches: Dict[Place, Bench]
) -> Bench:
    """The bench of the case's framework, type of number and family."""
    framework, dtype = request.param
    place = (framework, dtype, request.getfixturevalue("row").op.family)
    if place not in benches:
        every = makes_every_call(request, framework)
        benches[place] = Bench(framework, frameworks.load(framework), dtype, asked[place], every=every)
    return benches[place]
