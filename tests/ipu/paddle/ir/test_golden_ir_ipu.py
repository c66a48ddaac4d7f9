"""The dumped IR of the workload's network is the one that was reviewed."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check, ir
from ipu_conformance.ir import checks

from .golden import GOLDEN, graph, path


@pytest.mark.emulator
@pytest.mark.parametrize("name", GOLDEN)
def test_the_dumped_graph_is_the_golden_one(paddle: Any, name: str) -> None:
    """Ops, attributes, shapes, types and placement are those of the golden file, which pins the emulator."""
    check.ir_equal(actual=graph(name), expected=ir.read(path(name)), what=f"the dump of {name}")


@pytest.mark.parametrize("name", GOLDEN)
def test_the_dumped_graph_is_sound(paddle: Any, name: str) -> None:
    """Shapes follow from one another, every op is placed, and data flows to the same or a later stage."""
    dump = graph(name)
    placement = checks.placement(dump, stages=GOLDEN[name].ipus > 1)

    check.equal(actual=checks.shapes(dump) + placement + checks.stage_order(dump), expected=[], what="what is unsound")
