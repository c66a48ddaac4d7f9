"""The cost estimate: work of ops by hand, and laws that every estimate obeys."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.core import cost
from ipu_conformance.emulator.core.cost import OP_OVERHEAD, SYNC_OVERHEAD, VECTOR_BYTES, CostEstimateError, Work
from ipu_conformance.emulator.core.device import MK2
from ipu_conformance.emulator.core.plan import Kind, plan
from ipu_conformance.emulator.core.topology import Topology, pipeline
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Tensor
from tests.unit.emulator.core.graphs import FLOAT, cases, chain
from tests.unit.examples import at_most


def single(op_type, shapes, outputs, dtype="FLOAT", **attributes):
    """A graph of one op with inputs and outputs of the given shapes, and the op."""
    names = tuple(f"i{index}" for index in range(len(shapes)))
    made = tuple(f"o{index}" for index in range(len(outputs)))
    tensors = [Tensor(name, dtype, shape) for name, shape in zip((*names, *made), (*shapes, *outputs))]
    op = Op(op_type, "op", names, made, attributes)
    return Graph("g", (op,), names, made, tensors), op


class TestWork:
    """What one op computes, from shapes."""

    @pytest.mark.parametrize(
        ("op_type", "shapes", "output", "attributes", "expected"),
        [
            # 2 images, 3 to 8 channels, 5x5 filter, 28x28 outputs
            ("Conv", [(2, 3, 32, 32), (8, 3, 5, 5)], (2, 8, 28, 28), {}, Work(macs=2 * 8 * 28 * 28 * 3 * 5 * 5)),
            # two groups: each filter sees half of the channels, which its shape says
            ("Conv", [(1, 4, 6, 6), (8, 2, 3, 3)], (1, 8, 4, 4), {"group": 2}, Work(macs=8 * 4 * 4 * 2 * 3 * 3)),
            ("ConvTranspose", [(1, 4, 3, 3), (4, 2, 2, 2)], (1, 2, 6, 6), {}, Work(macs=4 * 3 * 3 * 2 * 2 * 2)),
            ("MatMul", [(7, 2, 3, 4), (4, 5)], (7, 2, 3, 5), {}, Work(macs=7 * 2 * 3 * 5 * 4)),
            ("MatMul", [(4,), (4,)], (), {}, Work(macs=4)),
            ("Gemm", [(3, 4), (4, 5), (5,)], (3, 5), {}, Work(macs=3 * 5 * 4, vector=3 * 5)),
            ("Gemm", [(4, 3), (4, 5)], (3, 5), {"transA": 1}, Work(macs=3 * 5 * 4)),
            ("MaxPool", [(1, 2, 8, 8)], (1, 2, 4, 4), {"kernel_shape": (2, 3)}, Work(vector=2 * 4 * 4 * 2 * 3)),
            ("GlobalAveragePool", [(1, 2, 8, 8)], (1, 2, 1, 1), {}, Work(vector=2 * 8 * 8)),
            ("ReduceSum", [(6, 7)], (6,), {}, Work(vector=6 * 7)),
            ("BatchNormalization", [(2, 3, 4), (3,)], (2, 3, 4), {}, Work(vector=4 * 2 * 3 * 4)),
            ("Softmax", [(3, 10)], (3, 10), {}, Work(vector=10 * 3 * 10)),
            ("Add", [(3, 1), (4,)], (3, 4), {}, Work(vector=3 * 4)),
            ("Tanh", [(3, 4)], (3, 4), {}, Work(vector=4 * 3 * 4)),
            ("Transpose", [(3, 4)], (4, 3), {}, Work()),
            ("Reshape", [(3, 4), (1,)], (12,), {}, Work()),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_by_hand(self, op_type, shapes, output, attributes, expected):
        """Multiply-accumulates and vector operations follow from the shapes alone."""
        graph, op = single(op_type, shapes, [output], **attributes)

        assert cost.op_work(graph, op) == expected

    @at_most(30)
    @given(*(st.integers(1, 4) for _ in range(5)))
    def test_a_convolution_counts_the_products_that_a_loop_makes(self, images, filters, channels, side, window):
        """Counting the innermost statement of a direct convolution gives the formula."""
        out = side
        shapes = [(images, channels, side + window - 1, side + window - 1), (filters, channels, window, window)]
        graph, op = single("Conv", shapes, [(images, filters, out, out)])
        products = sum(1 for _ in np.ndindex(images, filters, out, out, channels, window, window))

        assert cost.op_work(graph, op).macs == products

    @pytest.mark.parametrize(
        ("op_type", "shapes", "output", "message"),
        [
            ("Conv", [(1, 1, 3, 3), ()], (1, 1, 1, 1), "the work of Conv 'op' needs a tensor 1"),
            ("Conv", [(1, 1, 3, 3)], (1, 1, 1, 1), "the work of Conv 'op' needs a tensor 1"),
            ("MatMul", [(), ()], (), "the work of MatMul 'op' needs a tensor 0"),
            ("Relu", [(None, 3)], (None, 3), "the work of Relu 'op' needs a tensor 0"),
            ("MaxPool", [(1, 1, 2, 2)], (1, 1, 1, 1), "the work of MaxPool 'op' needs its kernel_shape"),
        ],
    )
    def test_what_shapes_do_not_tell_is_refused(self, op_type, shapes, output, message):
        """A missing, unknown or too small shape is an error that names the op."""
        graph, op = single(op_type, shapes, [output])
        with pytest.raises(CostEstimateError, match=message):
            cost.op_work(graph, op)


class TestOpCycles:
    """From work to cycles."""

    def test_by_hand(self):
        """A float32 product: overhead, products over the matrix units, bytes over the exchange."""
        graph, op = single("MatMul", [(64, 32), (32, 16)], [(64, 16)])
        compute = Fraction(64 * 16 * 32, 1472 * 16)
        moved = Fraction((64 * 32 + 32 * 16 + 64 * 16) * FLOAT, 1472 * 4)

        assert cost.op_cycles(graph, op, MK2) == pytest.approx(
            float(OP_OVERHEAD + compute + moved),
            rel=8 * np.finfo(float).eps,  # fewer than eight roundings
        )

    def test_vector_ops_by_hand(self):
        """A vector unit takes eight bytes a cycle and tile."""
        graph, op = single("Relu", [(1472, 100)], [(1472, 100)])

        assert cost.op_cycles(graph, op, MK2) == OP_OVERHEAD + 100 * FLOAT / VECTOR_BYTES + 2 * 100 * FLOAT / 4

    def test_float16_vector_ops_by_hand(self):
        """Four float16 values fit where two float32 do."""
        graph, op = single("Relu", [(1472, 100)], [(1472, 100)], "FLOAT16")

        assert cost.op_cycles(graph, op, MK2) == OP_OVERHEAD + 100 * 2 / VECTOR_BYTES + 2 * 100 * 2 / 4

    def test_float16_takes_less(self):
        """Half the bytes and four times the products make a float16 op cheaper, the overhead aside."""
        full, half = (
            cost.op_cycles(graph, op, MK2) - OP_OVERHEAD
            for graph, op in (single("MatMul", [(64, 32), (32, 16)], [(64, 16)], t) for t in ("FLOAT", "FLOAT16"))
        )

        assert full / 4 < half < full / 2

    def test_views_cost_their_overhead_alone(self):
        """A reshape moves nothing forwards and does not exist backwards; a transpose moves its bytes."""
        graph, op = single("Reshape", [(1472, 4)], [(4, 1472)])
        assert cost.op_cycles(graph, op, MK2) == OP_OVERHEAD
        assert cost.op_cycles(graph, op, MK2, times=0) == 0
        graph, op = single("Transpose", [(1472, 4)], [(4, 1472)])
        assert cost.op_cycles(graph, op, MK2) == OP_OVERHEAD + 2 * 4 * FLOAT / 4

    @at_most(50)
    @given(st.sampled_from(["Relu", "Softmax", "ReduceSum", "Transpose"]), st.integers(1, 99), st.integers(1, 99))
    def test_more_elements_cost_more(self, op_type, few, more):
        """Cycles grow with the size of the tensors."""
        pairs = (single(op_type, [(n, 3)], [(n, 3)]) for n in (few, few + more))
        small, large = (cost.op_cycles(graph, op, MK2) for graph, op in pairs)

        assert small < large


def slot_cycles(a_plan, graph, kind, stage):
    """The cycles of one slot of a chain without a skip, by the rules of docs/estimates.md."""
    device = a_plan.topology.device
    link, host = device.clock_hz / device.link_bandwidth, device.clock_hz / device.host_bandwidth
    ops = [op for op in graph.ops if op.stage == stage]
    placement = a_plan.topology.placement
    last = a_plan.stages - 1
    weight = graph.bytes_of(f"w{stage}")
    if kind is Kind.FORWARD:
        cycles = sum(cost.op_cycles(graph, op, device) for op in ops)
        if stage < last and placement[stage + 1] != placement[stage]:
            cycles += graph.bytes_of(f"x{stage + 1}") * link
        cycles += (graph.bytes_of("x0") if stage == 0 else 0) * host
        return cycles + (graph.bytes_of(f"x{last + 1}") if stage == last else 0) * host
    if kind is Kind.RECOMPUTE:
        return sum(cost.op_cycles(graph, op, device) for op in ops)
    if kind is Kind.BACKWARD:
        crosses = stage > 0 and placement[stage - 1] != placement[stage]
        back = graph.bytes_of(f"x{stage}") * link if crosses else 0
        return back + sum(cost.op_cycles(graph, op, device, times=2 if op.type == "MatMul" else 1) for op in ops)
    if kind is Kind.REDUCE:
        return OP_OVERHEAD + 2 * (a_plan.replicas - 1) / a_plan.replicas * weight * link
    return OP_OVERHEAD + 2 * weight / (device.tiles * VECTOR_BYTES)


class TestLaws:
    """What holds for every plan and graph."""

    @at_most(60)
    @given(cases(), st.integers(1, 3))
    def test_makespan_is_the_sum_of_the_longest_slots(self, case, batch):
        """Ticks last as long as their longest slot and one synchronisation; busy time is what slots take."""
        graph = chain(case.widths, batch=batch)
        ticks, busy, total = {}, [0.0] * case.plan.ipus, 0.0
        for slot in case.plan.slots():
            cycles = slot_cycles(case.plan, graph, slot.kind, slot.stage)
            ticks[slot.tick] = max(ticks.get(slot.tick, 0), cycles)
            busy[slot.ipu] += cycles
            total += cycles
        expected = math.fsum(ticks.values()) + SYNC_OVERHEAD * len(ticks)

        actual = cost.estimate(case.plan, graph)
        # Sums of positive terms in another order: each addition errs by one rounding at most, as do a slot's few.
        rounding = (len(case.plan.columns) + 20) * np.finfo(float).eps
        assert actual.cycles == pytest.approx(expected, rel=rounding)
        assert actual.seconds == actual.cycles / MK2.clock_hz
        assert actual.utilisation == pytest.approx([share / expected for share in busy], rel=2 * rounding)
        assert sum(actual.by_kind.values()) == pytest.approx(total, rel=rounding)

    @at_most(60)
    @given(cases())
    def test_sequential_is_never_faster(self, case):
        """Doing one slot at a time takes at least as long as any schedule of the same slots."""
        graph = case.graph()
        sequential = cost.estimate(case.planned("sequential", recompute=case.plan.recompute), graph)
        pipelined = cost.estimate(case.plan, graph)

        rounding = 2 * len(case.plan.columns) * np.finfo(float).eps
        assert sequential.cycles >= pipelined.cycles * (1 - rounding)

    @at_most(60)
    @given(cases())
    def test_shares_are_shares(self, case):
        """Utilisation and bubble lie between 0 and 1 and complement each other over the IPUs in use."""
        estimate = cost.estimate(case.plan, case.graph())

        assert all(0 <= share < 1 for share in estimate.utilisation)
        used = [estimate.utilisation[ipu] for ipu in case.plan.topology.used]
        assert 0 < estimate.bubble < 1
        assert estimate.bubble + sum(used) / len(used) == pytest.approx(1, abs=8 * len(used) * np.finfo(float).eps)

    @at_most(40)
    @given(cases(), st.integers(1, 4), st.integers(1, 4))
    def test_a_larger_micro_batch_costs_more(self, case, batch, more):
        """Cycles grow with the micro-batch size."""
        small, large = (cost.estimate(case.plan, case.graph(size)) for size in (batch, batch + more))

        assert small.cycles < large.cycles
        assert small.macs < large.macs

    @at_most(40)
    @given(cases(training=st.just(True)))
    def test_recomputation_costs_the_forwards_that_it_repeats(self, case):
        """Recomputing adds the products of every stage but the last, and cycles."""
        graph, by = case.graph(), case.plan.schedule.name
        without, recomputed = (cost.estimate(case.planned(by, recompute=flag), graph) for flag in (False, True))
        last = case.plan.stages - 1
        repeated = sum(cost.op_work(graph, op).macs for op in graph.ops if op.stage != last)

        assert recomputed.macs - without.macs == repeated * case.plan.total_micro_batches
        assert recomputed.cycles >= without.cycles

    def test_training_makes_three_times_the_products_of_inference(self):
        """A backward makes two products for each of the forward."""
        graph = chain((5, 7, 2), batch=3)
        trained, inferred = (cost.estimate(plan((0, 1), "grouped", 4, training=flag), graph) for flag in (True, False))

        assert inferred.macs == 4 * 3 * (5 * 7 + 7 * 2)
        assert trained.macs == 3 * inferred.macs

    @at_most(30)
    @given(st.sampled_from(["grouped", "interleaved", "popart", "sequential"]), st.integers(1, 5), st.integers(1, 9))
    def test_a_balanced_pipeline_has_the_bubble_of_its_schedule(self, by, stages, micro_batches):
        """With equal stages and free links, the bubble is the schedule's own, stretched by the synchronisation."""
        device = replace(MK2, link_bandwidth=math.inf, host_bandwidth=math.inf)
        graph = chain([8] * (stages + 1))
        a_plan = plan(pipeline(stages, device=device), by, micro_batches, training=False)
        slot = sum(cost.op_cycles(graph, op, device) for op in graph.ops if op.stage == 0)

        expected = 1 - (1 - a_plan.bubble()) * Fraction(slot) / (Fraction(slot) + SYNC_OVERHEAD)
        rounding = 4 * len(a_plan.columns) * np.finfo(float).eps
        assert cost.estimate(a_plan, graph).bubble == pytest.approx(float(expected), abs=rounding)

    def test_stages_of_one_ipu_exchange_nothing_over_the_link(self):
        """The speed of the link changes nothing for stages that share an IPU, forwards and backwards."""
        graph = chain((5, 7, 2))
        slow = replace(MK2, link_bandwidth=1.0)

        def cycles(placement, device):
            return cost.estimate(plan(Topology(placement, device=device), "sequential", 2), graph).cycles

        assert cycles((0, 0), slow) == cycles((0, 0), MK2)
        assert cycles((0, 1), slow) > cycles((0, 1), MK2)

    def test_more_replicas_pay_for_the_reduction(self):
        """A ring of R replicas moves 2 (R - 1) / R of the gradients."""
        graph = chain((50, 70))
        two, four = (cost.estimate(plan(pipeline(1, replicas), "grouped", 2), graph) for replicas in (2, 4))
        difference = (2 * 3 / 4 - 2 * 1 / 2) * 50 * 70 * FLOAT * MK2.clock_hz / MK2.link_bandwidth

        # A difference of sums near their own size: two roundings of each.
        assert four.cycles - two.cycles == pytest.approx(difference, abs=4 * four.cycles * np.finfo(float).eps)

    def test_optimizer_state_makes_updates_dearer(self):
        """An update touches two values more per weight for adam than for sgd."""
        graph, a_plan = chain((50, 70)), plan((0,), "grouped", 2)
        sgd, adam = (cost.estimate(a_plan, graph, optimizer=name) for name in ("sgd", "adam"))
        difference = 2 * 50 * 70 * FLOAT / (MK2.tiles * VECTOR_BYTES)

        assert adam.cycles - sgd.cycles == pytest.approx(difference, abs=4 * adam.cycles * np.finfo(float).eps)

    def test_a_faster_device_takes_fewer_seconds(self):
        """The clock changes seconds; cycles change only by what links and host deliver per cycle."""
        graph = chain((50, 70))
        slow = cost.estimate(plan(Topology((0,)), "grouped", 2), graph)
        device = replace(MK2, clock_hz=2 * MK2.clock_hz, host_bandwidth=2 * MK2.host_bandwidth)
        fast = cost.estimate(plan(Topology((0,), device=device), "grouped", 2), graph)

        assert fast.cycles == slow.cycles
        assert fast.seconds == slow.seconds / 2


class TestReport:
    """What an estimate says of itself."""

    def test_unknown_ops_are_named(self):
        """An op type outside the table is counted as element-wise, and the estimate says so."""
        graph, _ = single("Spin", [(3, 4)], [(3, 4)])
        known, _ = single("Relu", [(3, 4)], [(3, 4)])
        a_plan = plan((0,), "grouped", 1, training=False)
        estimate = cost.estimate(a_plan, graph)

        assert estimate.assumed == ("Spin",)
        assert "taken for element-wise: Spin" in str(estimate)
        assert estimate.cycles == cost.estimate(a_plan, known).cycles

    def test_the_text_says_that_it_is_an_estimate(self):
        """The first line has cycles, seconds and bubble; no line claims assumptions that were not made."""
        text = str(cost.estimate(plan((0, 1), "grouped", 4), chain((5, 7, 2))))

        assert text.startswith("estimated ")
        assert "IPU 1: busy" in text
        assert "element-wise" not in text

    def test_an_unknown_optimizer_is_refused(self):
        """The known optimizers are listed."""
        with pytest.raises(CostEstimateError, match="use one of sgd, momentum"):
            cost.estimate(plan((0,), "grouped", 1), chain((1, 1)), optimizer="unknown")
