"""The ways for Paddle's front end to be wrong; importing them declares what it refuses."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults.catalogue import Wrong
from ipu_conformance.emulator.paddle import refusals as refusals

VALUE = "paddle.compile.strategy_options:StrategyOptions.value"


def told(**options: Any) -> Wrong:
    """``VALUE``: the device takes options for other values than a user set and reads; dots are written ``__``."""
    others = {name.replace("__", "."): value for name, value in options.items()}

    def wrong(original: Any, strategy: Any, name: str) -> Any:
        return others[name] if name in others else original(strategy, name)

    return wrong
