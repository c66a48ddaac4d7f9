"""The memory estimate: parts worked out by hand, and laws that every estimate obeys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.core import memory
from ipu_conformance.emulator.core.device import MK2
from ipu_conformance.emulator.core.memory import MemoryEstimateError, OutOfMemory
from ipu_conformance.emulator.core.plan import Kind, plan
from ipu_conformance.emulator.core.stage_loads import LoadError, device_bytes, stage_loads
from ipu_conformance.emulator.core.topology import Topology, pipeline
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.ir.tensor import Tensor
from tests.unit.emulator.core.graphs import FLOAT, cases, chain
from tests.unit.examples import at_most

OPTIMIZERS = sorted(memory.STATE_SLOTS)


def by_definition(a_plan, graph):
    """Every IPU's varying bytes in every tick, slot by slot, with plain loops over the rules of docs/estimates.md."""
    loads = stage_loads(graph, a_plan)
    slots = list(a_plan.slots())
    length = max(slot.tick for slot in slots) + 1
    held = np.zeros((a_plan.ipus, length, 3), np.int64)

    def size(names):
        return sum(device_bytes(graph, name) for name in names)

    when = {(slot.kind, slot.stage, slot.micro_batch): slot.tick for slot in slots}
    for slot in slots:
        load, here = loads[slot.stage], held[slot.ipu]
        recomputed = a_plan.recompute and slot.stage < a_plan.stages - 1
        if slot.kind is Kind.FORWARD:
            end = length
            if a_plan.training:
                end = when[Kind.BACKWARD, slot.stage, slot.micro_batch] + 1
                here[slot.tick : end, 0] += size(load.inputs) + (0 if recomputed else size(load.produced))
            if recomputed or not a_plan.training:
                here[slot.tick, 2] += load.live
            for later, names in load.sends.items():
                until = when[Kind.FORWARD, later, slot.micro_batch] + 1
                held[a_plan.topology.placement[later], slot.tick + 1 : until, 1] += size(names)
        elif slot.kind is Kind.RECOMPUTE:
            here[slot.tick, 2] += size(load.produced)
        elif slot.kind is Kind.BACKWARD:
            here[slot.tick, 2] += load.live + (size(load.produced) if recomputed else 0)
            for earlier in loads[: slot.stage]:
                until = when[Kind.BACKWARD, earlier.stage, slot.micro_batch] + 1
                to = a_plan.topology.placement[earlier.stage]
                held[to, slot.tick + 1 : until, 1] += size(earlier.sends.get(slot.stage, ()))
        else:
            here[slot.tick, 2] += max(size([name]) for name in load.trainable)
    return held


