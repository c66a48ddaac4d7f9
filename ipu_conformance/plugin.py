"""The pytest plug-in: options, markers, targets, and a run that cannot pass without having run anything."""

from __future__ import annotations

import functools
import gc
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Generator, List, Optional, Sequence, Tuple, Type

import pytest

from ipu_conformance import ending, guard, levels, targets
from ipu_conformance.errors import ConformanceError
from ipu_conformance.packing import Packing
from ipu_conformance.scheduling import framework_of, threads
from ipu_conformance.selection import LEVELS, OPTIONS, Selection, select
from ipu_conformance.tally import Tally
from ipu_conformance.targets import FRAMEWORKS, Inspector, activate, active, discover
from ipu_conformance.triangulation import Triangulation
from ipu_conformance.watch import LossReport, Watch, loss, opened

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
CASE_TIME_LIMIT = 300
"""Seconds after which a case that hangs has failed, unless it carries a time limit of its own."""

FAULT = "IPU_CONFORMANCE_FAULT"
GARBAGE = (50_000, 20, 10)
"""When Python looks for garbage: a framework makes so many objects for a graph that the usual look takes a tenth of the
time of a run."""
MANY_MODULES = 500
"""Modules that come with a framework at least: they stay, and so do their functions and classes."""

SELECTION = pytest.StashKey[Selection]()
TALLY = pytest.StashKey[Tally]()
MODULES = pytest.StashKey[int]()
"""How many modules there were when Python was last told to leave alone what there was."""
WORKERS = pytest.StashKey[Tuple[int, int]]()
"""How many workers were asked for, and how many are started."""


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
    config.stash[TALLY] = Tally(config, lambda: selection_of(config).frameworks)
    config.pluginmanager.register(config.stash[TALLY], "ipu_conformance_tally")
    config.pluginmanager.register(Triangulation(), "ipu_conformance_triangulation")
    if config.pluginmanager.has_plugin("xdist"):
        config.pluginmanager.register(_XdistHooks(), "ipu_conformance_xdist")
        if hasattr(config, "workerinput") or config.getoption("tx", None):
            config.pluginmanager.register(Packing(), "ipu_conformance_packing")
        _limit_workers(config)
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Watch(opened(Path(config.workerinput["ipu_stacks"]))), "ipu_conformance_watch")
    elif not config.getoption("tx", None) and guard.is_possible():
        config.pluginmanager.register(guard.Guard(), "ipu_conformance_guard")
    _record(config)
    if SELECTION in config.stash:
        _lease(config)


def _lease(config: pytest.Config) -> None:
    """Let cases lease devices where a target names them; the emulator's cases do not get into each other's way."""
    selection = config.stash[SELECTION]
    if set(selection.kinds) <= {"emulator"}:
        return
    targets = discover()
    chosen = {name: selection.choice(name) for name in selection.frameworks}
    leased = {name: targets[choice.target] for name, choice in chosen.items() if choice and choice.target}
    leased = {name: target for name, target in leased.items() if target.devices()}
    if leased:
        from ipu_conformance.leasing import Leasing

        repeat = bool(config.getoption("ipu_report"))
        config.pluginmanager.register(Leasing(config, leased, repeat=repeat), "ipu_conformance_leasing")


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


def asks_for_cases(config: pytest.Config) -> bool:
    """Whether a run is about conformance cases: by an option, by its expression of marks, or by where it looks."""
    if any(config.getoption(f"ipu_{name}") is not None for name in (*OPTIONS, "report")):
        return True
    if "ipu" in re.findall(r"\w+", config.getoption("markexpr") or ""):
        return True
    if any("ipu_conformance" in argument for argument in config.args):
        return True
    suite = suite_folder()
    return any(suite == path or suite in path.parents or path in suite.parents for path in _asked_paths(config))


def selection_of(config: pytest.Config) -> Selection:
    """What the run is about; decided when it is first asked for, so that other people's runs never are."""
    found = config.stash.get(SELECTION, None)
    if found is None:
        try:
            found = config.stash[SELECTION] = select({name: config.getoption(f"ipu_{name}") for name in OPTIONS})
        except ConformanceError as error:
            raise pytest.UsageError(str(error)) from error
    return found


