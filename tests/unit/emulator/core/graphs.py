"""Small forward graphs for the tests of loads, memory and cost, and strategies that draw them with a plan."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

from hypothesis import strategies as st

from ipu_conformance.emulator.core.plan import Plan, plan
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Tensor

FLOAT = 4
"""Bytes of a float32."""


def chain(widths: Sequence[int], *, batch: int = 1, dtype: str = "FLOAT", skip: bool = False) -> Graph:
    """A multi-layer perceptron, one layer (MatMul, Relu) a stage; ``skip`` adds the first activation to the last.

    ``widths`` has one entry more than there are stages. Layer s turns x{s} into x{s+1} by way of h{s}.
    """
    ops: List[Op] = []
    tensors = [Tensor("x0", dtype, (batch, widths[0]))]
    stages = len(widths) - 1
    for s in range(stages):
        tensors.append(Tensor(f"w{s}", dtype, (widths[s], widths[s + 1])))
        tensors += [Tensor(f"{name}", dtype, (batch, widths[s + 1])) for name in (f"h{s}", f"x{s + 1}")]
        ops.append(Op("MatMul", f"layer{s}", (f"x{s}", f"w{s}"), (f"h{s}",), stage=s))
        ops.append(Op("Relu", f"relu{s}", (f"h{s}",), (f"x{s + 1}",), stage=s))
    output = f"x{stages}"
    if skip:
        tensors.append(Tensor("sum", dtype, (batch, widths[-1])))
        ops.append(Op("Add", "skip", ("x1", output), ("sum",), stage=stages - 1))
        output = "sum"
    return Graph("chain", ops, ["x0"], [output], tensors, [f"w{s}" for s in range(stages)])


class Case(NamedTuple):
    """A plan and what a graph for it is made from."""

    plan: Plan
    widths: List[int]
    skip: bool

    def graph(self, batch: int = 1, dtype: str = "FLOAT") -> Graph:
        """The graph for a micro-batch size."""
        return chain(self.widths, batch=batch, dtype=dtype, skip=self.skip)

    def planned(self, by: str, **changes: object) -> Plan:
        """The same plan by another schedule or with other switches."""
        settings = {"training": self.plan.training, "device_iterations": self.plan.device_iterations, **changes}
        return plan(self.plan.topology, by, self.plan.micro_batches, **settings)  # type: ignore[arg-type]


@st.composite
def cases(draw: st.DrawFn, training: st.SearchStrategy[bool] = st.booleans()) -> Case:  # noqa: B008
    """Plans of one to four stages by any schedule, with stages on IPUs of their own or shared where that is allowed."""
    by = draw(st.sampled_from(["sequential", "grouped", "interleaved", "popart"]))
    stages = draw(st.integers(1, 4))
    placement = tuple(range(stages))
    if by != "interleaved":
        placement = draw(st.sampled_from([placement, tuple(s % 2 for s in range(stages)), (0,) * stages]))
    trains = draw(training)
    drawn = plan(
        Topology(placement, draw(st.integers(1, 3)), ipus_per_replica=draw(st.sampled_from([0, stages + 1]))),
        by,
        draw(st.integers(1, 6)),
        training=trains,
        recompute=trains and draw(st.booleans()),
        device_iterations=draw(st.integers(1, 2)),
    )
    widths = draw(st.lists(st.integers(1, 9), min_size=stages + 1, max_size=stages + 1))
    skip = stages > 1 and draw(st.booleans())
    if skip:
        widths[-1] = widths[1]
    return Case(drawn, widths, skip)
