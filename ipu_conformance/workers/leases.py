"""Leases of devices across workers and processes: a device has one holder at a time.

A lease is a lock on the device's file, so the lease of a holder that crashes is free at once, whatever children it has
left. Who waits for several devices keeps the gate: others queue behind it, and a case that needs all devices gets its
turn. All users of a machine share the folder of locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from ipu_conformance.errors import ConformanceError

FOLDER_VARIABLE = "IPU_CONFORMANCE_LEASES"
FOLDER = "/tmp/ipu-conformance-leases"
"""Where all processes of a machine look; not the folder of temporary files, of which a run has its own."""
POLLED = 0.02
JOINED = "+"
"""Between the devices of a case that needs several: d2+d3+d4."""
_GATE = "gate"
_NAME = re.compile(r"[\w.:-]+")
_SHARED_FOLDER, _SHARED_FILE = 0o1777, 0o666
"""Everybody may lease; only its owner may remove a file that stands for a device."""


class LeaseError(ConformanceError):
    """Devices were not free in time, there are not so many, or their locks cannot be used."""


_held_here: Set[int] = set()
"""The descriptors of this process's locks; a child that is forked closes them, or it would keep the locks."""


def _close_in_child() -> None:
    for descriptor in _held_here:
        os.close(descriptor)
    _held_here.clear()


os.register_at_fork(after_in_child=_close_in_child)


def folder_of(target: str) -> Path:
    """The folder with the locks of a target's devices."""
    return Path(os.environ.get(FOLDER_VARIABLE) or FOLDER) / target


class Leases:
    """The devices of a target on this machine."""

    def __init__(self, target: str, devices: Sequence[str]) -> None:
        self.target, self.devices = target, tuple(devices)
        self._folder = folder_of(target)
        for device in self.devices:
            if not _NAME.fullmatch(device):
                raise LeaseError(
                    f"{target} names a device {device!r}; a name is made of letters, digits, '_', '.', ':' and '-'."
                )
        if len(set(self.devices)) < len(self.devices):
            raise LeaseError(f"{target} names a device twice: {', '.join(self.devices)}.")

    def require(self) -> None:
        """Refuse a folder of locks that cannot be used, before a case needs it."""
        _unlock(self._open(_GATE))

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
                _unlock(descriptor)

    def _take(
        self, wanted: Sequence[str], count: int, deadline: float, time_limit: float, holder: str
    ) -> Dict[str, int]:
        gate = self._open(_GATE)
        try:
            while not _locked(gate):
                self._wait(deadline, wanted, count, time_limit)
            while True:
                held = self._free(wanted, count)
                if len(held) == count:
                    break
                for descriptor in held.values():
                    _unlock(descriptor)
                self._wait(deadline, wanted, count, time_limit)
        finally:
            _unlock(gate)
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
                _unlock(descriptor)
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
            _unlock(descriptor)
        return sentences

    def _open(self, name: str) -> int:
        """The file of a device; the gate's has another ending, so that a device may have any name."""
        path = self._folder / (name if name == _GATE else f"{name}.lock")
        try:
            _make(self._folder)
            descriptor = _opened(path)
        except OSError as error:
            raise LeaseError(
                f"The leases of {self.target} cannot be kept in {self._folder}: {error.strerror}; make it writable for "
                f"all who use the devices, or name another folder in {FOLDER_VARIABLE}, the same for all."
            ) from error
        _held_here.add(descriptor)
        return descriptor


def _make(folder: Path) -> None:
    """Make a folder, and the one above it, that all users can lease in."""
    for each in (folder.parent, folder):
        if not each.is_dir():
            each.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(PermissionError):  # another user has made it meanwhile
                each.chmod(_SHARED_FOLDER)


def _opened(path: Path) -> int:
    """Open a file that is there, perhaps another user's, or make it: Linux may refuse to do both at once."""
    flags = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return os.open(path, flags)
    os.fchmod(descriptor, _SHARED_FILE)
    return descriptor


def _unlock(descriptor: int) -> None:
    """Let go of a file; in a child that was forked meanwhile there is nothing to let go of."""
    if descriptor in _held_here:
        _held_here.remove(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Whether the file could be locked without waiting."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
