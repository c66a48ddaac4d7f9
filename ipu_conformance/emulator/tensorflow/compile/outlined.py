"""Functions that the device holds once, however often they are called."""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.compile import functions
from ipu_conformance.emulator.tensorflow.compile.graph_context import Replay


def outlined_function(
    func: Optional[Callable[..., Any]] = None,
    unique_sharding: bool = False,
    keep_input_layouts: Optional[bool] = None,
    name: Optional[str] = None,
) -> Any:
    """A function that computes what ``func`` does, with its gradients; every call shares its code on the device.

    Without ``func`` the result is a decorator.
    """
    if func is None:
        return functools.partial(
            outlined_function, unique_sharding=unique_sharding, keep_input_layouts=keep_input_layouts, name=name
        )
    if not callable(func):
        raise TypeError(f"`func` is {func!r}; pass a function.")

    @functools.wraps(func)
    def outlined(*args: Any) -> Any:
        values = [tf.nest.map_structure(tf.convert_to_tensor, value) for value in args]
        if tf.executing_eagerly():
            return func(*values)
        # A call makes the variables that it needs; another call of the same function object makes others.
        with tf.name_scope(name or "outlined"), Replay().building():
            return functions.converted(func)(*values)

    return outlined
