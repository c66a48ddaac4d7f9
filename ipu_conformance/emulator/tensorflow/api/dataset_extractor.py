"""Writing the elements of a data set to files that an executable reads, which only the vendor's runtime can."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

_WHY = "the files have the format of the vendor's runtime"

dataset_extractor = _unavailable_function("dataset_extractor", _WHY)

__all__ = ["dataset_extractor"]
