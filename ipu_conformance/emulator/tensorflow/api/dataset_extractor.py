"""Writing the elements of a data set to files that an executable reads, which only the vendor's runtime can."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow import unavailable

WHY = "the files have the format of the vendor's runtime"

dataset_extractor = unavailable.function("dataset_extractor", WHY)

__all__ = ["dataset_extractor"]
