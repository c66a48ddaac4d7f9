"""What a check accepts as a tolerance: an object that is derived and explains itself, never a bare number."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ToleranceLike(Protocol):
    """A derived tolerance: the difference allowed at each element, and the reason in words."""

    @property
    def allowed(self) -> Any:
        """The largest allowed absolute difference, in a shape that broadcasts to the expected values."""

    def explain(self) -> str:
        """Where the tolerance comes from."""


def require(tolerance: Any) -> ToleranceLike:
    """``tolerance`` itself if it explains itself; a bare number or anything else is refused."""
    if isinstance(tolerance, ToleranceLike):
        return tolerance
    raise TypeError(
        f"tolerance is {tolerance!r}; a check takes a derived tolerance with .allowed and .explain(), "
        "such as ipu_conformance.oracle.tolerance.ops gives, never a bare number"
    )
