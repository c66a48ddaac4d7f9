"""The pytest plug-in: options, markers, targets, and a run that cannot pass without having run anything."""

from __future__ import annotations

import fnmatch
import gc
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Generator, List, Optional

import pytest

from ipu_conformance import cases, notes, targets
from ipu_conformance.asking import (
    SELECTION,
    asked_paths,
    asks_for_cases,
    frameworks_asked,
    matches_cases_only,
    require_readable_expressions,
    selection_of,
)
from ipu_conformance.cases import case_id, frameworks_of
from ipu_conformance.errors import ConformanceError
from ipu_conformance.selection import OPTIONS, Selection
from ipu_conformance.suite_files import in_suite, suite_folder
from ipu_conformance.tally import TALLY, Tally
from ipu_conformance.targets import FAULT, FRAMEWORKS, Inspector, activate, active, devices_of, discover
from ipu_conformance.triangulation import Triangulation
from ipu_conformance.workers import ending, full_disk, garbage, guard, hooks, stacks
from ipu_conformance.workers.garbage import GARBAGE
from ipu_conformance.workers.packing import Packing
from ipu_conformance.workers.watch import WATCH, Watch, opened

if TYPE_CHECKING:
    from ipu_conformance.frameworks import Driver

MARKERS = (
    "ipu: a conformance case; everything in the suite is one",
    "hardware: the case makes sense on real IPUs only",
    "emulator: the case makes sense on the emulator only",
    *(f"{name}: the case runs on {name}" for name in FRAMEWORKS),
    "ipus(n): the case needs n IPUs",
    "requires(module): the case needs a module that only some versions of its framework come with",
    "unable(framework, what): the framework's API has no words for what the case asks for",
    "level(name): the least thorough level that a case runs at which is not one of the suite's own",
)
PREFLIGHT = pytest.StashKey[List[str]]()
"""What the targets have answered before the cases."""
CASE_FILES = "test_*_ipu.py"
"""The names of the suite's files."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the suite."""
    group = parser.getgroup("ipu", "IPU conformance")
    for name, option in OPTIONS.items():
        group.addoption(
            option.flag,
            dest=f"ipu_{name}",
            default=None,
            metavar=name.upper(),
            help=f"{option.help} (default {option.default}; also {option.variable})",
        )
    group.addoption("--ipu-report", metavar="DIR", help="leave a report in DIR: journal, verdict, JUnit, HTML")
    group.addoption("--ipu-resume", action="store_true", help="go on with the report in DIR: run just the rest")
    group.addoption("--ipu-shard", metavar="I/N", help="run part I of N, for `ipu-conformance report merge`")
    group.addoption("--ipu-no-preflight", action="store_true", help="run cases without asking the target first")
    group.addoption("--ipu-waivers", metavar="FILE", help="failures that somebody answers for, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and decide what runs where; a worker learns it from the process that started it."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    handed_down = getattr(config, "workerinput", {}).get("ipu_selection")
    if handed_down is not None:
        config.stash[SELECTION] = Selection.from_dict(handed_down)
    elif asks_for_cases(config):
        selection_of(config)
    if SELECTION in config.stash:
        ending.install(config)
    if SELECTION in config.stash:
        config.addinivalue_line("python_files", CASE_FILES)
    config.stash[TALLY] = Tally(config, lambda: selection_of(config))
    config.pluginmanager.register(config.stash[TALLY], "ipu_conformance_tally")
    config.stash[GARBAGE] = garbage.Garbage()
    config.pluginmanager.register(config.stash[GARBAGE], "ipu_conformance_garbage")
    config.pluginmanager.register(full_disk.FullDisk(), "ipu_conformance_full_disk")
    config.pluginmanager.register(Triangulation(), "ipu_conformance_triangulation")
    if config.pluginmanager.has_plugin("xdist"):
        config.pluginmanager.register(hooks.XdistHooks(), "ipu_conformance_xdist")
        if hasattr(config, "workerinput") or config.getoption("tx", None):
            config.pluginmanager.register(Packing(), "ipu_conformance_packing")
        hooks.limit(config)
    if hasattr(config, "workerinput"):
        noted = Path(config.workerinput["ipu_stacks"])
        config.pluginmanager.register(Watch(opened(noted), opened(hooks.devices_beside(noted))), WATCH)
    elif not config.getoption("tx", None) and guard.is_possible():
        config.pluginmanager.register(guard.Guard(), "ipu_conformance_guard")
    if SELECTION in config.stash:
        require_readable_expressions(config)
        _ask(config)
        _lease(config)
    _record(config)


def _ask(config: pytest.Config) -> None:
    """Let each target answer before the suite's cases; the emulator answers always."""
    config.stash[PREFLIGHT] = []
    if any(map(config.getoption, ("collectonly", "ipu_no_preflight"))) or hasattr(config, "workerinput"):
        return
    selection = config.stash[SELECTION]
    chosen = {name: selection.choice(name) for name in frameworks_asked(config)}
    asked = [name for name, choice in chosen.items() if choice is not None and choice.target != "emulator"]
    if asked:
        from ipu_conformance.report.preflight import examine

        try:
            examine(selection, config.stash[PREFLIGHT].append, asked)
        except ConformanceError as error:
            raise pytest.UsageError(str(error)) from error


def _lease(config: pytest.Config) -> None:
    """Let cases lease devices where a target names them; the emulator's cases do not get into each other's way."""
    selection = config.stash[SELECTION]
    chosen = {name: selection.choice(name) for name in selection.frameworks}
    if {choice.target for choice in chosen.values() if choice} <= {"emulator", None}:
        return
    targets = discover()
    leased = {name: targets[choice.target] for name, choice in chosen.items() if choice and choice.target}
    try:
        leased = {name: target for name, target in leased.items() if devices_of(target)}
    except ConformanceError as error:
        raise pytest.UsageError(str(error)) from error
    if leased:
        from ipu_conformance.workers.leasing import Leasing

        repeat = bool(config.getoption("ipu_report"))
        try:
            leasing = Leasing(config, leased, repeat=repeat)
        except ConformanceError as error:
            raise pytest.UsageError(str(error)) from error
        config.pluginmanager.register(leasing, "ipu_conformance_leasing")


def _record(config: pytest.Config) -> None:
    """Begin a report where one is wanted; nothing of it is imported otherwise."""
    if config.getoption("collectonly"):
        return
    if config.getoption("ipu_report"):
        from ipu_conformance.report import recording

        try:
            recording.register(config)
        except ConformanceError as error:
            raise pytest.UsageError(str(error)) from error
    elif config.getoption("ipu_resume") or config.getoption("ipu_shard") or config.getoption("ipu_waivers"):
        raise pytest.UsageError("--ipu-resume, --ipu-shard and --ipu-waivers need a report: add --ipu-report DIR.")


def pytest_report_header(config: pytest.Config) -> List[str]:
    """Say once, for each framework, what executes it and why, or why it is left out."""
    selection = config.stash.get(SELECTION, None)
    if selection is None:
        return []
    lines = [f"ipu level: {selection.level}"]
    for choice in selection.choices:
        if choice.framework not in selection.left_out:
            lines.append(f"ipu {choice.framework}: {choice.target} ({choice.reason})")
        else:
            why = choice.reason if choice.target is None else "not asked for"
            lines.append(f"ipu {choice.framework}: left out ({why})")
    lines += [f"ipu {line}" for line in config.stash.get(PREFLIGHT, [])]
    if os.environ.get(FAULT):
        lines.append(f"ipu fault: {os.environ[FAULT]} is on, the device is wrong on purpose ({FAULT})")
    asked, started = config.stash.get(hooks.WORKERS, (0, 0))
    if started < asked:
        lines.append(f"ipu workers: {started} of {asked}, one a core (the emulator only computes)")
    return lines


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A case that takes ``framework`` runs once for each framework of the run."""
    if "framework" in metafunc.fixturenames:
        names = selection_of(metafunc.config).frameworks
        metafunc.parametrize("framework", names, indirect=True, ids=list(names))


@pytest.fixture
def framework(request: pytest.FixtureRequest) -> Driver:
    """The driver of one framework: builds a net from NumPy weights and trains it for a RunConfig."""
    from ipu_conformance import frameworks

    return frameworks.load(request.param)


@pytest.fixture
def inspector(request: pytest.FixtureRequest) -> Inspector:
    """The door to what the vendor's API does not show; a case that needs it is skipped on a target that has none."""
    (name,) = frameworks_of(request.node)
    door = targets.inspector(name)
    if door is None:
        pytest.skip(f"{notes.NOT_SHOWN}more than the API of {name} does")
    return door


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Optional[bool]:
    """A run opens no folder that it is not about, unless the command line names it.

    Conformance cases alone are not about the project's own tests, which import every framework, and no run is about
    the folder of a framework that is left out. A foreign norecursedirs does not leave out a folder of the suite.
    """
    own_tests, suite = suite_folder().parent / "unit", suite_folder()
    if collection_path == own_tests:
        left_out = matches_cases_only(config.getoption("markexpr") or "")
    else:
        left_out = collection_path.parent == suite and collection_path.name in selection_of(config).left_out
    if left_out and not any(collection_path in (path, *path.parents) for path in asked_paths(config)):
        return True
    norecursedirs = config.getini("norecursedirs")
    if in_suite(collection_path) and any(fnmatch.fnmatch(collection_path.name, each) for each in norecursedirs):
        return False
    return None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> Optional[pytest.Module]:
    """A file of the suite has the ids and the cases that it has anywhere."""
    return cases.SuiteModule.of(module_path, parent) if in_suite(module_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Mark the suite's cases, then leave out those that this run is not about."""
    kept, left_out = [], []
    counts: Dict[str, int] = {}
    for path, group in itertools.groupby(items, key=lambda item: item.path):
        of_file = list(group)
        if in_suite(path):
            cases.mark(of_file)
        for item in of_file:
            why = cases.why_left_out(item, selection_of(config)) if item.get_closest_marker("ipu") is not None else None
            if why is None:
                kept.append(item)
            else:
                left_out.append(item)
                counts[why] = counts.get(why, 0) + 1
    config.stash[TALLY].left_out, config.stash[TALLY].own = counts, left_out
    if any(in_suite(item.path) for item in kept):
        gc.set_threshold(*garbage.THRESHOLD)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """While a case of the suite runs, failures of checks know the command that runs it alone."""
    if not in_suite(item.path):
        return (yield)
    from ipu_conformance.check.failure import CaseReference, current_case

    token = current_case.set(CaseReference(case_id(item), selection_of(item.config).wanted_target))
    try:
        return (yield)
    finally:
        current_case.reset(token)
        item.config.stash[GARBAGE].leave_modules_alone()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Every failed case says how to run it alone; a failed check has said it already."""
    report = yield
    if report.failed and in_suite(item.path) and "reproduce: " not in report.longreprtext:
        report.sections.append(("reproduce", cases.command_of(item.nodeid, item.path, item.config)))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Point the frameworks of a case at their targets; skip a case that needs more IPUs than there are."""
    if item.get_closest_marker("ipu") is None:
        return
    selection = selection_of(item.config)
    names = frameworks_of(item)
    needed = item.get_closest_marker("ipus")
    offered = min((selection.ipus(name) for name in names), default=selection.ipus(None))
    if needed is not None and needed.args[0] > offered:
        pytest.skip(f"needs {needed.args[0]} IPUs, the target offers {offered}")
    for name in names:
        choice = selection.choice(name)
        if choice is not None and choice.target is not None and active(name) is None:
            activate(discover()[choice.target], FRAMEWORKS[name])
    if set(selection.kinds) == {"emulator"}:
        stacks.share()
