"""What a replica knows of itself."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.faults.decisions import tensorflow_ops as decide
from ipu_conformance.emulator.tensorflow.run import replicas

__all__ = ["replication_index"]


def replication_index(name: Optional[str] = None) -> Any:
    """The number of the replica, from 0, that runs this operation."""
    return tf.constant(decide("replication-index", replicas.current()), tf.int32, name=name or "replication_index")
