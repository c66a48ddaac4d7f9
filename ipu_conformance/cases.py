"""The conformance cases among the tests of a run: where they stand, what they need, which do not belong to it."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import pytest

from ipu_conformance import levels
from ipu_conformance.asking import selection_of
from ipu_conformance.selection import LEVELS, Selection
from ipu_conformance.suite_files import in_suite, suite_folder
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workers.scheduling import framework_of

CASE_TIME_LIMIT = 300
"""Seconds after which a case that hangs has failed, unless it carries a time limit of its own."""


ROOT = "ipu_root"
"""Where a worker finds the root of the run: an option that names a folder gives its own pytest another one."""


class SuiteModule(pytest.Module):
    """A file of the suite: a foreign pytest.ini does not say what its cases are called, nor what their ids begin with.

    Below another root, pytest's ids begin at the folder that the command line names, and would lack the framework.
    """

    @classmethod
    def of(cls, path: Path, parent: pytest.Collector) -> SuiteModule:
        """The module of a file; its id begins at the root of the run, or else at the suite."""
        root = Path(getattr(parent.config, "workerinput", {}).get(ROOT, parent.config.rootpath)).resolve()
        start = root if root in (suite_folder(), *suite_folder().parents) else suite_folder()
        module: SuiteModule = cls.from_parent(
            _below_suite_folder(parent), path=path, nodeid=path.resolve().relative_to(start).as_posix()
        )
        return module

    def funcnamefilter(self, name: str) -> bool:
        """Whether a function is a case by its name."""
        return name.startswith("test_")


def _below_suite_folder(parent: pytest.Collector) -> pytest.Collector:
    """A collector below that of the suite's folder, which owns the fixtures that all cases share.

    The name of a package inside the suite brings that of the folder along only where the folder has its name.
    """
    folder = getattr(pytest, "Dir", None)  # older versions of pytest find fixtures by the beginning of an id
    if folder is None or any(getattr(node, "path", None) == suite_folder() for node in parent.listchain()):
        return parent
    below: pytest.Collector = folder.from_parent(parent, path=suite_folder())
    return below


def mark(cases: Sequence[pytest.Item]) -> None:
    """Give the cases of a file of the suite the markers that follow from where they stand.

    What holds of all of them is a marker of the file.
    """
    file: pytest.Item | pytest.Collector = cases[0].getparent(pytest.Module) or cases[0]
    for marker in (pytest.mark.ipu, pytest.mark.timeout(CASE_TIME_LIMIT)):
        if file.get_closest_marker(marker.name) is None:
            file.add_marker(marker)
    for case in cases:
        framework = framework_of(case_id(case))
        if framework is not None and case.get_closest_marker(framework) is None:
            case.add_marker(framework)


def frameworks_of(item: pytest.Item) -> List[str]:
    """The frameworks that a case needs."""
    return [name for name in FRAMEWORKS if item.get_closest_marker(name) is not None]


def why_left_out(item: pytest.Item, selection: Selection) -> Optional[str]:
    """Why a case does not belong to this run, None if it does."""
    markers: Dict[str, List[pytest.Mark]] = {}
    for marker in item.iter_markers():
        markers.setdefault(marker.name, []).append(marker)
    if "ipu" not in markers:
        return None
    for name in selection.left_out:
        if name in markers:
            return f"need {name}"
    for marker in markers.get("unable", ()):
        if marker.args[0] in markers:
            return f"ask {marker.args[0]} for {marker.args[1]}"
    for kind in ("hardware", "emulator"):
        if kind in markers and kind not in kinds_of(item, selection):
            return f"need target kind {kind}"
    for marker in markers.get("requires", ()):
        if importlib.util.find_spec(marker.args[0]) is None:
            return f"need {marker.args[0]}"
    level = case_level(item)
    if not selection.has_level(level):
        return f"need level {level}"
    return None


def kinds_of(item: pytest.Item, selection: Selection) -> List[Optional[str]]:
    """The kinds of target that would run a case."""
    choices = [selection.choice(name) for name in frameworks_of(item)]
    return [choice.kind for choice in choices if choice] or list(selection.kinds)


def case_level(item: pytest.Item) -> str:
    """The least thorough level that has a case: the lists say it of the suite's own, a marker of others."""
    if in_suite(item.path):
        return levels.shipped().of(case_id(item))
    marker = item.get_closest_marker("level")
    level = str(marker.args[0]) if marker is not None else LEVELS[1]
    if level not in LEVELS:
        raise pytest.UsageError(f"{item.nodeid} asks for level {level!r}; choose one of {', '.join(LEVELS)}.")
    return level


def case_id(item: pytest.Item) -> str:
    """The stable name of a case of the suite: its path below the suite's folder, and its name."""
    return f"{_below_suite(item.path)}::{item.nodeid.partition('::')[2]}"


def command_of(nodeid: str, path: Path, config: pytest.Config) -> str:
    """The command line that runs a case of the suite alone; empty for a case of somebody else."""
    if not in_suite(path):
        return ""
    from ipu_conformance.check.failure import CaseReference

    name = nodeid.partition("::")[2]
    return CaseReference(f"{_below_suite(path)}::{name}", selection_of(config).wanted_target).command()


@functools.lru_cache(maxsize=None)
def _below_suite(path: Path) -> str:
    return path.resolve().relative_to(suite_folder()).as_posix()
