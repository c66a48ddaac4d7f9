"""The surface of the vendor's packages: modules imported on first use, and names that only the vendor's SDK can serve.

This module imports no TensorFlow: it is needed while TensorFlow itself is imported.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type

from ipu_conformance.errors import ConformanceError

FOLDER = Path(__file__).parent / "api"
INNER = ("ops", "optimizers")
"""The packages whose modules are also modules of ``tensorflow.python.ipu`` itself."""


def inner_modules() -> Dict[str, str]:
    """Where each module of an inner package is, by its name in ``tensorflow.python.ipu``."""
    return {
        module.name: f"{package}.{module.name}"
        for package in INNER
        for module in pkgutil.iter_modules([str(FOLDER / package)])
    }


def lazy(
    package: str, modules: Optional[Mapping[str, str]] = None, members: Optional[Mapping[str, str]] = None
) -> Tuple[Callable[[str], Any], Callable[[], List[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that imports what it holds on first use.

    It holds its own modules, ``modules`` of packages inside it, and ``members`` of its modules, each by where it is.
    """
    own = {module.name: module.name for module in pkgutil.iter_modules(sys.modules[package].__path__)}
    places, members = {**own, **(modules or {})}, members or {}

    def find(name: str) -> Any:
        if name in members:
            return getattr(importlib.import_module(f"{package}.{members[name]}"), name)
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{places[name]}")

    return find, lambda: sorted({*vars(sys.modules[package]), *places, *members})


EXPORT_NEEDS_COMPILER = "an export for serving holds an executable that the vendor's compiler makes"


class UnavailableError(ConformanceError, NotImplementedError):
    """A program asked for something that only the vendor's SDK can do."""


def unavailable_function(name: str, why: str) -> Callable[..., Any]:
    """A function of that name which refuses every call with the reason."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnavailableError(_refusal(name, why))

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refuses to be called: {why}."
    return refuse


def unavailable_class(name: str, why: str) -> Type[Any]:
    """A class that refuses to be instantiated, with the reason; programs can name it and derive from it."""

    def refuse(cls: Type[Any], *args: Any, **kwargs: Any) -> Any:
        raise UnavailableError(_refusal(name, why))

    return type(name, (), {"__new__": refuse, "__doc__": f"Refuses to be made: {why}."})


def _refusal(name: str, why: str) -> str:
    return f"{name} is not available on the emulator: {why}; run it with the vendor's SDK."