class TestByHand:
    """A pipeline of two stages, micro-batch 3, layers of 5 to 7 and 7 to 2 values."""

    GRAPH = chain((5, 7, 2), batch=3)

    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_persistent_parts(self, optimizer):
        """Weights, gradients and optimizer state are those of the stage, host tensors are double-buffered."""
        first, second = memory.estimate(plan((0, 1), "grouped", 4), self.GRAPH, optimizer=optimizer).ipus
        slots = memory.STATE_SLOTS[optimizer]

        assert (first.weights, second.weights) == (5 * 7 * FLOAT, 7 * 2 * FLOAT)
        assert (first.gradients, second.gradients) == (first.weights, second.weights)
        assert (first.optimizer_state, second.optimizer_state) == (slots * first.weights, slots * second.weights)
        assert (first.io_buffers, second.io_buffers) == (2 * 3 * 5 * FLOAT, 2 * 3 * 2 * FLOAT)
        per_tile = memory.CODE_BYTES_PER_TILE + memory.CODE_BYTES_PER_TILE_AND_OP * 2 * 2
        assert first.code == second.code == MK2.tiles * per_tile

    def test_stash_is_the_depth_times_inputs_and_activations(self):
        """The grouped schedule stashes 2 (S - s) micro-batches, each with the stage's inputs and activations."""
        estimate = memory.estimate(plan((0, 1), "grouped", 9), self.GRAPH)

        first, second = (int(line.nbytes[:, 0].max()) for line in estimate.over_time)
        assert first == 4 * 3 * (5 + 7 + 7) * FLOAT
        assert second == 2 * 3 * (7 + 2 + 2) * FLOAT

    def test_recomputation_stashes_inputs_only(self):
        """A recomputed stage stashes what it was given; the last stage is not recomputed."""
        estimate = memory.estimate(plan((0, 1), "grouped", 9, recompute=True), self.GRAPH)

        first, second = (int(line.nbytes[:, 0].max()) for line in estimate.over_time)
        assert first == 4 * 3 * 5 * FLOAT
        assert second == 2 * 3 * (7 + 2 + 2) * FLOAT

    def test_inference_holds_no_gradients(self):
        """Without training there is no optimizer state, gradient or stash, and half the code of the ops."""
        estimate = memory.estimate(plan((0, 1), "grouped", 4, training=False), self.GRAPH, optimizer="adam")

        for ipu in estimate.ipus:
            assert (ipu.optimizer_state, ipu.gradients, ipu.stash) == (0, 0, 0)
            assert ipu.code == MK2.tiles * (memory.CODE_BYTES_PER_TILE + memory.CODE_BYTES_PER_TILE_AND_OP * 2)
        # Both of a layer's tensors are needed while the Relu runs.
        assert estimate.ipus[0].working == 2 * 3 * 7 * FLOAT

    def test_boundary_waits_on_the_receiver(self):
        """What stage 0 made is on IPU 1 from the tick after it was made until it was used."""
        a_plan = plan((0, 1), "grouped", 1, training=False)
        estimate = memory.estimate(a_plan, self.GRAPH)

        by_tick = [[int(line.at(tick)[1]) for tick in range(3)] for line in estimate.over_time]
        assert by_tick == [[0, 0, 0], [0, 3 * 7 * FLOAT, 0]]

    def test_an_idle_ipu_needs_nothing(self):
        """An IPU that is reserved and has no stage holds nothing, not even code."""
        idle = memory.estimate(plan(Topology((0,), ipus_per_replica=2), "grouped", 2), chain((5, 7))).ipus[1]

        assert idle.peak == 0
        assert idle.largest == ()

    def test_stages_that_share_an_ipu_share_its_memory(self):
        """Two stages on one IPU need the weights of both."""
        estimate = memory.estimate(plan((0, 0), "grouped", 2), self.GRAPH)

        assert [ipu.weights for ipu in estimate.ipus] == [(5 * 7 + 7 * 2) * FLOAT]

    def test_extra_slots_add_optimizer_state(self):
        """A momentum beside rmsprop is one more value per weight."""
        a_plan = plan((0, 1), "grouped", 4)
        plain, more = (memory.estimate(a_plan, self.GRAPH, optimizer="rmsprop", extra_slots=n) for n in (0, 1))

        assert more.total("optimizer_state") - plain.total("optimizer_state") == plain.total("weights")

    def test_float16_state_is_held_in_float32(self):
        """Weights and gradients of float16 take two bytes, their optimizer state four."""
        half = memory.estimate(plan((0, 1), "grouped", 4), chain((5, 7, 2), dtype="FLOAT16"), optimizer="momentum")

        assert half.total("gradients") == half.total("weights") == 2 * (5 * 7 + 7 * 2)
        assert half.total("optimizer_state") == 2 * half.total("weights")


