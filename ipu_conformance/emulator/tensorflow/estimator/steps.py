"""How many loops the steps of a call are."""

from __future__ import annotations

from typing import Optional

from ipu_conformance.emulator.faults.decisions import tensorflow_estimator as decide


def check_multiple(steps: Optional[int], iterations_per_loop: int) -> None:
    """A loop is never cut short."""
    if steps is not None and decide("steps-multiple", steps % iterations_per_loop != 0):
        raise ValueError(f"steps ({steps}) must be a multiple of iterations_per_loop ({iterations_per_loop})")


def loops(steps: int, iterations_per_loop: int) -> int:
    """The loops in which so many steps are done: the last step of the last one may be a later one."""
    return decide("loops-rounded", max(0, -(-steps // iterations_per_loop)), steps=steps, each=iterations_per_loop)
