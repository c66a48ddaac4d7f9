"""Placement, counting of IPUs and the vendors' rules."""

from __future__ import annotations

import dataclasses
from typing import Any, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.core import device as devices
from ipu_conformance.emulator.core import topology as rules
from ipu_conformance.emulator.core.device import MK1, MK2, DeviceError
from ipu_conformance.emulator.core.topology import Sharded, Topology, TopologyError
from tests.unit.emulator.core import strategies


def test_mk2_is_the_default_device() -> None:
    """A Mk2 has 1,472 tiles of 624 KiB with six threads each."""
    default = devices.device()

    assert default is MK2
    assert Topology((0,)).device is MK2
    assert (default.tiles, default.memory_per_tile, default.threads_per_tile) == (1472, 624 * 1024, 6)
    assert default.memory == 940_572_672
    assert default.threads == 8832


@pytest.mark.parametrize(("name", "expected"), [("ipu1", MK1), ("Mk1", MK1), ("IPU2", MK2), ("mk2", MK2)])
def test_a_device_is_found_by_each_of_its_names(name: str, expected: devices.Device) -> None:
    """The vendor's names and the generations' names mean the same, in any case."""
    assert devices.device(name) is expected


def test_an_unknown_device_is_refused_with_the_known_names() -> None:
    """The error lists what may be asked for."""
    with pytest.raises(DeviceError, match=r"device 'ipu9' is not described: use one of ipu1, ipu2, mk1, mk2"):
        devices.device("ipu9")


def test_float16_has_four_times_the_arithmetic_of_float32() -> None:
    """Multiply-accumulates are counted for the whole IPU; an unknown type is refused."""
    assert MK2.macs_per_cycle("float16") == 64 * 1472 == 4 * MK2.macs_per_cycle("float32")
    with pytest.raises(DeviceError, match="use one of float16, float32"):
        MK2.macs_per_cycle("int8")


def test_a_description_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's own device is found by name and alias, and cannot take the name of another."""
    monkeypatch.setattr(devices, "_DEVICES", dict(devices._DEVICES))
    own = dataclasses.replace(MK2, name="Own", tiles=4)

    assert devices.register(own, "own-4") is own
    assert devices.device("OWN") is devices.device("own-4") is own
    with pytest.raises(DeviceError, match="described already"):
        devices.register(own, "ipu2")


@given(strategies.topologies())
def test_ranks_number_the_stages_of_an_ipu(topology: Topology) -> None:
    """The stages of an IPU have the ranks 0, 1, …, and the busiest IPU sets the sharing."""
    on_ipu = {ipu: [topology.ranks[stage] for stage in topology.stages_on(ipu)] for ipu in topology.used}

    assert all(ranks == list(range(len(ranks))) for ranks in on_ipu.values())
    assert topology.sharing == max(map(len, on_ipu.values()))
    assert sum(map(len, on_ipu.values())) == topology.stages
    assert topology.ipus == (max(topology.placement) + 1) * topology.replicas


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"placement": ()}, "without stages"),
        ({"placement": (0, -1)}, "IPU -1 was given: IPUs are counted from 0"),
        ({"placement": (0,), "replicas": 0}, "0 replicas were given: use 1 or more"),
        ({"placement": (0, 3), "ipus_per_replica": 2}, "placed on IPU 3: use 4 or more"),
    ],
)
def test_a_topology_that_cannot_be_is_refused(arguments: Any, message: str) -> None:
    """The sentence says what is allowed."""
    with pytest.raises(TopologyError, match=message):
        Topology(**arguments)


@pytest.mark.parametrize(
    ("ids", "replicas", "expected"), [([0], 1, 1), ([0, 1], 4, 8), ([3], 2, 8), ([0, 1, 3], 16, 64), ([], 2, 2)]
)
def test_poptorch_counts_up_to_the_highest_id(ids: List[int], replicas: int, expected: int) -> None:
    """IPUs below the highest id are reserved, used or not, in every replica."""
    assert rules.poptorch_ipus(ids, replicas) == expected


def test_poptorch_rounds_to_a_power_of_two_on_request() -> None:
    """Three IPUs are refused, reserved as four with autoRoundNumIPUs, and taken as they are off hardware."""
    with pytest.raises(TopologyError, match=r"the use of 3 IPUs, .* a minimum of 4 .*autoRoundNumIPUs\(True\)\.$"):
        rules.poptorch_ipus([0, 1, 2], 1)
    assert rules.poptorch_ipus([0, 1, 2], 1, auto_round=True) == 4
    assert rules.poptorch_ipus([0, 1, 2], 1, hardware=False) == 3


