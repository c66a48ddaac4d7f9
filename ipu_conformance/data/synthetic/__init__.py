"""Data sets made on the spot, with the same bytes on every platform: integers and counter-based random words only.

The table has the sets, and the random stream that belongs to each of their splits.
"""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Tuple

import numpy as np

from ipu_conformance.data.dataset import SPLITS, DataError, Split
from ipu_conformance.data.synthetic.digits import digits
from ipu_conformance.data.synthetic.shapes import shapes

Draw = Callable[[int, int, int, int], Tuple[np.ndarray, np.ndarray]]

MAX_SAMPLES = 10_000_000
MAX_SEED = 2**64 - 1


class Maker(NamedTuple):
    """A row of the table: ``draw(seed, stream, first, count)``; split number s draws from ``stream + s``."""

    draw: Draw
    stream: int


MAKERS: Dict[str, Maker] = {
    "synthetic-digits": Maker(digits, stream=0),
    "synthetic-cifar": Maker(shapes, stream=16),
}


def make(name: str, split: str, count: int, *, seed: int, first: int = 0) -> Split:
    """Samples ``first`` to ``first + count`` of a split; sample i is the same whatever else is asked for."""
    if not 0 <= seed <= MAX_SEED:
        raise DataError(f"seed is {seed}; it has to be from 0 to 2**64 - 1")
    if not 0 <= first <= first + count <= MAX_SAMPLES:
        raise DataError(
            f"{name} has up to {MAX_SAMPLES:,} samples and not {first:,} to {first + count:,}; ask for fewer"
        )
    maker = MAKERS[name]
    return Split(*maker.draw(seed, maker.stream + SPLITS.index(split), first, count))
