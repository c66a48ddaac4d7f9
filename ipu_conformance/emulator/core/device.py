"""What one IPU is, as data: tiles, memory, threads, arithmetic and links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple

from ipu_conformance.errors import ConformanceError

KIB = 1024
EMULATED_IPUS = 64
"""How many IPUs the emulator and the IPU model offer: the largest system that the vendor's tools accept."""


class DeviceError(ConformanceError):
    """A device was asked for that is not described."""


@dataclass(frozen=True)
class Device:
    """The description of one IPU; every figure that memory and cost are computed from.

    Multiply-accumulates are counted per tile and cycle; bandwidths are bytes per second of one IPU, one direction.
    """

    name: str
    tiles: int
    memory_per_tile: int
    threads_per_tile: int
    clock_hz: float
    float16_macs_per_cycle: int
    float32_macs_per_cycle: int
    exchange_bytes_per_cycle: int
    """What one tile receives from other tiles of its IPU in a cycle."""
    link_bandwidth: float
    """All IPU-Links of one IPU together: boundaries between stages and reductions between replicas."""
    host_bandwidth: float
    """What one IPU exchanges with its host: infeeds, outfeeds and weights."""

    @property
    def memory(self) -> int:
        """Bytes of on-chip memory of one IPU."""
        return self.tiles * self.memory_per_tile

    @property
    def threads(self) -> int:
        """Hardware threads of one IPU."""
        return self.tiles * self.threads_per_tile

    def macs_per_cycle(self, dtype: str) -> int:
        """Multiply-accumulates of one IPU in a cycle for ``float16`` or ``float32`` operands."""
        per_tile = {"float16": self.float16_macs_per_cycle, "float32": self.float32_macs_per_cycle}
        if dtype not in per_tile:
            raise DeviceError(f"multiply-accumulates of {dtype!r} are not described: use one of {', '.join(per_tile)}")
        return self.tiles * per_tile[dtype]


MK1 = Device(
    name="Mk1",
    tiles=1216,
    memory_per_tile=256 * KIB,
    threads_per_tile=6,
    clock_hz=1.6e9,
    float16_macs_per_cycle=32,
    float32_macs_per_cycle=8,
    exchange_bytes_per_cycle=4,
    link_bandwidth=160e9,
    host_bandwidth=16e9,
)
MK2 = Device(
    name="Mk2",
    tiles=1472,
    memory_per_tile=624 * KIB,
    threads_per_tile=6,
    clock_hz=1.325e9,
    float16_macs_per_cycle=64,
    float32_macs_per_cycle=16,
    exchange_bytes_per_cycle=4,
    link_bandwidth=160e9,
    host_bandwidth=16e9,
)

_DEVICES: Dict[str, Device] = {"mk1": MK1, "ipu1": MK1, "mk2": MK2, "ipu2": MK2}


def device(name: str = "ipu2") -> Device:
    """The device of that name, in any case: the vendor's ``ipu1`` and ``ipu2``, or ``Mk1`` and ``Mk2``."""
    try:
        return _DEVICES[name.lower()]
    except KeyError:
        raise DeviceError(f"device {name!r} is not described: use one of {', '.join(device_names())}") from None


def device_names() -> Tuple[str, ...]:
    """Every name that ``device`` knows."""
    return tuple(sorted(_DEVICES))


def register(described: Device, *aliases: str) -> Device:
    """Make a description known under its name and aliases; a name is taken once."""
    for name in (described.name, *aliases):
        known = _DEVICES.setdefault(name.lower(), described)
        if known != described:
            raise DeviceError(f"device {name!r} is described already: register yours under another name")
    return described
