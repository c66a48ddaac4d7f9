"""Leases of devices across workers and processes: a device has one holder at a time.

A lease is a lock on the device's file, so the lease of a holder that crashes is free at once. Who waits for several
devices keeps the gate: others queue behind it, and a case that needs all devices gets its turn.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

from ipu_conformance.errors import ConformanceError

FOLDER_VARIABLE = "IPU_CONFORMANCE_LEASES"
FOLDER = "/tmp/ipu-conformance-leases"
"""Where all processes of a machine look; not the folder of temporary files, of which a run has its own."""
POLLED = 0.02
JOINED = "+"
"""Between the devices of a case that needs several: d2+d3+d4."""
_GATE = "gate"


class LeaseError(ConformanceError):
    """Devices were not free in time, or there are not so many."""


def folder_of(target: str) -> Path:
    """The folder with the locks of a target's devices."""
    return Path(os.environ.get(FOLDER_VARIABLE) or FOLDER) / target


class Leases:
    """The devices of a target on this machine."""

    def __init__(self, target: str, devices: Sequence[str]) -> None:
        self.target, self.devices = target, tuple(devices)
        self._folder = folder_of(target)

    @contextlib.contextmanager
    def of(self, wanted: Sequence[str], count: int, time_limit: float, holder: str) -> Iterator[Tuple[str, ...]]:
        """Hold so many of the wanted devices inside the block; ``holder`` is said to those who wait too long."""
        if not 1 <= count <= len(wanted):
            raise LeaseError(f"{count} devices of {self.target} were asked for, and there are {len(wanted)}.")
        held = self._take(wanted, count, time.monotonic() + time_limit, time_limit, holder)
        try:
            yield tuple(held)
        finally:
            for descriptor in held.values():
                os.close(descriptor)

    def _take(
        self, wanted: Sequence[str], count: int, deadline: float, time_limit: float, holder: str
    ) -> Dict[str, int]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o777)
        gate = self._open(_GATE)
        try:
            while not _locked(gate):
                self._wait(deadline, wanted, count, time_limit)
            while True:
                held = self._free(wanted, count)
                if len(held) == count:
                    break
                for descriptor in held.values():
                    os.close(descriptor)
                self._wait(deadline, wanted, count, time_limit)
        finally:
            os.close(gate)
        for descriptor in held.values():
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()}, {holder}".encode())
        return held

    def _free(self, wanted: Sequence[str], count: int) -> Dict[str, int]:
        """Locks on the first devices that are free, ``count`` at most."""
        held: Dict[str, int] = {}
        for device in wanted:
            if len(held) == count:
                break
            descriptor = self._open(device)
            if _locked(descriptor):
                held[device] = descriptor
            else:
                os.close(descriptor)
        return held

    def _wait(self, deadline: float, wanted: Sequence[str], count: int, time_limit: float) -> None:
        if time.monotonic() > deadline:
            holders = "; ".join(self._holders(wanted)) or "another case is first in the queue"
            raise LeaseError(
                f"{count} of {len(wanted)} devices of {self.target} were not free within {time_limit:g} s: {holders}."
            )
        time.sleep(POLLED)

    def _holders(self, wanted: Sequence[str]) -> List[str]:
        """Who holds which device, in words."""
        sentences = []
        for device in wanted:
            descriptor = self._open(device)
            if not _locked(descriptor):
                said = os.pread(descriptor, 400, 0).decode("utf-8", "replace")
                sentences.append(f"{device} is held by {said or 'a process that says nothing'}")
            os.close(descriptor)
        return sentences

    def _open(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        return os.open(self._folder / f"{name}.lock", flags, 0o666)


def _locked(descriptor: int) -> bool:
    """Whether the file could be locked without waiting."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