class TestLaws:
    """What holds for every plan and graph."""

    @at_most(80)
    @given(cases(), st.integers(1, 3))
    def test_timeline_is_that_of_the_definition(self, case, batch):
        """The vectorised timeline equals the one counted slot by slot, in every tick and part."""
        graph = case.graph(batch)
        expected = by_definition(case.plan, graph)
        actual = memory.estimate(case.plan, graph).over_time

        for ipu, line in enumerate(actual):
            got = np.stack([line.at(tick) for tick in range(expected.shape[1])])
            np.testing.assert_array_equal(got, expected[ipu])

    @at_most(60)
    @given(cases(), st.sampled_from(OPTIMIZERS))
    def test_peak_is_that_of_the_timeline_and_covers_what_persists(self, case, optimizer):
        """The peak is what persists plus the most that varies, and its parts are those of its tick."""
        estimate = memory.estimate(case.plan, case.graph(), optimizer=optimizer)

        for ipu in estimate.ipus:
            together = ipu.over_time.nbytes.sum(axis=1)
            assert ipu.peak == ipu.persistent + int(together.max(initial=0)) >= ipu.persistent
            assert (ipu.stash, ipu.boundaries, ipu.working) == tuple(ipu.over_time.at(ipu.peak_tick)) or not ipu.code
        assert estimate.peak == max(ipu.peak for ipu in estimate.ipus)

    @at_most(60)
    @given(cases(), st.integers(1, 4), st.integers(1, 4))
    def test_memory_grows_with_the_micro_batch(self, case, batch, more):
        """A larger micro-batch never needs less on any IPU, and leaves weights and code as they are."""
        small, large = (memory.estimate(case.plan, case.graph(size)) for size in (batch, batch + more))

        for before, after in zip(small.ipus, large.ipus):
            assert after.peak > before.peak or not before.code
            assert (after.weights, after.code, after.gradients) == (before.weights, before.code, before.gradients)

    @at_most(60)
    @given(cases(training=st.just(True)))
    def test_recomputation_never_stashes_more(self, case):
        """With recomputation no IPU ever stashes more than without."""
        graph = case.graph()
        without, recomputed = (
            memory.estimate(case.planned(case.plan.schedule.name, recompute=flag), graph) for flag in (False, True)
        )

        for a, b in zip(recomputed.over_time, without.over_time):
            assert a.nbytes[:, 0].max(initial=0) <= b.nbytes[:, 0].max(initial=0)

    @at_most(60)
    @given(cases(), st.sampled_from(["FLOAT", "FLOAT16"]))
    def test_sums_over_ipus_are_the_totals_of_the_graph(self, case, dtype):
        """Every weight and every host tensor is on exactly one IPU."""
        graph = case.graph(2, dtype)
        estimate = memory.estimate(case.plan, graph)
        host = (*graph.inputs, *graph.outputs)

        assert estimate.total("weights") == sum(graph.bytes_of(name) for name in graph.initializers)
        assert estimate.total("io_buffers") == memory.BUFFERS * sum(graph.bytes_of(name) for name in host)
        assert estimate.replicas == case.plan.replicas

    @at_most(60)
    @given(cases())
    def test_everything_is_freed_at_the_end(self, case):
        """After the last slot nothing but the persistent parts is held, and no part was ever negative."""
        for line in memory.estimate(case.plan, case.graph()).over_time:
            assert (line.nbytes >= 0).all()
            assert not len(line.nbytes) or not line.nbytes[-1].any()

    @at_most(40)
    @given(cases(training=st.just(True)))
    def test_sequential_never_stashes_more_than_pipelined(self, case):
        """A stage that finishes one micro-batch before the next stashes one, never more than a pipeline."""
        graph = case.graph()
        sequential, pipelined = (
            memory.estimate(case.planned(by), graph) for by in ("sequential", case.plan.schedule.name)
        )

        for a, b in zip(sequential.over_time, pipelined.over_time):
            assert a.nbytes[:, 0].max(initial=0) <= b.nbytes[:, 0].max(initial=0)

    def test_device_iterations_repeat_the_peak(self):
        """The pipeline empties between device iterations, so more of them need no more memory."""
        graph = chain((5, 7, 2))
        once, often = (memory.estimate(plan((0, 1), "popart", 5, device_iterations=d), graph) for d in (1, 4))

        assert [ipu.peak for ipu in once.ipus] == [ipu.peak for ipu in often.ipus]


