"""Checks of structure: the executed slots, the IR graph and the errors that a vendor specifies."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from types import TracebackType
from typing import Any, Iterable, Iterator, Optional, Sequence, Tuple, Type, Union

from ipu_conformance import notes
from ipu_conformance.check.failure import CheckFailure, CheckMisuseError, failure

_MOST_SENTENCES = 3


def trace_equals_plan(*, trace: Iterable[Any], plan: Iterable[Any]) -> None:
    """Exactly the planned slots were executed, and no slot before one of an earlier tick."""
    __tracebackhide__ = True
    executed, planned = list(trace), list(plan)
    if not planned:
        raise CheckMisuseError("the plan has no slots, so that the check could not fail")
    times, wanted = Counter(executed), Counter(planned)
    numbers = f"{len(executed)} slots executed, {len(planned)} planned"
    for slot in planned:
        if times[slot] < wanted[slot]:
            raise failure(f"the trace has no {slot}, which the plan has ({numbers}).")
    for slot in executed:
        if times[slot] > wanted[slot]:
            raise failure(f"the trace has {slot} {_times(times[slot])}, the plan {_times(wanted[slot])} ({numbers}).")
    for number, (before, after) in enumerate(zip(executed, executed[1:])):
        if after.tick < before.tick:
            raise failure(
                f"the trace is out of order at slot {number + 1}: {after}, after {before}; "
                "slots of an earlier tick come first by specification."
            )


def ir_equal(*, actual: Any, expected: Any, what: str = "the IR graph", structural: bool = False) -> None:
    """Two IR graphs are the same but for the order of ops; ``structural`` ones are the same but for all names too."""
    __tracebackhide__ = True
    from ipu_conformance.ir import dumps
    from ipu_conformance.ir.compare.difference import diff

    if notes.wanted():
        notes.tell("ir", dumps(actual, "json").decode("utf-8"))
    sentences = [str(difference).rstrip(".") for difference in diff(expected, actual, structural=structural)]
    if sentences:
        rest = len(sentences) - _MOST_SENTENCES
        more = f"; and {rest} more" if rest > 0 else ""
        raise failure(f"{what} differs from what is expected: {'; '.join(sentences[:_MOST_SENTENCES])}{more}.")


class raises:  # noqa: N801  a check reads as a verb, like its siblings
    """The block raises one of ``errors`` with a message that ``match`` is found in; without one any message will do.

    The exception is ``.value`` afterwards. Interrupts and exits pass through.
    """

    def __init__(
        self, errors: Union[Type[BaseException], Tuple[Type[BaseException], ...]], *, match: str = "", what: str
    ) -> None:
        self._errors: Sequence[Type[BaseException]] = errors if isinstance(errors, tuple) else (errors,)
        self._match = match
        self._what = what
        self.value: Optional[BaseException] = None

    def __enter__(self) -> raises:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> bool:
        __tracebackhide__ = True
        names = " or ".join(each.__name__ for each in self._errors)
        if error is None:
            matching = f" matching {self._match!r}" if self._match else ""
            raise failure(f"{self._what} raises nothing where {names}{matching} is specified.")
        if not isinstance(error, tuple(self._errors)):
            if not isinstance(error, Exception):
                return False
            raise failure(
                f"{self._what} raises {type(error).__name__} where {names} is specified: {_one_line(error)}."
            ) from error
        if not re.search(self._match, str(error)):
            raise failure(
                f"{self._what} raises {type(error).__name__}, but its message {_one_line(error)!r} does not match "
                f"{self._match!r}."
            ) from error
        self.value = error
        return True


@contextlib.contextmanager
def accepted(what: str) -> Iterator[None]:
    """The block raises no error: what it does is specified to work. Failures of checks inside it stay what they are."""
    __tracebackhide__ = True
    try:
        yield
    except CheckFailure:
        raise
    except Exception as error:
        raise failure(
            f"{what} raises {type(error).__name__} where it is specified to work: {_one_line(error)}."
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times") if number else "never"
