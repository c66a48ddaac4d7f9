"""What a case shows besides passing or failing: margins to tolerance, curves, timelines.

Checks, the oracle and drivers tell; who listens is none of their business. Without a listener nothing is computed.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Optional

Listener = Callable[[str, Any], None]
"""``listen(kind, facts)`` takes a note; facts are plain data."""

NOT_SHOWN = "the target does not show "
"""How the reason begins for which a case is skipped that looks at more than the vendor's API shows."""

_listener: Optional[Listener] = None


def wanted() -> bool:
    """Whether anybody listens."""
    return _listener is not None


def tell(kind: str, facts: Any) -> None:
    """Hand a note to the listener, if there is one."""
    if _listener is not None:
        _listener(kind, facts)


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Inside the block, the notes go to a listener."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before
