"""Strategies that the tests of the executor share."""

from __future__ import annotations

from typing import Any, Tuple

from hypothesis import strategies as st

from ipu_conformance.emulator.core.streams import Layout


@st.composite
def layouts(draw: Any) -> Layout:
    """Layouts with small factors and groups that divide the replicas."""
    replicas = draw(st.integers(1, 4))
    grouping = draw(st.sampled_from([size for size in range(1, replicas + 1) if replicas % size == 0]))
    by = draw(st.sampled_from(["consecutive", "orthogonal"]))
    return Layout(draw(st.integers(1, 3)), draw(st.integers(1, 3)), replicas, grouping, by)


@st.composite
def modes(draw: Any, layout: Layout) -> Tuple[str, int]:
    """An output mode with a period that divides the micro-batches of the layout."""
    name = draw(st.sampled_from(["All", "Final", "Sum", "EveryN"]))
    periods = [period for period in range(1, layout.micro_batches + 1) if layout.micro_batches % period == 0]
    return name, draw(st.sampled_from(periods)) if name == "EveryN" else 1