@pytest.mark.parametrize("options", [{}, {"auto_round": True}, {"hardware": False}])
def test_poptorch_refuses_more_than_64_ipus(options: Any) -> None:
    """65 IPUs are too many, however they are counted."""
    replicas = 128 if not options else 65

    with pytest.raises(TopologyError, match="at most 64"):
        rules.poptorch_ipus([0], replicas, **options)


def test_paddle_stages_are_indices_when_none_is_set() -> None:
    """Without a stage on any op, an op's stage is its index."""
    ops = [Sharded("a", 0), Sharded("b", 1), Sharded("c", 1), Sharded("d", 2)]

    assert rules.paddle_stages(ops, pipelining=True) == (0, 1, 2)


def test_paddle_stages_may_come_back_to_an_ipu() -> None:
    """Stage 2 may be on the IPU of stage 0."""
    ops = [Sharded("a", 0, 0), Sharded("b", 1, 1), Sharded("c", 0, 2)]

    assert rules.paddle_stages(ops, pipelining=True) == (0, 1, 0)


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([Sharded("a", 0, 0), Sharded("b", 1)], "Only some ops have had their pipeline stage set.*: b$"),
        ([Sharded("a", 0, 1), Sharded("b", 1, 1)], "a, b have the same pipeline stage 1, but .* 0 and 1"),
        ([Sharded("a", 0, 0), Sharded("b", 1, 2)], "Pipeline stage 1 has no op"),
    ],
)
def test_paddle_refuses_stages_that_contradict(ops: List[Sharded], message: str) -> None:
    """Some stages missing, one stage on two IPUs and a gap are errors; without pipelining stages are ignored."""
    with pytest.raises(TopologyError, match=message):
        rules.paddle_stages(ops, pipelining=True)

    assert rules.paddle_stages(ops, pipelining=False) == (0, 1)


def test_paddle_counts_ipus_per_replica_times_replicas() -> None:
    """num_ipus must be the product, rounded up to a power of two when that was asked for."""
    assert rules.paddle_ipus(6, 3, 2) == 6
    assert rules.paddle_ipus(8, 3, 2, auto_round=True) == 8
    with pytest.raises(TopologyError, match=r"num_ipus is 8, but .* is 6: set num_ipus to 6"):
        rules.paddle_ipus(8, 3, 2)


@pytest.mark.parametrize(
    ("ipus", "shards", "expected"), [(1, [], 1), (8, [0], 8), (8, [0, 1], 4), (8, [0, 1, 2], 2), (4, [3], 1)]
)
def test_tensorflow_replicates_over_what_the_shards_leave(ipus: int, shards: List[int], expected: int) -> None:
    """The replication factor is the IPUs over the shards rounded up to a power of two."""
    assert rules.tensorflow_replicas(ipus, shards) == expected
    topology = rules.tensorflow_topology(ipus, shards or [0])
    assert (topology.replicas, topology.ipus) == (expected, ipus)


@pytest.mark.parametrize("ipus", [2, 6])
def test_tensorflow_refuses_ipus_that_are_no_multiple(ipus: int) -> None:
    """The message is that of Keras."""
    with pytest.raises(TopologyError) as caught:
        rules.tensorflow_replicas(ipus, [0, 1, 2])

    assert str(caught.value) == (
        f"Current device has {ipus} IPUs attached, however the current model requires a multiple of 4 IPUs."
    )


@pytest.mark.parametrize(
    ("ipus", "shards", "expected"), [(1, [], 1), (3, [0, 1], 1), (8, [0, 1], 4), (6, [0, 1, 2], 1), (9, [3], 2)]
)
def test_keras_leaves_ipus_idle_that_make_no_replica(ipus: int, shards: List[int], expected: int) -> None:
    """The replication factor is rounded down."""
    assert rules.keras_replicas(ipus, shards) == expected


@pytest.mark.parametrize("ipus", [1, 2, 3])
def test_keras_refuses_a_device_without_a_whole_replica(ipus: int) -> None:
    """The message says how many IPUs a replica takes."""
    with pytest.raises(TopologyError, match=f"device has {ipus} IPUs .* a multiple of 4"):
        rules.keras_replicas(ipus, [0, 1, 2])


@given(st.integers(1, 10**9))
def test_rounding_gives_the_next_power_of_two(number: int) -> None:
    """The result is a power of two, at least the number and less than twice it."""
    rounded = rules.power_of_two(number)

    assert rounded & (rounded - 1) == 0
    assert number <= rounded < 2 * number
