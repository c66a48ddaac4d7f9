"""Which of Paddle's ops an IPU build has handlers for, as data: ``REGISTER_HANDLER`` in its canonicalization."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import FrozenSet


@functools.lru_cache(maxsize=None)
def handlers() -> FrozenSet[str]:
    """The ops that have a handler in the vendor's sources."""
    facts = json.loads((Path(__file__).parent / "handlers.json").read_text())
    return frozenset(facts["handlers"])