class TestCheck:
    """Whether a device has the memory."""

    def test_what_fits_passes(self):
        """An estimate within the device's memory is no error, up to the last byte."""
        estimate = memory.estimate(plan((0, 1), "grouped", 4), chain((5, 7, 2)))
        memory.check(estimate, MK2)
        memory.check(estimate, replace(MK2, tiles=1, memory_per_tile=estimate.peak))
        with pytest.raises(OutOfMemory):
            memory.check(estimate, replace(MK2, tiles=1, memory_per_tile=estimate.peak - 1))

    def test_the_error_names_ipu_need_and_largest_tensors(self):
        """The sentence holds the IPU, what it needs and has, that this is an estimate, and the largest tensors."""
        graph = chain((8, 8, 16384, 16384))
        estimate = memory.estimate(plan((0, 1, 2), "grouped", 6), graph)
        with pytest.raises(OutOfMemory) as info:
            memory.check(estimate, MK2)

        fullest = estimate.ipus[2]
        assert str(info.value).startswith(
            f"IPU 2 needs an estimated {fullest.peak / 2**20:,.1f} MiB in tick {fullest.peak_tick} and has 897.0 MiB; "
            f"its largest tensors are 'w2' 1,024.0 MiB (weight), "
        )
        assert estimate.largest == fullest.largest

    def test_the_largest_come_first_with_their_copies(self):
        """Stashed tensors count as often as they are stashed."""
        largest = memory.estimate(plan((0, 1), "grouped", 9), chain((1, 1, 1), batch=100)).ipus[0].largest

        assert [(held.copies, held.part, held.total) for held in largest] == [
            (4, "stash", 1600),
            (4, "stash", 1600),
            (4, "stash", 1600),
            (1, "weight", 4),
        ]
        assert str(largest[0]) == "'h0' 1.6 KiB (stash, 4 copies)"

    def test_the_table_says_that_it_is_an_estimate(self):
        """The text has a row for every IPU and calls itself an estimate."""
        lines = str(memory.estimate(plan(pipeline(2, 3), "grouped", 4), chain((5, 7, 2)))).splitlines()

        assert lines[0] == "estimated memory of each of 3 replicas"
        assert len(lines) == 2 + 2

    @pytest.mark.parametrize(
        ("nbytes", "expected"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**31, "2,048.0 MiB")]
    )
    def test_sizes_are_readable(self, nbytes, expected):
        """A size has at least one digit before the point."""
        assert memory.size_text(nbytes) == expected


class TestRefusals:
    """What the model does not cover is refused with a sentence."""

    def test_unknown_optimizer(self):
        """The known optimizers are listed."""
        with pytest.raises(MemoryEstimateError, match="optimizer 'adamm' is not known; use one of sgd, momentum"):
            memory.estimate(plan((0,), "grouped", 1), chain((1, 1)), optimizer="adamm")

    def test_negative_slots(self):
        """Fewer than no slots are refused."""
        with pytest.raises(MemoryEstimateError, match="-1 extra slots"):
            memory.estimate(plan((0,), "grouped", 1), chain((1, 1)), extra_slots=-1)

    def test_unknown_size(self):
        """A tensor without a full shape is named."""
        x, y = Tensor("x", "FLOAT", (None, 3)), Tensor("y", "FLOAT", (None, 3))
        graph = Graph("g", [Op("Relu", "r", ("x",), ("y",))], ["x"], ["y"], [x, y])
        with pytest.raises(LoadError, match="the size of tensor 'y' is not known"):
            memory.estimate(plan((0,), "grouped", 1), graph)


