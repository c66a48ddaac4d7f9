"""Data sets made on the spot, with the same bytes on every platform: integers and counter-based random words only."""

from __future__ import annotations

from ipu_conformance.data.synthetic.make import make

__all__ = ["make"]
