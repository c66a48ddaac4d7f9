"""What the process that was started does about workers of pytest-xdist, and about one that is lost."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Optional, Sequence, Tuple

import pytest

from ipu_conformance.asking import SELECTION, matches_cases_only, path_of
from ipu_conformance.cases import ROOT, command_of
from ipu_conformance.tally import TALLY
from ipu_conformance.workers.scheduling import threads
from ipu_conformance.workers.watch import LossReport, loss

WORKERS = pytest.StashKey[Tuple[int, int]]()
"""How many workers were asked for, and how many are started."""


def limit(config: pytest.Config) -> None:
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


class XdistHooks:
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
        """Hand the selection and the root to a worker, so that all of them run the same cases by the same ids."""
        node.workerinput[ROOT] = str(node.config.rootpath)
        chosen = node.config.stash.get(SELECTION, None)
        if chosen is not None:
            node.workerinput["ipu_selection"] = chosen.to_dict()
        node.workerinput["ipu_stacks"] = str(self._stacks_of(node))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Spread by framework, unless another distribution was asked for."""
        if config.getoption("dist") != "load":
            return None
        from ipu_conformance.workers.scheduler import FrameworkScheduling

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
        written, devices = (
            path.read_text(errors="replace") if path.exists() else "" for path in (stacks, devices_beside(stacks))
        )
        config = report.node.config
        command = command_of(crashitem, path_of(crashitem, config), config)
        report.longrepr = LossReport(path, loss(written, _exit_code(report.node), devices), command)
        if SELECTION in config.stash:
            _replace_one_more(config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Collect what a worker left out; every worker collects the same cases, so one answer is enough."""
        left_out = getattr(node, "workeroutput", {}).get("ipu_left_out")
        if left_out is not None:
            tally = node.config.stash[TALLY]
            tally.left_out, tally.deselected = left_out


def _replace_one_more(config: Any) -> None:
    """A crash costs one case: it does not count among the workers that xdist replaces before it gives up.

    That number keeps a run from starting workers for ever that die before their first case.
    """
    session = config.pluginmanager.getplugin("dsession")
    if config.option.maxworkerrestart is None and getattr(session, "_max_worker_restart", None) is not None:
        session._max_worker_restart += 1


def devices_beside(stacks: Path) -> Path:
    """The file for the devices of the case under way, beside that for its stacks."""
    return stacks.with_name(f"{stacks.name}.devices")


def _exit_code(node: Any) -> Optional[int]:
    """How the process of a worker ended, None where xdist does not say."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if process is None:
        return None
    try:
        return int(process.wait(timeout=1))
    except subprocess.TimeoutExpired:
        return None
