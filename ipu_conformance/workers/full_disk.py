"""A case that fills the disk fails alone: what it wrote is removed, so that the cases after it have room.

Temporary files of a case stay until the end of the run. Those of one that wrote until nothing was left would take every
later case that writes with it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Generator, Optional

import pytest

LEAST = 2**20
"""Bytes that a disk has left which is not full."""
FAILED = pytest.StashKey[bool]()


class FullDisk:
    """A plug-in of its own, in every process that executes cases."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Note a case that failed on a full disk, and say so."""
        report = yield
        place = written_by(item)
        if report.failed and place is not None and is_full(place):
            item.stash[FAILED] = True
            report.sections.append(("full disk", f"{place} has no room left: what the case wrote there is removed"))
        return report

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Remove what a failed case wrote to a disk that is full."""
        place = written_by(item)
        try:
            return (yield)
        finally:
            if item.stash.get(FAILED, False) and place is not None:
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(exist_ok=True)


def written_by(item: pytest.Item) -> Optional[Path]:
    """The folder for the temporary files of a case; None if it has none."""
    place = (getattr(item, "funcargs", None) or {}).get("tmp_path")
    return place if isinstance(place, Path) else None


def is_full(place: Path) -> bool:
    """Whether the disk of a folder has no room left."""
    try:
        room = os.statvfs(place)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < LEAST
