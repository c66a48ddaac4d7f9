"""A pytest plug-in, ``-p benchmarks.suite_time.clock``, that notes where a process spends its processor time.

Time belongs to one phase at a time, the innermost of those that are open: compiling inside a case is compiling. A
function that opens a phase is named by its import path and replaced once its module is there; nothing is imported for
the clock. Only the main thread opens phases: replicas that are built in threads of their own take turns inside of one.

Each process writes one JSON file into the folder that ``SUITE_TIME_FOLDER`` names.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Generator, List, Optional, Set, Tuple

import pytest

from ipu_conformance.workers.scheduling import NEUTRAL, framework_of

FOLDER = "SUITE_TIME_FOLDER"
FRAMEWORKS = ("tensorflow", "torch", "paddle")
EMULATOR = "ipu_conformance.emulator."
FUNCTIONS: Tuple[Tuple[str, str, str], ...] = (
    ("import", EMULATOR + "hook", "_ChangingLoader.exec_module"),
    ("compiling", "tensorflow.python.framework.func_graph", "func_graph_from_py_func"),
    ("compiling", EMULATOR + "poptorch.run.executor", "PoplarExecutor._compile"),
    ("compiling", EMULATOR + "paddle.run.executable", "Executable.__init__"),
    ("executing", "tensorflow.python.eager.execute", "execute"),
    ("executing", "tensorflow.python.client.session", "BaseSession._do_run"),
    ("executing", EMULATOR + "poptorch.run.executor", "PoplarExecutor._run"),
    ("executing", EMULATOR + "paddle.run.executable", "Executable.run"),
    ("oracle", "ipu_conformance.oracle.training.train", "train"),
    ("oracle", "ipu_conformance.oracle.training.train", "infer"),
    ("tolerance", "ipu_conformance.oracle.tolerance.runs", "for_run"),
    ("tolerance", "ipu_conformance.oracle.tolerance.runs", "reference"),
)
"""Phase, module and name of what is timed. Oracle runs inside of a tolerance count as tolerance."""
KEEPS = {"tolerance"}
"""Phases inside of which no other is opened."""


class Clock:
    """The processor time of this process by phase and framework."""

    def __init__(self) -> None:
        self.phases: List[str] = ["other"]
        self.framework = NEUTRAL
        self.spent: Dict[Tuple[str, str], float] = {}
        self.last = 0.0  # what came before, imports of pytest and the plug-ins, is "other"

    def note(self) -> None:
        """Give the time since the last note to the phase that is open."""
        now = time.process_time()
        key = (self.framework, self.phases[-1])
        self.spent[key] = self.spent.get(key, 0.0) + now - self.last
        self.last = now

    def call(self, phase: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """Call a function inside of a phase."""
        if threading.current_thread() is not threading.main_thread() or KEEPS & set(self.phases):
            return function(*arguments, **settings)
        self.note()
        self.phases.append(phase)
        try:
            return function(*arguments, **settings)
        finally:
            self.note()
            self.phases.pop()


clock = Clock()
cases: Dict[str, float] = {}
_replaced: Set[Tuple[str, str]] = set()


def _timed(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **settings: Any) -> Any:
        return clock.call(phase, function, *arguments, **settings)

    return call


def replace_functions() -> None:
    """Time the functions whose modules are there by now, wherever they were imported to."""
    for phase, module, name in FUNCTIONS:
        if module not in sys.modules or (module, name) in _replaced:
            continue
        _replaced.add((module, name))
        *path, last = name.split(".")
        owner = functools.reduce(getattr, path, sys.modules[module])
        function = getattr(owner, last)
        timed = _timed(phase, function)
        setattr(owner, last, timed)
        for other in list(sys.modules.values()):
            if not path and vars(other).get(last) is function:
                setattr(other, last, timed)


class ImportClock:
    """A finder that times the import of frameworks."""

    def __init__(self) -> None:
        self.looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the other finders have, with a loader whose module is timed."""
        if name not in FRAMEWORKS or self.looking:
            return None
        self.looking = True
        try:
            spec = next(filter(None, (finder.find_spec(name, path, target) for finder in sys.meta_path)), None)
        finally:
            self.looking = False
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _timed("import", spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Watch imports from now on."""
    sys.meta_path.insert(0, ImportClock())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collection is a phase."""
    clock.note()
    clock.phases.append("collection")
    try:
        return (yield)
    finally:
        clock.note()
        clock.phases.pop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """A case is a phase, without what it imports, and without tolerances, which are shipped once they are measured."""
    replace_functions()
    clock.note()
    clock.framework = framework_of(item.nodeid) or NEUTRAL
    clock.phases.append("case")
    before, elsewhere = _with_children(), _elsewhere()
    try:
        return (yield)
    finally:
        clock.note()
        clock.phases.pop()
        cases[item.nodeid] = _with_children() - before - (_elsewhere() - elsewhere)
        clock.framework = NEUTRAL


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, Any, Any]:
    """So is its end."""
    clock.note()
    clock.phases.append("teardown")
    try:
        return (yield)
    finally:
        clock.note()
        clock.phases.pop()


def _with_children() -> float:
    """Processor time of this process and of those that it started and that have ended."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


def _elsewhere() -> float:
    return sum(seconds for (_, phase), seconds in clock.spent.items() if phase in ("import", "tolerance"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave the notes of this process behind."""
    folder: Optional[str] = os.environ.get(FOLDER)
    if folder is None:
        return
    clock.note()
    notes = {
        "worker": os.environ.get("PYTEST_XDIST_WORKER", "main"),
        "spent": [[*key, seconds] for key, seconds in clock.spent.items()],
        "cases": cases,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    (Path(folder) / f"{os.getpid()}.json").write_text(json.dumps(notes))
