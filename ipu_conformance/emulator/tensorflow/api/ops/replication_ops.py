"""What a replica knows of itself."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.run import replicas as _replicas

__all__ = ["replication_index"]


def replication_index(name: Optional[str] = None) -> Any:
    """The number of the replica, from 0, that runs this operation."""
    return tf.constant(_replicas.current(), tf.int32, name=name or "replication_index")
