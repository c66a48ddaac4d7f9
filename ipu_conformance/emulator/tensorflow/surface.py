"""The surface of the vendor's packages: modules imported on first use, and names that only the vendor's SDK can serve.

This module imports no TensorFlow: it is needed while TensorFlow itself is imported.
"""

from __future__ import annotations

import ast
import importlib
import inspect
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


class UnavailableError(ConformanceError, NotImplementedError):
    """A program asked for something that only the vendor's SDK can do."""


def unavailable_function(name: str, why: str, parameters: Optional[str] = None) -> Callable[..., Any]:
    """A function of that name which refuses every call with the reason; ``parameters`` are written as in Python."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnavailableError(_refusal(name, why))

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refuses to be called: {why}."
    if parameters is not None:
        refuse.__signature__ = signature_of(parameters)  # type: ignore[attr-defined]
    return refuse


def unavailable_class(
    name: str, why: str, parameters: Optional[str] = None, methods: Optional[Mapping[str, str]] = None
) -> Type[Any]:
    """A class that refuses to be instantiated, with the reason; programs can name it and derive from it."""

    def refuse(cls: Type[Any], *args: Any, **kwargs: Any) -> Any:
        raise UnavailableError(_refusal(name, why))

    if parameters is not None:
        refuse.__signature__ = signature_of(f"cls, {parameters}")  # type: ignore[attr-defined]
    members: Dict[str, Any] = {"__new__": refuse, "__doc__": f"Refuses to be made: {why}."}
    for method, own in {**({} if parameters is None else {"__init__": parameters}), **(methods or {})}.items():
        members[method] = unavailable_function(f"{name}.{method}", why, f"self, {own}" if own else "self")
    return type(name, (), members)


def signature_of(parameters: str) -> inspect.Signature:
    """The signature of a function with these parameters, whose defaults are literals."""
    (function,) = ast.parse(f"def function({parameters}): pass").body
    assert isinstance(function, ast.FunctionDef)
    given, kinds = function.args, inspect.Parameter
    required = len(given.args) - len(given.defaults)
    made = [
        kinds(
            argument.arg,
            kinds.POSITIONAL_OR_KEYWORD,
            default=kinds.empty if place < required else ast.literal_eval(given.defaults[place - required]),
        )
        for place, argument in enumerate(given.args)
    ]
    if given.vararg is not None:
        made.append(kinds(given.vararg.arg, kinds.VAR_POSITIONAL))
    if given.kwarg is not None:
        made.append(kinds(given.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(made)


def _refusal(name: str, why: str) -> str:
    return f"{name} is not available on the emulator: {why}; run it with the vendor's SDK."
