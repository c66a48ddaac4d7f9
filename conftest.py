"""What every run in the checkout shares: one folder for temporary files, gone at its end, and an end in order."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Any, Optional

import pytest

from ipu_conformance.workers import ending

pytest_plugins = ["pytester"]

FOLDER = pytest.StashKey[str]()
VARIABLE = "TMPDIR"
LAST = -1000
"""The place of the folder among what is cleaned up at exit: multiprocessing removes its own at -100."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the run a folder, which workers and other processes inherit; SIGTERM and SIGHUP end it as Control-C does.

    Frameworks leave files where temporary ones go: TensorFlow compiled code, PyTorch the folder of a cache.
    """
    ending.install(config)
    if hasattr(config, "workerinput"):
        return
    before = os.environ.get(VARIABLE)
    folder = config.stash[FOLDER] = tempfile.mkdtemp(prefix="ipu-conformance-")
    _use(folder)

    def forget() -> None:
        _use(before)
        _remove(folder)

    config.add_cleanup(forget)


def _remove(folder: str) -> None:
    """Remove the folder; one that multiprocessing has a folder in goes after that, which is removed at exit."""
    if "multiprocessing.util" in sys.modules:
        util: Any = sys.modules["multiprocessing.util"]
        util.Finalize(None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=LAST)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _use(folder: Optional[str]) -> None:
    """Temporary files go to this folder; None is where they go without the variable."""
    tempfile.tempdir = folder
    if folder is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = folder
