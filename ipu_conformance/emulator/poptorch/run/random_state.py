"""Random numbers on the device: every slot draws from a generator of its own, so that recomputing draws the same."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

import torch


class _Slot(threading.local):
    """The generator and the seed of the running slot; each thread runs one replica."""

    generator: Optional[torch.Generator] = None
    seed: int = 0


slot = _Slot()
_default = threading.Lock()
"""Held while torch's one default generator stands in for that of a slot."""


def dropout(value: torch.Tensor, p: float, train: bool, ordinal: int) -> torch.Tensor:
    """Dropout whose mask depends on the slot and the operation's number in the whole model, not on the stages."""
    if not train or p == 0.0:
        return value
    if p == 1.0:
        return value * torch.zeros_like(value)
    generator = slot.generator
    if generator is None:
        generator = slot.generator = torch.Generator()
    generator.manual_seed(mix(slot.seed, ordinal))
    mask = torch.empty_like(value).bernoulli_(1.0 - p, generator=generator)
    return value * mask.div_(1.0 - p)


class Seeded:
    """A random operation seeded by its slot and its number in the model; torch's state is left alone."""

    def __init__(self, target: Callable[..., Any], ordinal: int) -> None:
        self.target = target
        self.ordinal = ordinal
        self.__name__ = getattr(target, "__name__", "random")
        self.__module__ = __name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _default:
            before = torch.get_rng_state()
            torch.random.default_generator.manual_seed(mix(slot.seed, self.ordinal))
            try:
                return self.target(*args, **kwargs)
            finally:
                torch.set_rng_state(before)


def slot_seed(seed: int, run: int, replica: int, micro_batch: int) -> int:
    """A different seed for every micro-batch of every run, the same for all stages that work on it."""
    return mix(seed, run, replica, micro_batch)


def mix(seed: int, *parts: int) -> int:
    """A seed from a seed and numbers, without a pattern between neighbours (SplitMix64)."""
    value = seed & 0xFFFFFFFFFFFFFFFF
    for part in parts:
        value = (value + 0x9E3779B97F4A7C15 + part * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        value ^= value >> 31
    return value & 0x7FFFFFFFFFFFFFFF
