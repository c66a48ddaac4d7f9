"""Which IPUs of a replica a program names while it is built, and how many replicas that leaves a device.

What places operations (shards, the stages of a pipeline) calls ``note`` with each IPU; whoever compiles a program
builds it once inside of ``noted`` to learn them.
"""

from __future__ import annotations

import contextlib
import threading
from typing import ContextManager, Iterator, List, Optional, Set

from ipu_conformance.emulator.core.topology import TopologyError, tensorflow_replicas


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
    for ipus in (*_thread_state.open, *_thread_state.watching):
        ipus.add(int(ipu))


def noted() -> ContextManager[Set[int]]:
    """The set of the IPUs that are noted inside; empty if the program names none."""
    return _collected(_thread_state.open)


def watched() -> ContextManager[Set[int]]:
    """The set of the IPUs that are noted inside, of a program that is built to be executed."""
    return _collected(_thread_state.watching)


@contextlib.contextmanager
def _collected(sets: List[Set[int]]) -> Iterator[Set[int]]:
    ipus: Set[int] = set()
    sets.append(ipus)
    try:
        yield ipus
    finally:
        sets.pop()


def replicas(ipus: int, named: Optional[Set[int]] = None) -> int:
    """How many replicas a device of so many IPUs makes of a program that names these."""
    try:
        return tensorflow_replicas(ipus, named or {0})
    except TopologyError as error:
        raise ShardError(str(error)) from None


def placing() -> bool:
    """Whether this thread builds a program only to learn which IPUs it names.

    How many replicas it has is not known yet: what they do together has the right shape and no meaning.
    """
    return bool(_thread_state.open)
