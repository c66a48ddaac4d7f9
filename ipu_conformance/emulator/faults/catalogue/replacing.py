"""Puts something else in the place of what the emulator holds, wherever it is held, and takes it back."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from typing import Any, Callable, List, Tuple

from ipu_conformance.errors import ConformanceError

EMULATOR = "ipu_conformance.emulator"
STOCK = "stock."
"""How places begin that are in the vendor's own Python."""

Wrong = Callable[..., Any]
"""At a point: ``wrong(value, *, memory, **context)`` gives the wrong value. Of a function:
``wrong(original, *arguments, **settings)`` gives the wrong result. Of a name: ``wrong(value)`` is what it stands for,
GONE for nothing. ``memory`` is a dict, kept while the fault is on."""


class FaultError(ConformanceError):
    """A fault or its place has a name that is unknown or taken."""


def replace_function(place: str, wrong: Wrong) -> Callable[[], None]:
    """Put ``wrong(original, …)`` in the place of a function, in every module of the emulator that holds it."""
    owner, name = owner_of(place)
    return replace(owner, name, wrapped(inspect.getattr_static(owner, name), wrong, place))


def replace(owner: Any, name: str, new: Any) -> Callable[[], None]:
    """Put ``new`` in the place of what a class, or a module and others of the emulator, hold under a name."""
    raw = inspect.getattr_static(owner, name)
    inherited = name not in vars(owner)
    for holder in holders(owner, name, raw):
        setattr(holder, name, new)

    def undo() -> None:
        # A module that was imported meanwhile holds what is wrong, too.
        for holder in holders(owner, name, new):
            if inherited:
                delattr(holder, name)
            else:
                setattr(holder, name, raw)

    return undo


def holders(owner: Any, name: str, value: Any) -> List[Any]:
    """Who holds something: its class, or its module and those of the emulator that imported it by name."""
    if not inspect.ismodule(owner):
        return [owner]
    ours = [module for key, module in list(sys.modules.items()) if key.startswith(EMULATOR) and module is not None]
    return [owner, *(module for module in ours if module is not owner and vars(module).get(name) is value)]


def owner_of(place: str) -> Tuple[Any, str]:
    """The module or class that holds what stands at a place, and the name that it has there."""
    module, _, path = place.partition(":")
    *classes, name = path.split(".")
    absolute = module[len(STOCK) :] if module.startswith(STOCK) else f"{EMULATOR}.{module}"
    try:
        owner = functools.reduce(getattr, classes, importlib.import_module(absolute))
        if inspect.ismodule(owner) and name not in vars(owner):  # a module inside, unless there is nothing
            importlib.import_module(f"{owner.__name__}.{name}")
        inspect.getattr_static(owner, name)
    except (ImportError, AttributeError) as error:
        raise FaultError(f"the emulator has no function at {place!r}: {error}") from error
    return owner, name


def wrapped(raw: Any, wrong: Wrong, place: str) -> Any:
    """A function, method or property that calls ``wrong`` with the original in front."""
    if isinstance(raw, (staticmethod, classmethod)):
        return type(raw)(wrapped(raw.__func__, wrong, place))
    if isinstance(raw, property):
        return property(wrapped(raw.fget, wrong, place), raw.fset, raw.fdel, raw.__doc__)
    if not callable(raw):
        raise FaultError(f"what stands at {place!r} is no function")

    @functools.wraps(raw)
    def call(*arguments: Any, **settings: Any) -> Any:
        return wrong(raw, *arguments, **settings)

    return call
