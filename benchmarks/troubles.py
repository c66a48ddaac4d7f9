"""A pytest plug-in that lets chosen cases crash or hang in native code: ``-p benchmarks.troubles`` (benchmarks.resume).

``TROUBLES`` is a JSON object of case ids and what they do: ``crash`` or ``hang``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
from typing import List

import pytest

from ipu_conformance.cases import case_id
from ipu_conformance.suite_files import in_suite

CHOSEN = json.loads(os.environ.get("TROUBLES", "{}"))
SECONDS = 2
"""The time limit of a case that hangs."""
KIND = pytest.StashKey[str]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Mark the chosen cases."""
    for item in items:
        kind = CHOSEN.get(case_id(item)) if in_suite(item.path) else None
        if kind is not None:
            item.stash[KIND] = kind
            item.add_marker(pytest.mark.timeout(SECONDS), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Crash, or wait for ever with the interpreter's lock held, which no signal of Python's interrupts."""
    kind = item.stash.get(KIND, None)
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif kind == "hang":
        # A signal ends a sleep; nothing ends the second lock of a mutex.
        library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)
