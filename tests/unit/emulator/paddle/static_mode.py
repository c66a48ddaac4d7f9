"""Programs of stock Paddle for the tests of single modules."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import paddle
from paddle.base import core, framework


@contextlib.contextmanager
def static() -> Iterator[Tuple[Any, Any, Any]]:
    """A fresh program, its startup program and a scope in static mode."""
    program, startup, scope = paddle.static.Program(), paddle.static.Program(), core.Scope()
    paddle.enable_static()
    try:
        guards = paddle.static.program_guard(program, startup), paddle.static.scope_guard(scope)
        with guards[0], guards[1], framework.unique_name.guard():
            yield program, startup, scope
    finally:
        paddle.disable_static()


def run(program: Any, feed: Dict[str, np.ndarray], fetch: Sequence[str], scope: Any) -> List[np.ndarray]:
    """One run on stock Paddle."""
    made: List[np.ndarray] = paddle.static.Executor(paddle.CPUPlace()).run(
        program, feed=feed, fetch_list=list(fetch), scope=scope
    )
    return made
