"""How a check fails: one sentence, and where a case is known, the command that runs it alone."""

from __future__ import annotations

import shlex
from contextvars import ContextVar
from typing import NamedTuple, Optional

from ipu_conformance.errors import ConformanceError


class CheckFailure(AssertionError):  # noqa: N818  pytest reports an AssertionError as a failure, not an error
    """A device did not do what the specification says; the first line is the sentence that says how."""


class CheckMisuseError(ConformanceError):
    """A check was asked for something it cannot decide, so that a pass would mean nothing."""


class CaseReference(NamedTuple):
    """The case under way: what ``ipu-conformance case`` needs to run it alone."""

    id: str
    target: str = "auto"

    def command(self) -> str:
        """The command line that reproduces the case."""
        quoted = shlex.quote(self.id) if "'" in self.id else f"'{self.id}'"
        return f"ipu-conformance case {quoted}{self.on_target}"

    @property
    def on_target(self) -> str:
        """The option that names the target; elsewhere the case might pass."""
        return "" if self.target == "auto" else f" --ipu-target {shlex.quote(self.target)}"


current_case: ContextVar[Optional[CaseReference]] = ContextVar("current_case", default=None)
"""The case under way; the pytest plug-in sets it, and failures then say how to reproduce them."""


def failure(sentence: str) -> CheckFailure:
    """The exception for ``sentence``, with the command that reproduces the current case if there is one."""
    case = current_case.get()
    return CheckFailure(sentence if case is None else f"{sentence}\nreproduce: {case.command()}")
