"""Which IPUs of a replica a program names while it is built, and how many replicas that leaves a device.

What places operations (shards, the stages of a pipeline) calls ``note`` with each IPU; whoever compiles a program
builds it once inside of ``noted`` to learn them.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Iterator, List, Optional, Set

from ipu_conformance.emulator.core.topology import TopologyError, tensorflow_replicas
from ipu_conformance.emulator.tensorflow.compile import shards


class ShardError(TopologyError, ValueError):
    """A device has no whole number of replicas of a program."""


class _ThreadState(threading.local):
    """The sets that this thread writes to, the innermost last."""

    def __init__(self) -> None:
        self.open: List[Set[int]] = []
        self.watching: List[Set[int]] = []


_thread_state = _ThreadState()


def note(ipu: int) -> None:
    """Record that a part of the program that is being built runs on that IPU of each replica."""
    for found in (*_thread_state.open, *_thread_state.watching):
        found.add(int(ipu))


@contextlib.contextmanager
def noted() -> Iterator[Set[int]]:
    """The set of the IPUs that are noted inside; empty if the program names none."""
    found: Set[int] = set()
    _thread_state.open.append(found)
    try:
        yield found
    finally:
        _thread_state.open.pop()


@contextlib.contextmanager
def watched() -> Iterator[Set[int]]:
    """The set of the IPUs that are noted inside, of a program that is built to be executed."""
    found: Set[int] = set()
    _thread_state.watching.append(found)
    try:
        yield found
    finally:
        _thread_state.watching.pop()


def replicas(ipus: int, named: Optional[Set[int]] = None) -> int:
    """How many replicas a device of so many IPUs makes of a program that names these."""
    try:
        return tensorflow_replicas(ipus, named or {0})
    except TopologyError as error:
        raise ShardError(str(error)) from None


def placing() -> bool:
    """Whether this thread builds for that; what replicas do together then has the right shape and no meaning."""
    return bool(shards._thread_state.open)
