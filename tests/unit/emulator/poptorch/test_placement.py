"""From blocks to stages, topology, schedule and phases."""

from __future__ import annotations

import logging
import re
from typing import Any, List

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.poptorch.compile import blocks, partition, placement
from ipu_conformance.emulator.poptorch.options import Options
from ipu_conformance.emulator.poptorch.options import strategies as execution
from ipu_conformance.emulator.poptorch.options.diagnostics import Error, logger
from tests.unit.examples import at_most

from .placed_models import Chain, captured, placed

IPUS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@given(IPUS)
@at_most(15)
def test_a_pipeline_has_the_stages_of_the_topology(ipus: List[int]) -> None:
    """Stages are the changes of IPU from IPU 0, operations are on their blocks' IPUs, and values flow forwards."""
    made = placed(Chain(ipus), execution.PipelinedExecution())

    path = [0, *ipus]
    assert list(made.topology.placement) == [0] + [ipu for before, ipu in zip(path, ipus) if ipu != before]
    assert [made.topology.placement[stage] for stage in made.stage_of.values()] == ipus
    for node, stage in made.stage_of.items():
        assert all(made.stage_of[source] <= stage for source in node.all_input_nodes if source in made.stage_of)
    assert (made.schedule, made.pipelined, set(made.phases)) == ("popart", True, {0})


@given(IPUS)
@at_most(15)
def test_shards_begin_where_the_model_does(ipus: List[int]) -> None:
    """Shards have no empty first stage, and work one after the other."""
    made = placed(Chain(ipus), execution.ShardedExecution(), iterations=1)

    changes = [ipu for number, ipu in enumerate(ipus) if number == 0 or ipus[number - 1] != ipu]
    assert list(made.topology.placement) == changes
    assert (made.schedule, made.pipelined) == ("sequential", False)
    assert made.ipus == max(ipus) + 1


@given(IPUS)
@at_most(10)
def test_the_stages_compute_what_the_model_does(ipus: List[int]) -> None:
    """Cut at its stages and run one after the other, a model gives its own output."""
    model = Chain(ipus)
    graph = captured(model)
    options = Options().useIpuModel(True).deviceIterations(64)
    made = placement.place(graph, options, False)
    x, handed, output = torch.tensor([[3.0, -5.0]]), {}, None
    for stage in partition.cut(graph, made.stage_of, made.topology.stages):
        results = stage.run(*[x for _ in stage.inputs], *[handed[name] for name in stage.received])
        handed = dict(zip(stage.handed, results))
        output = results[-1] if stage.outputs else output

    assert torch.equal(output, model(x))


def test_a_model_without_blocks_is_on_ipu_zero() -> None:
    """Everything is one stage, and one micro-batch is enough."""

    class Plain(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (x * 2).max(1)[0]

    made = placed(Plain(), execution.PipelinedExecution(), iterations=1)

    assert set(made.stage_of.values()) == {0}
    assert made.topology.placement == (0,)


def test_picking_a_result_is_where_the_operation_is() -> None:
    """The results of an operation are taken on its own IPU, also when another block has begun."""

    class Picking(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            blocks.Block.start(ipu_id=0)
            both = x.max(1)
            blocks.Block.start(ipu_id=1)
            return both[0] + both[1]

    made = placed(Picking(), execution.PipelinedExecution())

    assert {node.name: stage for node, stage in made.stage_of.items()} == {
        "max_1": 0,
        "getitem": 0,
        "getitem_1": 0,
        "add": 1,
    }


def test_an_operation_that_carries_no_block_is_with_its_inputs() -> None:
    """What the tracer adds is in the latest stage of what it reads."""
    graph = captured(Chain([0, 1, 2]))
    for node in graph.module.graph.nodes:
        if node.name == "add_1":
            node.meta["custom"] = {}
    made = placement.place(graph, Options().useIpuModel(True).deviceIterations(9), False)

    ipus = {node.name: made.topology.placement[stage] for node, stage in made.stage_of.items()}
    assert ipus == {"add": 0, "add_1": 0, "add_2": 2}


def test_phases_are_stages_of_their_own() -> None:
    """Two phases on one IPU are two stages, and each stage knows its phase."""
    strategy = execution.SerialPhasedExecution(
        "block0", [execution.Stage("block1"), execution.Stage("block2")], "block3"
    )
    made = placed(Chain([0, 0, 0, 0]), strategy, iterations=1)

    assert made.topology.placement == (0, 0, 1, 0)
    assert made.phases == (0, 1, 1, 2)
    assert [made.phases[stage] for stage in made.stage_of.values()] == [0, 1, 1, 2]
    assert (made.mode, made.schedule) == ("SerialPhased", "sequential")


@pytest.mark.parametrize(("replicas", "rounded"), [(1, 4), (3, 16), (5, 16)])
def test_rounding_reserves_for_all_replicas_together(replicas: int, rounded: int) -> None:
    """The power of two is that of all IPUs of all replicas; a replica itself holds what it uses."""
    made = placed(
        Chain([0, 1, 2]),
        execution.ShardedExecution(),
        useIpuModel=False,
        autoRoundNumIPUs=True,
        replicationFactor=replicas,
    )

    assert made.ipus == rounded
    assert (made.topology.ipus_per_replica, made.topology.replicas) == (3, replicas)


def test_every_operation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """At level DEBUG there is a line for each operation with the line that calls it, its mode, IPU and stage."""
    logger.setLevel(logging.DEBUG)
    try:
        with caplog.at_level(logging.DEBUG, logger=logger.name):
            placed(Chain([0, 2]), execution.PipelinedExecution())
    finally:
        logger.setLevel(logging.WARNING)

    lines = [record.getMessage() for record in caplog.records if record.name == logger.name]
    assert [re.sub(r"\(\S+(placed_models\.py):\d+\)", r"(\1)", line) for line in lines] == [
        "add (placed_models.py) mode(Pipelined), ipu(0), stage(0)",
        "add_1 (placed_models.py) mode(Pipelined), ipu(2), stage(1)",
    ]


def test_each_forward_starts_anew() -> None:
    """Automatic ids and the block of the moment do not outlive a capture, also one that failed."""

    class Failing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            blocks.Block.useAutoId()
            blocks.Block.start(ipu_id=3)
            raise Error("on purpose")

    with pytest.raises(Error, match="on purpose"):
        captured(Failing())

    assert blocks.current_forward() is None
    made = placed(Chain([1]), execution.ShardedExecution())
    assert [made.topology.placement[stage] for stage in made.stage_of.values()] == [1]
