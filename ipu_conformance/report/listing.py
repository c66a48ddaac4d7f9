"""A plug-in for pytest that writes down every collected case, and whether it is bound.

A bound case makes sense on one kind of target only, or needs a tool that not every installation has: hypothesis, say. A
module that only some versions of a framework come with does not bind.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipu_conformance.cases import case_id

OF_FRAMEWORKS = ("torch", "poptorch", "tensorflow", "keras", "tf_keras", "paddle")
"""How the names of modules begin that a framework comes with."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare where the list goes."""
    parser.addoption("--ipu-listing", metavar="FILE", help="write the collected cases to FILE")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the list."""
    cases = {case_id(item): is_bound(item) for item in session.items}
    Path(session.config.getoption("ipu_listing")).write_text(json.dumps(cases), encoding="utf-8")


def is_bound(item: pytest.Item) -> bool:
    """Whether a case needs more than a target and the framework that it is written for."""
    if any(item.get_closest_marker(kind) for kind in ("emulator", "hardware")):
        return True
    needed = [str(marker.args[0]).partition(".")[0] for marker in item.iter_markers("requires")]
    return any(not module.startswith(OF_FRAMEWORKS) for module in needed)
