"""The vendor's operations: queues, loops, compilation, scopes, pipelines, collectives and what stands around them.

A module is imported when it is first asked for; each is also a module of the package above, and is the same object.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, List


def _modules() -> List[str]:
    return [found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_")]


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in _modules():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> List[str]:
    return sorted({*globals(), *_modules()})
