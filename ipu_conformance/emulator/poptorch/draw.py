"""Random numbers on the device: every slot draws from a generator of its own, so that recomputing draws the same."""

from __future__ import annotations

import threading
from typing import Optional

import torch


class _Slot(threading.local):
    """The generator that the running slot draws from; each thread runs one replica."""

    generator: Optional[torch.Generator] = None


slot = _Slot()


def dropout(value: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Dropout whose mask comes from the running slot's generator, so that a recomputed slot draws it again."""
    if not train or p == 0.0:
        return value
    if p == 1.0:
        return value * torch.zeros_like(value)
    mask = torch.empty_like(value).bernoulli_(1.0 - p, generator=slot.generator)
    return value * mask.div_(1.0 - p)


def slot_seed(seed: int, run: int, replica: int, stage: int, micro_batch: int) -> int:
    """A different seed for every slot of every run, the same for the same slot of the same run."""
    value = seed & 0xFFFFFFFFFFFFFFFF
    for part in (run, replica, stage, micro_batch):
        # SplitMix64: a few multiplications that leave no pattern between neighbours.
        value = (value + 0x9E3779B97F4A7C15 + part * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        value ^= value >> 31
    return value & 0x7FFFFFFFFFFFFFFF
