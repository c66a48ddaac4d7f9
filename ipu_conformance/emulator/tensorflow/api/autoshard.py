"""Spreading a graph over the IPUs of a replica by the number of its operations."""

from ipu_conformance.emulator.tensorflow.compile.sharding import automatic_sharding, ipu_autoshard

__all__ = ["automatic_sharding", "ipu_autoshard"]
