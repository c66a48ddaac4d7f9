"""Errors as Paddle's core raises them: Python's own type for each kind, and the kind in front of the sentence.

The classes bear Paddle's own words for the kinds.
"""

from __future__ import annotations

from typing import ClassVar

from ipu_conformance.errors import ConformanceError


class PaddleError(ConformanceError):
    """Something that Paddle's core refuses; ``kind`` is the word in brackets before the sentence."""

    kind: ClassVar[str] = ""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"({self.kind}) {sentence}" if self.kind else sentence)


class InvalidArgument(PaddleError, ValueError):  # noqa: N818
    """A value is not one of those allowed."""

    kind = "InvalidArgument"


class NotFound(PaddleError, RuntimeError):  # noqa: N818
    """Something that is named does not exist."""

    kind = "NotFound"


class PreconditionNotMet(PaddleError, RuntimeError):  # noqa: N818
    """Something must have happened before."""

    kind = "PreconditionNotMet"


class Unavailable(PaddleError, RuntimeError):  # noqa: N818
    """The device cannot do it now."""

    kind = "Unavailable"


class Unimplemented(PaddleError, NotImplementedError):  # noqa: N818
    """IPU builds do not support it."""

    kind = "Unimplemented"


class UncastableError(PaddleError, RuntimeError):
    """A Python value has no counterpart in the type that an option is stored in."""


class PopartError(PaddleError, RuntimeError):
    """PopART refuses a graph or a session; it has no word in brackets."""