def _limit_workers(config: pytest.Config) -> None:
    """Start no more workers than cores for cases that all run on the emulator: they only compute.

    Each of the others would import frameworks and collect, and then wait for a core. A device of its own, or a run that
    has other tests too, gets the workers that were asked for.
    """
    asked = config.option.tx or []
    cores = max(1, os.cpu_count() or 1)
    chosen = config.stash.get(SELECTION, None)
    computed_here = chosen is not None and set(chosen.kinds) == {"emulator"}
    if computed_here and matches_cases_only(config.getoption("markexpr") or "") and set(asked) == {"popen"}:
        config.option.tx = asked[:cores]
        config.stash[WORKERS] = (len(asked), len(config.option.tx))


class _XdistHooks:
    """What only pytest-xdist calls."""

    def __init__(self) -> None:
        self._stacks: Optional[Path] = None

    def _stacks_of(self, node: Any) -> Path:
        """Where a worker writes the stacks of a case that hangs."""
        if self._stacks is None:
            self._stacks = Path(tempfile.mkdtemp(prefix="ipu-conformance-stacks-"))
            node.config.add_cleanup(functools.partial(shutil.rmtree, self._stacks, ignore_errors=True))
        return self._stacks / str(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config, specs: Sequence[Any]) -> None:
        """Share the cores out among the workers before they start."""
        os.environ.update(threads(len(specs), os.cpu_count() or 1, os.environ))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand the selection to a worker, so that all of them run the same cases."""
        chosen = node.config.stash.get(SELECTION, None)
        if chosen is not None:
            node.workerinput["ipu_selection"] = chosen.to_dict()
        node.workerinput["ipu_stacks"] = str(self._stacks_of(node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Spread by framework, unless another distribution was asked for."""
        if config.getoption("dist") != "load":
            return None
        from ipu_conformance.scheduling import FrameworkScheduling

        return FrameworkScheduling(config, log)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Note which cases the run has selected."""
        node.config.stash[TALLY].selected.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        """Say how a case ended that took its worker with it."""
        path, _, name = crashitem.partition("::")
        report.location = (path, None, name)
        stacks = self._stacks_of(report.node)
        written = stacks.read_text(errors="replace") if stacks.exists() else ""
        report.longrepr = LossReport(path, loss(written, _exit_code(report.node)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Collect what a worker left out; every worker collects the same cases, so one answer is enough."""
        left_out = getattr(node, "workeroutput", {}).get("ipu_left_out")
        if left_out is not None:
            node.config.stash[TALLY].left_out = left_out


