"""Ways for the lowering to the PopART IR to be wrong, which the front ends that lower to it name as their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import Wrong


def trained_with(**settings: Any) -> Wrong:
    """``popart.updates:updates`` adds the ops of a training with other settings."""

    def wrong(original: Callable[..., Any], program: Any, gradients: Any, training: Any) -> Any:
        return original(program, gradients, replace(training, **settings))

    return wrong


def in_the_forward_stage(original: Callable[..., Any], execution: Any, place: Any) -> Any:
    """``popart.lowering:Execution.behind`` computes gradients where the forward op ran."""
    return place
