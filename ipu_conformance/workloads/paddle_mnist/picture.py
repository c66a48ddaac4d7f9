"""A picture of one digit as the network takes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.paddle_mnist.batches import SIDE, scaled

MOST_PIXELS = 50_000_000
"""A larger picture is no picture of one digit."""


def read(path: Path) -> np.ndarray:
    """The digit in a picture of any size and colour as ``float32 [1, 1, 28, 28]``.

    Digits are light on dark, as in MNIST; a picture that is mostly light is taken for its negative.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise WorkloadError(
                    f"--img {path} has {picture.width} x {picture.height} pixels; give a picture of one digit with "
                    f"at most {MOST_PIXELS:,}"
                )
            pixels = np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    except FileNotFoundError:
        raise WorkloadError(f"--img {path} does not exist; name a picture of one digit") from None
    except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError):
        raise WorkloadError(f"--img {path} is no picture that can be read; give a PNG or JPEG of one digit") from None
    except (OSError, ValueError) as error:
        raise WorkloadError(f"--img {path} cannot be read ({error}); give a PNG or JPEG of one digit") from error
    if pixels.mean() > 127.5:
        pixels = 255 - pixels
    return scaled(pixels[np.newaxis, np.newaxis])