def _exit_code(node: Any) -> Optional[int]:
    """How the process of a worker ended, None where xdist does not say."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if process is None:
        return None
    try:
        return int(process.wait(timeout=1))
    except subprocess.TimeoutExpired:
        return None


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
    if os.environ.get(FAULT):
        lines.append(f"ipu fault: {os.environ[FAULT]} is on, the device is wrong on purpose ({FAULT})")
    asked, started = config.stash.get(WORKERS, (0, 0))
    if started < asked:
        lines.append(f"ipu workers: {started} of {asked}, one a core (the emulator only computes)")
    return lines


@functools.lru_cache(maxsize=1)
def suite_folder() -> Path:
    """Where the conformance suite stands: tests/ipu of the checkout, shipped as ipu_conformance.suite."""
    checkout = Path(__file__).resolve().parents[1] / "tests" / "ipu"
    if checkout.is_dir():
        return checkout
    spec = importlib.util.find_spec("ipu_conformance.suite")
    if spec is None or not spec.submodule_search_locations:
        raise pytest.UsageError("The installation holds no ipu_conformance.suite; install the package again.")
    return Path(next(iter(spec.submodule_search_locations))).resolve()


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
        pytest.skip(f"the target of {name} shows no more than the vendor's API does")
    return door


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Optional[bool]:
    """A run opens no folder that it is not about, unless the command line names it.

    Conformance cases alone are not about the project's own tests, which import every framework, and no run is about
    the folder of a framework that is left out.
    """
    own_tests, suite = suite_folder().parent / "unit", suite_folder()
    if collection_path == own_tests:
        left_out = matches_cases_only(config.getoption("markexpr") or "")
    else:
        left_out = collection_path.parent == suite and collection_path.name in selection_of(config).left_out
    if not left_out or any(collection_path in (path, *path.parents) for path in _asked_paths(config)):
        return None
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without looking for garbage: thousands of cases come to stay, and are not looked through later either."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _asked_paths(config: pytest.Config) -> List[Path]:
    """The files and folders that the command line names."""
    return [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]


MOST_NAMES = 8
"""Names of a mark expression up to which all their truth values are tried."""


def matches_cases_only(expression: str) -> bool:
    """Whether a mark expression is false of every test that does not carry the marker ipu."""
    names = sorted(set(re.findall(r"[A-Za-z_]\w*", expression)) - {"and", "or", "not", "ipu"})
    if "ipu" not in expression or len(names) > MOST_NAMES:
        return False
    from _pytest.mark import expression as expressions

    unreadable: Type[Exception] = getattr(expressions, "ParseError", SyntaxError)  # older versions of pytest have it
    try:
        compiled = expressions.Expression.compile(expression)
    except (SyntaxError, unreadable):  # pytest says so itself
        return False
    choices = (frozenset(chosen) for size in range(len(names) + 1) for chosen in itertools.combinations(names, size))
    return not any(compiled.evaluate(functools.partial(_is_among, choice)) for choice in choices)


def _is_among(names: FrozenSet[str], name: str, **arguments: Any) -> bool:
    return name in names


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Mark the suite's cases, then leave out those that this run is not about."""
    kept, left_out = [], []
    counts: Dict[str, int] = {}
    for path, cases in itertools.groupby(items, key=lambda item: item.path):
        of_file = list(cases)
        if in_suite(path):
            mark(of_file)
        for item in of_file:
            why = why_left_out(item, selection_of(config)) if item.get_closest_marker("ipu") is not None else None
            if why is None:
                kept.append(item)
            else:
                left_out.append(item)
                counts[why] = counts.get(why, 0) + 1
    config.stash[TALLY].left_out = counts
    if any(in_suite(item.path) for item in kept):
        gc.set_threshold(*GARBAGE)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@functools.lru_cache(maxsize=None)
def in_suite(path: Path) -> bool:
    """Whether a file belongs to the conformance suite."""
    return suite_folder() in path.resolve().parents


def mark(cases: Sequence[pytest.Item]) -> None:
    """Give the cases of a file of the suite the markers that follow from where they stand.

    What holds of all of them is a marker of the file.
    """
    file: pytest.Item | pytest.Collector = cases[0].getparent(pytest.Module) or cases[0]
    for marker in (pytest.mark.ipu, pytest.mark.timeout(CASE_TIME_LIMIT)):
        if file.get_closest_marker(marker.name) is None:
            file.add_marker(marker)
    for case in cases:
        framework = framework_of(case.nodeid)
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


@functools.lru_cache(maxsize=None)
def _below_suite(path: Path) -> str:
    return path.resolve().relative_to(suite_folder()).as_posix()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """While a case of the suite runs, failures of checks know the command that runs it alone."""
    if not in_suite(item.path):
        return (yield)
    from ipu_conformance.check.failure import CaseReference, current_case

    token = current_case.set(CaseReference(case_id(item)))
    try:
        return (yield)
    finally:
        current_case.reset(token)
        _leave_modules_alone(item.config)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Every failed case says how to run it alone; a failed check has said it already."""
    report = yield
    if report.failed and in_suite(item.path) and "reproduce: " not in report.longreprtext:
        from ipu_conformance.check.failure import CaseReference

        report.sections.append(("reproduce", CaseReference(case_id(item)).command()))
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


def _leave_modules_alone(config: pytest.Config) -> None:
    """Python looks for garbage among what cases have left, not in a framework that they have imported."""
    if len(sys.modules) - config.stash.get(MODULES, 0) >= MANY_MODULES:
        gc.collect()
        gc.freeze()
        config.stash[MODULES] = len(sys.modules)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Look for garbage once and leave alone what stays: pytest looks five times before it ends."""
    gc.collect()
    gc.freeze()
