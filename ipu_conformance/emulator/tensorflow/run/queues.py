"""Constructors of queues, which take the arguments of earlier SDKs too."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Tuple

OLD: Dict[str, Tuple[int, Tuple[str, ...]]] = {
    "IPUInfeedQueue": (1, ()),
    "IPUOutfeedQueue": (0, ("feed_name", "outfeed_all", "replication_factor", "io_batch_size")),
}
"""Where the name of a queue stood, and the arguments that only earlier SDKs had; an infeed still knows its own."""


def of_any_sdk(kind: str, modes: Any = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator of a queue's constructor."""
    place, names = OLD[kind]

    def changed(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def made(self: Any, *args: Any, **kwargs: Any) -> None:
            if isinstance(dict(enumerate(args)).get(place), str) or any(name in kwargs for name in names):
                from ipu_conformance.emulator.tensorflow.legacy import queues

                args, kwargs = queues.today(kind, args, kwargs, modes)
            init(self, *args, **kwargs)

        return made

    return changed
