"""Queues of SDK 1.x: each had a name of its own, and knew the replicas that it was used in."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

from ipu_conformance.emulator.tensorflow import legacy

OLD = {
    "IPUInfeedQueue": (
        "dataset", "feed_name", "device_ordinal", "replication_factor", "data_to_prefetch", "prefetch_depth",
    ),
    "IPUOutfeedQueue": (
        "feed_name", "outfeed_mode", "outfeed_all", "device_ordinal", "replication_factor", "io_batch_size",
    ),
}  # fmt: skip
"""The arguments of a queue in their old order."""
WITHOUT_EFFECT = ("feed_name", "replication_factor", "data_to_prefetch", "io_batch_size")
NAME, ALL = "feed_name", "outfeed_all"


def today(
    kind: str, arguments: Tuple[Any, ...], settings: Mapping[str, Any], modes: Any = None
) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """The arguments by their order and their names of today."""
    legacy.entered(f"arguments of an {kind}")
    named = dict(settings)
    if any(isinstance(argument, str) for argument in arguments):
        named, arguments = {**dict(zip(OLD[kind], arguments)), **named}, ()
    everything = named.pop(ALL, None)
    if everything is not None:
        named["outfeed_mode"] = modes.ALL if everything else modes.LAST
    return arguments, {name: value for name, value in named.items() if name not in WITHOUT_EFFECT}
