"""What needs the vendor's compiler or its runtime: it can be imported, and refuses to be used with the reason."""

from __future__ import annotations

from typing import Any, Callable, Type

from ipu_conformance.errors import ConformanceError


class UnavailableError(ConformanceError, NotImplementedError):
    """Something was asked for that only the vendor's SDK can do."""


def function(name: str, why: str) -> Callable[..., Any]:
    """A function of that name which refuses every call with the reason."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnavailableError(_sentence(name, why))

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refuses to be called: {why}."
    return refuse


def kind(name: str, why: str) -> Type[Any]:
    """A class of that name of which nothing can be made, for the reason; it can be named and derived from."""

    def refuse(cls: Type[Any], *args: Any, **kwargs: Any) -> Any:
        raise UnavailableError(_sentence(name, why))

    return type(name, (), {"__new__": refuse, "__doc__": f"Refuses to be made: {why}."})


def _sentence(name: str, why: str) -> str:
    return f"{name} is not available on the emulator: {why}; run it with the vendor's SDK."
