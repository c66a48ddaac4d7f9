"""Collectives between processes on hosts; the emulator is one process, whose value is that of all."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.run.process_strategies import check_alone as _check_alone

__all__ = ["allgather", "allreduce", "broadcast"]


def allreduce(value: Any, reduce_op: Any, tensor_name: Optional[str] = None) -> Any:
    """The reduction over all processes, of which there is one."""
    _check_alone("allreduce")
    return tf.identity(value)


def allgather(value: Any, tensor_name: Optional[str] = None) -> Any:
    """The values of all processes along their first dimension, of which there is one."""
    _check_alone("allgather")
    return tf.identity(value)


def broadcast(value: Any, root_rank: int = 0, tensor_name: Optional[str] = None) -> Any:
    """The value of the process of that rank."""
    _check_alone("broadcast")
    if root_rank != 0:
        raise ValueError(f"`root_rank` is {root_rank}; there is one process, of rank 0.")
    return tf.identity(value)
