"""The compiled program of a net has the net's layers, in their order, on the IPUs and stages of the cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipu_conformance import check, nets
from ipu_conformance.ir import checks, files

from ...training import CUT, Runs, cut
from ..training.config import counted

TYPES = {
    "linear": "MatMul",
    "conv": "Conv",
    "tanh": "Tanh",
    "relu": "Relu",
    "max_pool": "MaxPool",
    "avg_pool": "AveragePool",
    "batch_norm": "BatchNormalization",
}
"""The type of op that each layer must become; adding and flattening are part of other layers too."""


@pytest.mark.ipus(4)
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", CUT)
def test_layers_are_where_the_cut_puts_them(runs: Runs, tmp_path: Path, name: str, stages: int) -> None:
    """Every layer is an op of its type, on the IPU and in the stage of its guard.

    Shapes follow from the inputs' shapes, every op is placed, and data only flows to the same or a later stage.
    """
    driver, net, config = runs.driver, nets.NETS[name](), cut(name, counted(2, 7, 1), stages)
    with driver.build(net, config) as built:
        driver.compiled_for(built, driver.strategy(config, onnx_dump_path=str(tmp_path / "model.onnx")))
    graph = files.read(tmp_path / "model.onnx")

    expected = [(TYPES[layer.op], at, at) for layer, at in zip(net.layers, config.stages) if layer.op in TYPES]
    placed = [(op.type, op.ipu, op.stage) for op in graph.ops if op.type in TYPES.values()]
    unsound = checks.shapes(graph) + checks.placement(graph) + checks.stage_order(graph)
    check.equal(actual=placed, expected=expected, what="the op, IPU and stage of each layer")
    check.equal(actual=unsound, expected=[], what="what is unsound")