class TestLoads:
    """How a graph is dealt out to stages."""

    def test_stage_of_an_op(self):
        """An op without a stage belongs to the only stage of its IPU, or to the plan's only stage."""
        x, y, z = (Tensor(name, "FLOAT", (2,)) for name in "xyz")
        first, second = Op("Relu", "a", ("x",), ("y",), ipu=1), Op("Relu", "b", ("y",), ("z",), ipu=0)
        graph = Graph("g", [first, second], ["x"], ["z"], [x, y, z])

        loads = stage_loads(graph, plan((1, 0), "grouped", 2))
        assert [load.ops for load in loads] == [(first,), (second,)]
        unplaced = Graph("g", [replace(first, ipu=None)], ["x"], ["y"], [x, y])
        assert stage_loads(unplaced, plan((0,), "grouped", 1))[0].inputs == ("x",)

    @pytest.mark.parametrize(
        ("op", "message"),
        [
            ({"stage": None}, "has no stage, and 2 stages are possible"),
            ({"stage": None, "ipu": 5}, "has no stage, and 0 stages are possible"),
            ({"stage": 2}, "is in stage 2, and the plan has 2; give the forward graph alone"),
            ({"stage": 1, "ipu": 0}, "of stage 1 is on IPU 0, and the plan has that stage on IPU 1"),
        ],
    )
    def test_a_placement_that_does_not_fit_is_refused(self, op, message):
        """An op whose stage or IPU is not the plan's is named."""
        x, y = Tensor("x", "FLOAT", (2,)), Tensor("y", "FLOAT", (2,))
        graph = Graph("g", [Op("Relu", "r", ("x",), ("y",), **op)], ["x"], ["y"], [x, y])
        with pytest.raises(LoadError, match=f"Relu 'r' {message}"):
            stage_loads(graph, plan((0, 1), "grouped", 3))

    def test_reading_from_a_later_stage_is_refused(self):
        """Forward tensors never travel to an earlier stage."""
        x, y, z = (Tensor(name, "FLOAT", (2,)) for name in "xyz")
        ops = [Op("Relu", "a", ("x",), ("y",), stage=1), Op("Relu", "b", ("y",), ("z",), stage=0)]
        with pytest.raises(LoadError, match="stage 0 reads 'y', which stage 1 makes"):
            stage_loads(Graph("g", ops, ["x"], ["z"], [x, y, z]), plan((0, 1), "grouped", 3))

    def test_statistics_and_integers_are_not_trained(self):
        """Running statistics of a batch norm and integer initializers are weights without gradients."""
        names = ("x", "scale", "bias", "mean", "variance", "y")
        tensors = [*(Tensor(name, "FLOAT", (2,)) for name in names), Tensor("shape", "INT64", (1,)),
                   Tensor("z", "FLOAT", (2,))]  # fmt: skip
        ops = [Op("BatchNormalization", "bn", names[:5], ("y",)), Op("Reshape", "r", ("y", "shape"), ("z",))]
        graph = Graph("g", ops, ["x"], ["z"], tensors, [*names[1:5], "shape"])

        load = stage_loads(graph, plan((0,), "grouped", 1))[0]
        assert load.trainable == ("scale", "bias")
        assert load.weights == ("scale", "bias", "mean", "variance", "shape")

    def test_a_shared_weight_belongs_to_its_first_reader(self):
        """A weight that two stages read is counted once, and one that nothing reads is on the first stage."""
        tensors = [Tensor(name, "FLOAT", (2,)) for name in ("x", "y", "z", "shared", "late", "unused")]
        ops = [
            Op("Mul", "a", ("x", "shared"), ("y",), stage=0),
            Op("Sum", "b", ("y", "shared", "late"), ("z",), stage=1),
        ]
        graph = Graph("g", ops, ["x"], ["z"], tensors, ["shared", "late", "unused"])

        assert [load.weights for load in stage_loads(graph, plan((0, 1), "grouped", 3))] == [
            ("shared", "unused"),
            ("late",),
        ]

    @pytest.mark.parametrize(("outputs", "stage"), [(["d"], 1), (["a", "d"], 0), (["d"], 0)])
    def test_what_is_wanted_later_lives_to_the_end_of_its_stage(self, outputs, stage):
        """In a -> b -> c two tensors are alive at once, and three where a is also sent on or returned."""
        tensors = [Tensor(name, "FLOAT", (1,)) for name in "xabcd"]
        ops = [Op("Relu", made, (read,), (made,), stage=0) for read, made in zip("xab", "abc")]
        ops.append(Op("Sum", "d", ("c", "a") if stage else ("c",), ("d",), stage=1))
        load = stage_loads(Graph("g", ops, ["x"], outputs, tensors), plan((0, 1), "grouped", 3))[0]

        expected = 3 if stage or "a" in outputs else 2
        assert load.live == expected * FLOAT

    def test_64_bit_tensors_take_the_room_of_32(self):
        """The device narrows 64-bit types and widens bfloat16, and packs 4-bit types."""
        tensors = [Tensor(dtype, dtype, (3,)) for dtype in ("INT64", "DOUBLE", "BFLOAT16", "FLOAT16", "BOOL", "INT4")]
        graph = Graph("g", inputs=[tensor.name for tensor in tensors], tensors=tensors)

        assert [device_bytes(graph, tensor.name) for tensor in tensors] == [12, 12, 12, 6, 3, 2]

    def test_text_has_no_size(self):
        """A tensor of strings cannot be on the device."""
        graph = Graph("g", inputs=["t"], tensors=[Tensor("t", "STRING", (3,))])
        with pytest.raises(LoadError, match="elements of STRING have no size on the device"):
            device_bytes(graph, "t")
