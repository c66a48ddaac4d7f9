"""A plug-in for pytest that writes down every collected case, and whether it is bound.

A bound case makes sense on one kind of target only, or needs a module that not every installation has.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipu_conformance.plugin import case_id


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare where the list goes."""
    parser.addoption("--ipu-listing", metavar="FILE", help="write the collected cases to FILE")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the list."""
    kinds = ("emulator", "hardware", "requires")
    cases = {case_id(item): any(item.get_closest_marker(kind) for kind in kinds) for item in session.items}
    Path(session.config.getoption("ipu_listing")).write_text(json.dumps(cases), encoding="utf-8")
