"""How Hypothesis draws, in one place, and which rooms are begun first."""

from __future__ import annotations

import signal
import sys
from typing import Iterator, List

import pytest

from ipu_conformance.emulator import hook
from ipu_conformance.workers import stacks
from tests.unit import examples

examples.load_profile()

LONG = ("tests/unit/suite/test_wheel.py", "tests/unit/suite/", "tests/unit/emulate/", "tests/unit/workloads/")
"""Where tests start processes: what takes longest, and needs no framework in the worker."""


def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """Workers begin with long tests, so that at the end none waits for another; a file's tests stay together."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((n for n, path in enumerate(LONG) if item.nodeid.startswith(path)), len(LONG)))


def pytest_runtest_setup() -> None:
    """TensorFlow, once it is there, notes no stacks here either."""
    stacks.share()


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> None:
    """Control-C is heard: a shell that starts a run in the background has it ignored, in all that the run starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def no_hook() -> Iterator[None]:
    """The import hook is not installed; what cases of the same process have installed is back afterwards."""
    aliases, moved, changes = dict(hook._FINDER.aliases), dict(hook._MOVED_FINDER.aliases), dict(hook._CHANGER.changes)
    modules = {name: module for name, module in sys.modules.items() if hook._FINDER.real_name(name) is not None}
    hook.uninstall()
    yield
    hook.uninstall()
    if aliases:
        hook.alias(aliases)
        sys.modules.update(modules)
    if moved:
        hook.move(moved)
    if changes:
        hook._CHANGER.changes.update(changes)
        sys.meta_path.insert(0, hook._CHANGER)
