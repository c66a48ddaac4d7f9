"""The ops that the device runs, which a fault can change."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator import faults

POINT = "paddle.ops"


def run_as_written(program: Any) -> Any:
    """The program that a slot runs: the same unless a fault of an op is on."""
    return faults.apply(POINT, program) if faults.active else program
