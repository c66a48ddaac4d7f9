"""The one exception family that the project raises for what a user gave it."""

from __future__ import annotations


class ConformanceError(Exception):
    """Something that was given cannot be used; the message is one sentence that says what, and what to do.

    Each area derives its own narrow class from this one. The command line prints the message and exits with 2.
    """


class Inexpressible(Exception):  # noqa: N818 - it is an answer, not an error
    """A framework's public API cannot express a call of an op; the message is the reason."""
