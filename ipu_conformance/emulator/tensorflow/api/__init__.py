"""The emulated ``tensorflow.python.ipu``: what a program gets for it when the target is the emulator.

Importing the package imports no TensorFlow: it is already needed while TensorFlow itself is imported. A module is
imported when it is first asked for; those of ``ops`` and ``optimizers`` are also found under the package itself, and
both names give the same object.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, Dict, List

HERE = Path(__file__).parent
INNER = ("ops", "optimizers")
"""The packages whose modules are also modules of this one."""


def inner_modules() -> Dict[str, str]:
    """Where each module stands that is found in an inner package."""
    return {
        found.name: f"{package}.{found.name}"
        for package in INNER
        for found in pkgutil.iter_modules([str(HERE / package)])
        if not found.name.startswith("_")
    }


def _own_modules() -> List[str]:
    return [found.name for found in pkgutil.iter_modules([str(HERE)])]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    where = name if name in _own_modules() else inner_modules().get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{where}")
    globals()[name] = module
    return module


def __dir__() -> List[str]:
    return sorted({*globals(), *_own_modules(), *inner_modules()})
