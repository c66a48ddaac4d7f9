"""Collectives between processes of the host. The emulator runs one: rank 0 of 1."""

from __future__ import annotations

from typing import Any, Optional

from ipu_conformance.emulator.tensorflow.api.horovod import ipu_horovod_strategy, popdist_strategy
from ipu_conformance.emulator.tensorflow.run.process_strategies import check_alone as _check_alone

__all__ = [
    "Adasum",
    "Average",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "init",
    "ipu_horovod_strategy",
    "local_rank",
    "local_size",
    "popdist_strategy",
    "rank",
    "shutdown",
    "size",
]

Average, Sum, Adasum = range(3)
"""How ``allreduce`` combines the tensors of all processes."""

_started = False


def init() -> None:
    """Begin; several processes are refused."""
    global _started
    _check_alone("Horovod")
    _started = True


def shutdown() -> None:
    """End, after which only ``init`` may be called."""
    global _started
    _started = False


def size() -> int:
    """The number of processes."""
    _require()
    return 1


local_size = size


def rank() -> int:
    """The number of this process, from 0."""
    _require()
    return 0


local_rank = rank


def allreduce(
    tensor: Any, op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0
) -> Any:
    """The mean (or sum) of the processes' tensors: the tensor itself, times both factors."""
    import tensorflow as tf

    _require()
    if op not in (None, Average, Sum, Adasum):
        raise ValueError(f"`op` is {op!r}; use Average, Sum or Adasum.")
    tensor = tf.convert_to_tensor(tensor)
    return tensor * tf.cast(prescale_factor * postscale_factor, tensor.dtype)


def allgather(tensor: Any, name: Optional[str] = None) -> Any:
    """The processes' tensors, joined along their first dimension: the tensor itself."""
    import tensorflow as tf

    _require()
    return tf.identity(tensor, name=name)


def broadcast(tensor: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """The tensor of one process: of this one, which is number 0."""
    import tensorflow as tf

    _require()
    if root_rank != 0:
        raise ValueError(f"`root_rank` is {root_rank!r}; there is one process, with number 0.")
    return tf.identity(tensor, name=name)


def _require() -> None:
    if not _started:
        raise ValueError("Horovod has not been initialized: call init() first.")
