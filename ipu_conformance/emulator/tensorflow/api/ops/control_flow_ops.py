"""What must be finished before something else begins."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

__all__ = ["barrier"]


def barrier(
    tensors: Sequence[Any], insert_barrier_for_gradients: bool = False, name: Optional[str] = None
) -> List[Any]:
    """The same tensors, usable once all of them are computed; so are their gradients, if asked."""
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    if not given:
        raise ValueError("No tensors were given; pass those that must be computed first.")

    @tf.custom_gradient
    def held(*own: Any) -> Any:
        def back(*gradients: Any) -> Any:
            return _together(gradients, name) if insert_barrier_for_gradients else gradients

        return _together(own, name), back

    return list(held(*given))


def _together(tensors: Sequence[Any], name: Optional[str]) -> List[Any]:
    with tf.control_dependencies(tensors):
        return [tf.identity(tensor, name=name) for tensor in tensors]
