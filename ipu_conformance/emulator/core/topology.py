"""Which stage runs on which IPU, in how many replicas, and the vendors' rules that lead there.

The rules raise ``TopologyError`` with the vendor's text; a front end turns it into the vendor's exception type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, Optional, Sequence, Tuple

from ipu_conformance.emulator.core.device import MK2, Device
from ipu_conformance.errors import ConformanceError

MOST_IPUS = 64
"""The largest number of IPUs that one PopTorch process may ask for."""


class TopologyError(ConformanceError):
    """A number of IPUs, replicas or stages does not fit."""


@dataclass(frozen=True)
class Topology:
    """``placement[stage]`` is the IPU, counted inside one replica, that runs a forward stage and its backward."""

    placement: Tuple[int, ...]
    replicas: int = 1
    device: Device = MK2
    ipus_per_replica: int = 0
    """At least the highest IPU plus one, which is also what 0 stands for; the rest is reserved and idle."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "placement", tuple(int(ipu) for ipu in self.placement))
        if not self.placement:
            raise TopologyError("a topology without stages was given: place at least one stage on an IPU")
        if min(self.placement) < 0:
            raise TopologyError(f"IPU {min(self.placement)} was given: IPUs are counted from 0")
        if self.replicas < 1:
            raise TopologyError(f"{self.replicas} replicas were given: use 1 or more")
        needed = max(self.placement) + 1
        if self.ipus_per_replica == 0:
            object.__setattr__(self, "ipus_per_replica", needed)
        if self.ipus_per_replica < needed:
            raise TopologyError(
                f"{self.ipus_per_replica} IPUs per replica were given, but a stage is placed on IPU {needed - 1}: "
                f"use {needed} or more"
            )

    @property
    def stages(self) -> int:
        """Forward stages of the model."""
        return len(self.placement)

    @property
    def ipus(self) -> int:
        """IPUs of all replicas together."""
        return self.ipus_per_replica * self.replicas

    @property
    def used(self) -> Tuple[int, ...]:
        """The IPUs of one replica that run a stage, in ascending order."""
        return tuple(sorted(set(self.placement)))

    @property
    def ranks(self) -> Tuple[int, ...]:
        """For every stage, how many earlier stages run on the same IPU."""
        seen: Dict[int, int] = {}
        ranks = []
        for ipu in self.placement:
            ranks.append(seen.get(ipu, 0))
            seen[ipu] = ranks[-1] + 1
        return tuple(ranks)

    @property
    def sharing(self) -> int:
        """The largest number of stages on one IPU."""
        return max(self.ranks) + 1

    def stages_on(self, ipu: int) -> Tuple[int, ...]:
        """The stages that one IPU of a replica runs."""
        return tuple(stage for stage, placed in enumerate(self.placement) if placed == ipu)


def pipeline(stages: int, replicas: int = 1, device: Device = MK2) -> Topology:
    """A topology of one stage per IPU, in order."""
    return Topology(tuple(range(stages)), replicas, device)


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least ``number``."""
    return 1 << max(0, number - 1).bit_length()


# PopTorch


def poptorch_ipus(ids: Iterable[int], replicas: int, *, auto_round: bool = False, hardware: bool = True) -> int:
    """The number of IPUs that a PopTorch model reserves: max(distinct IPUs, highest id + 1) times the replicas.

    Only hardware comes in powers of two: the number is rounded up with ``auto_round`` and refused without.
    """
    distinct = set(ids) or {0}
    number = max(len(distinct), max(distinct) + 1) * replicas
    if hardware:
        rounded = power_of_two(number)
        if rounded != number and not auto_round:
            raise TopologyError(
                f"The model specifies the use of {number} IPUs, however PopTorch must reserve a minimum of {rounded} "
                "in order to allow the model to run because PopTorch must reserve a power of 2 number of IPUs. Please "
                "reconfigure your model to use a different number of IPUs or set "
                "poptorch.Options().autoRoundNumIPUs(True)."
            )
        number = rounded
    if number > MOST_IPUS:
        raise TopologyError(f"Too many IPUs requested ({number}): at most {MOST_IPUS} can be used by one process.")
    return number


# Paddle


@dataclass(frozen=True)
class Sharded:
    """The shard attributes of one op: its IPU and its pipeline stage, None where it has none."""

    name: str
    index: Optional[int] = None
    stage: Optional[int] = None


def paddle_stages(ops: Sequence[Sharded], *, pipelining: bool) -> Tuple[int, ...]:
    """The IPU of every stage of a Paddle program; with pipelining off stages are ignored and each IPU is a shard.

    No stage set means that an op's stage is its index; a stage on some ops only, or on two IPUs, is refused. An op
    without an index is on IPU 0.
    """
    if not pipelining or all(op.stage is None for op in ops):
        return tuple(sorted({op.index or 0 for op in ops} or {0}))
    missing = [op.name for op in ops if op.stage is None]
    if missing:
        raise TopologyError(
            "Only some ops have had their pipeline stage set. Ops missing the pipeline stage: " + ", ".join(missing)
        )
    placed: Dict[int, Sharded] = {}
    for op in ops:
        assert op.stage is not None
        first = placed.setdefault(op.stage, op)
        if (first.index or 0) != (op.index or 0):
            raise TopologyError(
                f"Ops {first.name}, {op.name} have the same pipeline stage {op.stage}, "
                f"but different virtual graph ids {first.index or 0} and {op.index or 0}: "
                "all ops of one pipeline stage must be on one IPU"
            )
    absent = sorted(set(range(max(placed) + 1)) - set(placed))
    if absent:
        raise TopologyError(f"Pipeline stage {absent[0]} has no op: number the stages from 0 without a gap")
    return tuple(placed[stage].index or 0 for stage in range(len(placed)))


def paddle_ipus(num_ipus: int, ipus_per_replica: int, replicas: int, *, auto_round: bool = False) -> int:
    """``num_ipus``, when it is the IPUs per replica times the replicas; rounded up to a power of two on request."""
    needed = ipus_per_replica * replicas
    if auto_round:
        needed = power_of_two(needed)
    if num_ipus != needed:
        raise TopologyError(
            f"num_ipus is {num_ipus}, but {ipus_per_replica} IPUs per replica times {replicas} replicas "
            f"{'rounded up to a power of two ' if auto_round else ''}is {needed}: set num_ipus to {needed}"
        )
    return needed


# TensorFlow


def tensorflow_replicas(ipus: int, shards: Iterable[int]) -> int:
    """The replication factor: IPUs over the highest shard plus one, rounded up to a power of two."""
    needed = power_of_two(max(shards, default=0) + 1)
    if ipus < needed or ipus % needed:
        raise TopologyError(
            f"Current device has {ipus} IPUs attached, however the current model requires a multiple of {needed} IPUs."
        )
    return ipus // needed


def keras_replicas(ipus: int, shards: Iterable[int]) -> int:
    """The replication factor of a Keras model: IPUs that make no whole replica are idle."""
    held = list(shards)
    needed = power_of_two(max(held, default=0) + 1)
    return tensorflow_replicas(ipus - ipus % needed if ipus > needed else ipus, held)


def tensorflow_topology(ipus: int, device_mapping: Sequence[int], device: Device = MK2) -> Topology:
    """The topology of a TensorFlow pipeline or sharded model on a device of that many IPUs."""
    replicas = tensorflow_replicas(ipus, device_mapping)
    return Topology(tuple(device_mapping), replicas, device, ipus_per_replica=ipus // replicas)
