"""Samples of ops drawn by hypothesis: the choosers' integers are its integers, so shapes and attributes shrink."""

from __future__ import annotations

from hypothesis import strategies as st

from ipu_conformance.oracle.op import Op
from ipu_conformance.oracle.sample import Chooser, Sample


class DrawnChooser(Chooser):
    """Choices that hypothesis makes."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


@st.composite
def choosers(draw: st.DrawFn) -> Chooser:
    """A chooser to draw several things with."""
    return DrawnChooser(draw)


@st.composite
def samples(draw: st.DrawFn, op: Op) -> Sample:
    """A sample of ``op``."""
    return op.draw(DrawnChooser(draw))
