"""The one exception that the data sets raise."""

from __future__ import annotations

from ipu_conformance.errors import ConformanceError


class DataError(ConformanceError):
    """A data set was not found, cannot be read or cannot be fetched."""
