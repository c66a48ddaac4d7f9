"""Matrix products in pieces, and sums over segments."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.ops.serialized import serialized_matmul

__all__ = ["segment_sum", "serialized_matmul"]


def segment_sum(data: Any, segment_ids: Any, num_segments: int, name: Optional[str] = None) -> Any:
    """The sums of the rows of ``data`` that have the same number; a number from 0 on that no row has gives zeros."""
    return tf.math.unsorted_segment_sum(data, segment_ids, num_segments, name=name)
