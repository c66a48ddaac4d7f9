"""Operations that look at a program from inside."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.compile import device_loop as _device_loop
from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

__all__ = ["fifo", "get_current_iteration_counter", "print_tensor", "remap", "remap_deduce"]


def print_tensor(input: Any, name: str = "") -> Any:
    """Prints a tensor to the standard error stream whenever it is executed; the operation that does so."""
    with tf.device("/device:CPU:0"):
        printed = tf.print(f"{name or getattr(input, 'name', 'tensor')}:", input, summarize=-1)
    return tf.no_op() if printed is None else printed


def remap(x: Any, name: Optional[str] = None) -> Any:
    """The same tensor, laid out on the tiles as the device finds best."""
    return tf.identity(x, name=name)


def remap_deduce(x: Any, name: Optional[str] = None) -> Any:
    """The same tensor, laid out on the tiles as those who use it need it."""
    return tf.identity(x, name=name)


fifo = _unavailable_function(
    "fifo", "a queue between iterations is one operation of the vendor's library", "x, depth, offload=False, name=None"
)


def get_current_iteration_counter(name: Optional[str] = None, **kwargs: Any) -> Any:
    """The number of the iteration, from 0, of the loop in which it is called; ``kwargs`` are hints to a compiler."""
    iteration = _device_loop.current()
    if iteration is None:
        raise ValueError("get_current_iteration_counter was called outside of a loop: call it in the body of one.")
    return tf.identity(iteration.number, name=name)
