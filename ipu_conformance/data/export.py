"""Writing samples of a data set as PNG files, for eyes and for programs that take one picture."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Sequence

import numpy as np

from ipu_conformance.atomic_write import replacing
from ipu_conformance.data.dataset import CLASSES, DataError, Split


def choose(labels: np.ndarray, count: int, digit: Optional[int]) -> List[int]:
    """The numbers of ``count`` samples: of one class, or of each class in turn, so that ten are one of each."""
    classes: Sequence[int] = range(CLASSES) if digit is None else (digit,)
    by_class = [np.flatnonzero(labels == label).tolist() for label in classes]
    chosen: List[int] = []
    for turn in range(max(map(len, by_class))):
        chosen += [numbers[turn] for numbers in by_class if turn < len(numbers)]
        if len(chosen) >= count:
            return chosen[:count]
    of = "" if digit is None else f" of class {digit}"
    raise DataError(f"there are {len(chosen):,} samples{of} and {count:,} were asked for; ask for fewer")


def export(split: Split, name: str, to: Path, count: int, digit: Optional[int] = None) -> List[Path]:
    """Write ``count`` samples to ``to`` as ``NAME-LABEL-NUMBER.png`` and return the paths."""
    if count < 1:
        raise DataError(f"count is {count}; ask for one sample or more")
    from PIL import Image

    numbers = choose(split.labels, count, digit)
    paths = []
    try:
        to.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            path = to / f"{name}-{split.labels[number]}-{number:05d}.png"
            pixels = split.images[number]
            with replacing(path) as part:
                Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(part, "PNG")
            paths.append(path)
    except OSError as error:
        raise DataError(f"{to} cannot be written to ({error}); name another folder with --to") from error
    return paths
