"""The dumped IR of the workload's network is the one that was reviewed."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import ir
from ipu_conformance.ir import checks

from .golden import GOLDEN, graph, path


@pytest.mark.parametrize("name", GOLDEN)
def test_the_dumped_graph_is_the_golden_one(paddle: Any, name: str) -> None:
    """Ops, attributes, shapes, types and placement are those of the golden file."""
    differences = ir.diff(ir.read(path(name)), graph(name))

    assert not differences, "\n".join(map(str, differences))


@pytest.mark.parametrize("name", GOLDEN)
def test_the_dumped_graph_is_sound(paddle: Any, name: str) -> None:
    """Shapes follow from one another, every op is placed, and data flows to the same or a later stage."""
    dumped = graph(name)

    assert checks.shapes(dumped) == []
    assert checks.placement(dumped, stages=GOLDEN[name].ipus > 1) == []
    assert checks.stage_order(dumped) == []
