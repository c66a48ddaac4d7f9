"""The bar that shows how far a compilation is; only where a person watches."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Iterator

STEPS = ("capture", "placement", "stages", "plan", "memory")
"""What compiling does, in order; each is one step of the bar."""


@contextlib.contextmanager
def compilation(options: Any) -> Iterator[Callable[[str], None]]:
    """Give a function that is told each step when it is done; it draws on stderr if that is a terminal."""
    if not (options.show_compilation_progress_bar and sys.stderr.isatty()):
        yield lambda step: None
        return
    from tqdm import tqdm

    with tqdm(total=len(STEPS), desc="Graph compilation", file=sys.stderr) as bar:

        def done(step: str) -> None:
            bar.set_postfix_str(step, refresh=False)
            bar.update()

        yield done
