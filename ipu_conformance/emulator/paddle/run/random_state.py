"""Random numbers on the device: every dropout draws by its number in the program and by its slot, however it is cut."""

from __future__ import annotations

import contextlib
import threading
from typing import Iterator, Optional

import numpy as np
from paddle.base import core

from ipu_conformance.emulator.paddle.compile.slot_programs import SEED

_lock = threading.Lock()
"""Held while Paddle's one generator stands in for that of a slot."""
_MASK = 0xFFFFFFFFFFFFFFFF


@contextlib.contextmanager
def generator(seed: int) -> Iterator[None]:
    """Ops inside draw from Paddle's generator as if it had been seeded; the user's draws go on as before."""
    cpu_generator = core.default_cpu_generator()
    with _lock:
        before = cpu_generator.get_state()
        cpu_generator.manual_seed(seed)
        try:
            yield
        finally:
            cpu_generator.set_state(before)


def base(seed: Optional[int]) -> int:
    """The seed of a program: the strategy's, else that of Paddle's own generator."""
    return int(core.default_cpu_generator().initial_seed()) if seed is None else seed


def value(seed: int, run: int, replica: int, micro_batch: int, name: str) -> np.ndarray:
    """What one dropout is seeded with in one slot."""
    return np.array([number(seed, run, replica, micro_batch, int(name[len(SEED) :]))], np.int32)


def number(seed: int, run: int, replica: int, micro_batch: int, place: int) -> int:
    """The seed of one slot at a place of the program."""
    # Paddle takes zero for no seed and draws one itself.
    return mix(seed, run, replica, micro_batch, place) % 0x7FFFFFFE + 1


def mix(seed: int, *parts: int) -> int:
    """A seed from a seed and numbers, without a pattern between neighbours (SplitMix64)."""
    mixed = seed & _MASK
    for part in parts:
        mixed = (mixed + 0x9E3779B97F4A7C15 + part * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
    return mixed
