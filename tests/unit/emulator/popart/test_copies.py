"""Copies between IPUs: every reader finds its values on its own IPU."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.popart import copies
from ipu_conformance.emulator.popart.program import Program
from ipu_conformance.ir import Graph, Op, Tensor, checks
from tests.unit.examples import at_most


def copied(ops: Sequence[Op], *, pipelined: bool) -> Graph:
    """The graph of ops that read t0, with its copies."""
    names = dict.fromkeys(["t0", *(name for op in ops for name in op.outputs)])
    program = Program(list(ops), {name: Tensor(name, "FLOAT", ()) for name in names}, ["t0"])
    copies.copy(program, pipelined=pipelined)
    return program.graph([])


placements = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 20), max_size=3)), min_size=1, max_size=12)


@at_most(200)
@given(placements)
def test_copies_bring_every_value_to_its_reader(drawn: Any) -> None:
    """However ops are spread over IPUs, after copying none reads what was made on another."""
    ops: List[Op] = []
    for number, (ipu, sources) in enumerate(drawn):
        inputs = tuple(f"t{source % (number + 1)}" for source in sources)
        ops.append(Op("Sum", "", inputs or ("t0",), (f"t{number + 1}",), ipu=ipu))

    graph = copied(ops, pipelined=False)

    assert checks.copies(graph) == []
    assert [op.outputs for op in graph.ops if op.type == "Sum"] == [op.outputs for op in ops]


@at_most(200)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
def test_in_a_pipeline_values_pass_stage_by_stage(ipus: List[int], data: Any) -> None:
    """A copy leaves from the IPU of its stage, and somebody reads it."""
    ops = []
    for stage, ipu in enumerate(ipus):
        source = data.draw(st.integers(0, stage), label="source")
        ops.append(Op("Relu", "", (f"t{source}",), (f"t{stage + 1}",), ipu=ipu, stage=stage))

    graph = copied(ops, pipelined=True)

    assert checks.copies(graph) == []
    moved = [op for op in graph.ops if op.type == "IpuCopy"]
    assert all(op.attributes["__sourceIpus"] == f"{{{op.ipu}}}" and op.ipu == ipus[op.stage or 0] for op in moved)
    assert all(graph.consumers(op.outputs[0]) for op in moved)


@pytest.mark.parametrize(
    ("ipus", "pipelined", "expected"),
    [
        ((0, 1, 2), True, [(0, 1), (1, 2)]),
        ((2, 1, 0), True, [(2, 1), (1, 0)]),
        ((0, 1, 2), False, [(0, 2)]),
        ((0, 1, 0), True, []),
        ((0, 0), True, []),
        ((0, 1, 2, 1, 3), True, [(0, 1), (1, 3)]),
    ],
)
def test_a_value_passes_every_stage_of_a_pipeline(
    ipus: Sequence[int], pipelined: bool, expected: List[Tuple[int, int]]
) -> None:
    """In a pipeline a value hops from stage to stage, elsewhere it goes straight; a second reader shares the copy."""
    last = len(ipus) - 1
    ops = [
        *(Op("Relu", "", ("t0",), (f"r{stage}",), ipu=ipu, stage=stage) for stage, ipu in enumerate(ipus)),
        *(Op("Tanh", "", ("r0",), (f"t{number}",), ipu=ipus[last], stage=last) for number in (1, 2)),
    ]

    moved = [op for op in copied(ops, pipelined=pipelined).ops if op.outputs[0].startswith("r0_c")]

    ways = [(op.attributes["__sourceIpus"], op.attributes["__destIpu"]) for op in moved]
    assert ways == [(f"{{{source}}}", target) for source, target in expected]
    assert [op.outputs[0] for op in moved] == [f"r0_c{target}" for _, target in expected]


def test_a_weight_goes_back_to_an_earlier_stage() -> None:
    """A weight that a later stage reads first is copied to the earlier one that reads it too."""
    ops = [
        Op("Relu", "", ("t0",), ("a",), ipu=2, stage=2),
        Op("Tanh", "", ("a",), ("b",), ipu=2, stage=2),
        Op("Tanh", "", ("t0",), ("c",), ipu=0, stage=0),
    ]

    graph = copied(ops, pipelined=True)

    assert checks.copies(graph) == []
    assert [op.inputs for op in graph.ops if op.type == "Tanh"] == [("a",), ("t0_c0",)]
