"""Cases lease the devices that they need; a failed one is repeated on each device: is it the device or the case?

A plug-in of its own, registered where a target names its devices (``Target.devices``). Where the target can be pinned
to a device (``Target.pins``) and a report is written, a failed case runs again on each device in turn.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Dict, Generator, List, Mapping, Optional, Sequence, Tuple

import pytest
from _pytest.runner import runtestprotocol

from ipu_conformance import notes
from ipu_conformance.targets import Target
from ipu_conformance.workers.leases import JOINED, LeaseError, Leases
from ipu_conformance.workers.watch import WATCH

TIME_LIMIT = 600.0
"""Seconds that a case waits for its devices."""
REPEATS = 2
"""How often a failed case is repeated on each device: a flaky one may pass once."""
REPEAT_LIMIT = 60.0
"""Seconds that a repetition may take; a device on which it hangs has failed it."""


class Leasing:
    """Holds the devices of the case under way."""

    def __init__(self, config: pytest.Config, targets: Mapping[str, Target], *, repeat: bool) -> None:
        self.config = config
        self.targets = targets
        self.leases = {name: Leases(target.name, target.devices()) for name, target in targets.items()}
        self.repeat = repeat
        self._held = contextlib.ExitStack()
        self._failed = False
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
            return  # it is skipped, for this reason
        wanted = self._repeating or leases.devices
        try:
            held = self._held.enter_context(leases.of(wanted, count, TIME_LIMIT, item.nodeid))
        except LeaseError as error:
            pytest.fail(str(error), pytrace=False)
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
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: Optional[pytest.Item]) -> Generator[None, Any, Any]:
        """Repeat a failed case on each device, if the target can be pinned to it and somebody wants to know."""
        self._failed = False
        answer = yield
        found = self._target(item)
        if self._failed and self.repeat and found is not None and found[0].pins:
            phase: Any = "repeats"
            report = pytest.TestReport(item.nodeid, item.location, {}, "passed", None, phase)
            report.ipu_repeats = self._repeated(item, nextitem, found[1].devices)  # type: ignore[attr-defined]
            item.ihook.pytest_runtest_logreport(report=report)
        return answer

    def _repeated(
        self, item: pytest.Item, nextitem: Optional[pytest.Item], devices: Sequence[str]
    ) -> Dict[str, List[str]]:
        """What became of the case on each device, with the next ones if it needs several, time after time."""
        outcomes: Dict[str, List[str]] = {}
        count = _needed(item)
        for number in range(len(devices)):
            self._repeating = [devices[(number + after) % len(devices)] for after in range(count)]
            try:
                outcomes[JOINED.join(self._repeating)] = [self._once(item, nextitem) for _ in range(REPEATS)]
            finally:
                self._repeating = ()
        return outcomes

    def _once(self, item: pytest.Item, nextitem: Optional[pytest.Item]) -> str:
        item._initrequest()  # type: ignore[attr-defined]
        with _limited(item):
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        return "failed" if any(report.failed for report in reports) else "passed"


def _needed(item: pytest.Item) -> int:
    """How many devices a case needs."""
    marker = item.get_closest_marker("ipus")
    return 1 if marker is None else int(marker.args[0])


@contextlib.contextmanager
def _limited(item: pytest.Item) -> Generator[None, None, None]:
    """The time limit of a repetition, in the place of the case's own."""
    hooks = item.config.pluginmanager.hook
    settings = importlib.import_module("pytest_timeout")._get_item_settings(item)
    limit = min(settings.timeout or REPEAT_LIMIT, REPEAT_LIMIT)
    hooks.pytest_timeout_set_timer(item=item, settings=settings._replace(timeout=limit))
    try:
        yield
    finally:
        hooks.pytest_timeout_cancel_timer(item=item)
