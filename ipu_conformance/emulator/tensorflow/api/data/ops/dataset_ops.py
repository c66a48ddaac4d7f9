"""Data sets that only an IPU needs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

__all__ = ["BufferDataset"]


class BufferDataset(dataset_ops.UnaryUnchangedStructureDataset):
    """The elements of a data set in whole groups of ``buffer_size``: those that fill no group are left out."""

    def __init__(self, input_dataset: Any, buffer_size: int) -> None:
        if isinstance(buffer_size, bool) or not isinstance(buffer_size, int) or buffer_size < 1:
            raise ValueError(f"`buffer_size` is {buffer_size!r}; use a whole number from 1 on.")
        tuples = isinstance(input_dataset.element_spec, tuple)

        def elements(*group: Any) -> Any:
            return tf.data.Dataset.zip(group if tuples else group[0])

        groups = _whole_groups(input_dataset, buffer_size)
        super().__init__(input_dataset, groups.flat_map(elements)._variant_tensor)


def _whole_groups(dataset: Any, size: int) -> Any:
    """A data set of groups of so many elements; what is left over is dropped."""
    return dataset.window(size, drop_remainder=True)
