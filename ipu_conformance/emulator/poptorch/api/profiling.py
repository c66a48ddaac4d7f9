"""``poptorch.profiling``: named intervals that a program marks for itself."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any, Callable, Iterator, List, NamedTuple

from ipu_conformance.emulator.poptorch.options.diagnostics import TRACE as _TRACE
from ipu_conformance.emulator.poptorch.options.diagnostics import logger


class _Span(NamedTuple):
    """An interval from ``begin`` to ``end``, in seconds of a monotonic clock."""

    name: str
    begin: float
    end: float


class Channel:
    """A named row of marks; every mark that has ended is in ``spans`` and, at level TRACE, in the log."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spans: List[_Span] = []

    @contextlib.contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:
        """Mark what runs inside the block."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            span = _Span(name, begin, time.perf_counter())
            self.spans.append(span)
            logger.log(_TRACE, "%s: %s took %.6f s", self.name, name, span.end - begin)

    def instrument(self, obj: object, *methods: str) -> None:
        """Mark every call of the named methods of one object."""
        for method in methods:
            setattr(obj, method, self._marked(getattr(obj, method), f"{type(obj).__name__}.{method}"))

    def _marked(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with self.tracepoint(name):
                return function(*args, **kwargs)

        return marked
