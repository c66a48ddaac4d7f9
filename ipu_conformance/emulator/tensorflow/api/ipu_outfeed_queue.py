"""Outfeeds: what programs on the device leave for the host while they run."""

from ipu_conformance.emulator.tensorflow.run.outfeed import (
    IPUOutfeedMode,
    IPUOutfeedQueue,
    IPUOutfeedQueueIterator,
    ScopedIPUOutfeedQueue,
)

__all__ = ["IPUOutfeedMode", "IPUOutfeedQueue", "IPUOutfeedQueueIterator", "ScopedIPUOutfeedQueue"]
