"""Cases lease the devices that they need; a failed one is repeated on each device: is it the device or the case?

A plug-in of its own, registered where a target names its devices (``Target.devices``). Where the target can be pinned
to a device (``Target.pins``) and a report is written, a failed case runs again on each device in turn. Nothing of an
earlier run is left then: fixtures of the session keep what a device has computed, and are made again.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Generator, List, Mapping, Optional, Sequence, Tuple

import pytest
from _pytest.runner import runtestprotocol

from ipu_conformance import notes
from ipu_conformance.targets import Target
from ipu_conformance.workers.leases import JOINED, LeaseError, Leases
from ipu_conformance.workers.watch import WATCH

TIME_LIMIT = 600.0
"""Seconds that a case waits for its devices; they are no part of the case's own limit."""
REPEATS = 2
"""How often a failed case is repeated on each device: a flaky one may pass once."""
PASSED, FAILED, NOT_EXECUTED = "passed", "failed", "not executed"
"""What becomes of a repetition; one whose device is not free in time tells nothing of the device."""
REPEAT_LIMIT = 60.0
"""Seconds that a repetition may take; a device on which it hangs has failed it."""


class Leasing:
    """Holds the devices of the case under way."""

    def __init__(self, config: pytest.Config, targets: Mapping[str, Target], *, repeat: bool) -> None:
        self.config = config
        self.targets = targets
        self.leases = {name: Leases(target.name, target.devices()) for name, target in targets.items()}
        for leases in self.leases.values():
            leases.require()
        self.repeat = repeat
        self._held = contextlib.ExitStack()
        self._item: Optional[pytest.Item] = None
        self._failed = False
        self._executed = False
        self._repeating: Sequence[str] = ()

    def _target(self, item: pytest.Item) -> Optional[Tuple[Target, Leases]]:
        """The target of a case that leases devices; a case of two frameworks leases those of the first."""
        for name, target in self.targets.items():
            if item.get_closest_marker("ipu") is not None and item.get_closest_marker(name) is not None:
                return target, self.leases[name]
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Wait for the devices that the case needs, and pin the target to them."""
        found = self._target(item)
        if found is None:
            return
        target, leases = found
        count = _needed(item)
        if count > len(leases.devices):
            return  # it is skipped, for this reason: a target offers no more than it names
        wanted = self._repeating or leases.devices
        try:
            with _stopped_clock(item, repeating=bool(self._repeating)):
                held = self._held.enter_context(leases.of(wanted, count, TIME_LIMIT, item.nodeid))
        except LeaseError as error:
            pytest.fail(str(error), pytrace=False)
        self._executed = True
        target.pin(held)
        self._note(held)
        notes.tell("devices", list(held))

    def _note(self, devices: Sequence[str]) -> None:
        """Let who outlives this process know which devices the case holds."""
        watch: Any = self.config.pluginmanager.getplugin(WATCH)
        if watch is not None:
            watch.note_devices(devices)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        """Give the devices back, whatever the case left behind."""
        try:
            return (yield)
        finally:
            self._held.close()
            self._note(())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Notice a failure."""
        report = yield
        self._failed |= bool(report.failed)
        return report

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Know the case under way."""
        self._item, self._failed, self._executed = item, False, False
        try:
            return (yield)
        finally:
            self._item = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logfinish(self) -> None:
        """Repeat a failed case on each device, if the target can be pinned to it and somebody wants to know.

        The case has not ended before: who outlives this process looks here for what was lost.
        """
        item = self._item
        found = self._target(item) if item is not None and self._failed and self._executed and self.repeat else None
        if item is not None and found is not None and found[0].pins:
            self._repeat(item, found[1].devices)

    def _repeat(self, item: pytest.Item, devices: Sequence[str]) -> None:
        """Report what becomes of a case on each device, with the next ones if it needs several, as soon as it is known.

        A device may take the process with it: what the others did is written by then.
        """
        count = _needed(item)
        ended = pytest.CallInfo.from_call(lambda: item.session._setupstate.teardown_exact(None), "teardown")
        if ended.excinfo is not None:
            item.warn(pytest.PytestWarning(f"a fixture failed at its end: {ended.excinfo.exconly()}"))
        groups = len(devices) if count < len(devices) else 1
        for number in range(groups):
            self._repeating = [devices[(number + after) % len(devices)] for after in range(count)]
            try:
                outcomes = [self._once(item) for _ in range(REPEATS)]
            finally:
                group, self._repeating = JOINED.join(self._repeating), ()
            phase: Any = "repeats"
            report = pytest.TestReport(item.nodeid, item.location, {}, "passed", None, phase)
            report.ipu_repeats = {group: outcomes}  # type: ignore[attr-defined]
            report.ipu_repeats_left = groups - number - 1  # type: ignore[attr-defined]
            item.ihook.pytest_runtest_logreport(report=report)

    def _once(self, item: pytest.Item) -> str:
        """What becomes of a case that finds nothing of an earlier run."""
        self._executed = False
        item._initrequest()  # type: ignore[attr-defined]
        with _limited(item):
            reports: List[pytest.TestReport] = runtestprotocol(item, log=False, nextitem=None)
        if not self._executed or any(report.skipped for report in reports):
            return NOT_EXECUTED
        return FAILED if any(report.failed for report in reports) else PASSED


def _needed(item: pytest.Item) -> int:
    """How many devices a case needs."""
    marker = item.get_closest_marker("ipus")
    return 1 if marker is None else int(marker.args[0])


def _settings(item: pytest.Item, *, repeating: bool) -> Optional[Any]:
    """What pytest-timeout is to do about a case, or about a repetition of it; None for nothing."""
    if not item.config.pluginmanager.has_plugin("timeout"):
        return None
    settings = importlib.import_module("pytest_timeout")._get_item_settings(item)
    if repeating:
        return settings._replace(timeout=min(settings.timeout or REPEAT_LIMIT, REPEAT_LIMIT))
    return settings if settings.timeout and not settings.func_only else None


@contextlib.contextmanager
def _limited(item: pytest.Item) -> Generator[None, None, None]:
    """The time limit of a repetition, in the place of the case's own."""
    hooks, settings = item.config.pluginmanager.hook, _settings(item, repeating=True)
    if settings is None:
        yield
        return
    hooks.pytest_timeout_set_timer(item=item, settings=settings)
    try:
        yield
    finally:
        hooks.pytest_timeout_cancel_timer(item=item)


@contextlib.contextmanager
def _stopped_clock(item: pytest.Item, *, repeating: bool) -> Generator[None, None, None]:
    """Inside of the block a case waits for others; its time limit begins behind it."""
    hooks, settings = item.config.pluginmanager.hook, _settings(item, repeating=repeating)
    if settings is None:
        yield
        return
    hooks.pytest_timeout_cancel_timer(item=item)
    try:
        yield
    finally:
        hooks.pytest_timeout_set_timer(item=item, settings=settings)
