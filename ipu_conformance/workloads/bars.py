"""Progress bars of trainings: on stderr, and only where it is a terminal; a log gets none. Lines go above them."""

from __future__ import annotations

import sys
from typing import Any, Iterable, Optional

from tqdm import tqdm


def bar(items: Optional[Iterable[Any]] = None, *, title: str, total: Optional[int] = None, unit: str) -> tqdm:
    """A bar over items, or one that is moved on by hand up to ``total``; without a title there is none."""
    return tqdm(items, desc=title, total=total, disable=None if title else True, file=sys.stderr, unit=unit)


def say(line: str) -> None:
    """Print a line above the bars."""
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()
