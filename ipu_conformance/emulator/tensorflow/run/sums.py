"""Sums of several tensors, which a device adds up in the same order in every run.

``AddN`` adds to the first of its inputs whose memory no one else holds any more: with three inputs and more, what other
operations have finished by then decides the last bits. Two have one sum in either order. TensorFlow would join sums of
two to one ``AddN``, unless they are marked to stay as they are.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Sequence


def ordered(own: Callable[..., Any]) -> Callable[..., Any]:
    """``gen_math_ops.add_n`` of a program in the order of the inputs, two at a time."""

    @functools.wraps(own)
    def add_n(inputs: Sequence[Any], name: Optional[str] = None) -> Any:
        from tensorflow.core.framework import attr_value_pb2
        from tensorflow.python.eager import context

        if context.executing_eagerly() or not isinstance(inputs, (list, tuple)) or len(inputs) < 2:
            return own(inputs, name)
        total = inputs[0]
        for number, value in enumerate(inputs[1:], 2):
            total = own([total, value], name if number == len(inputs) else None)
            total.op._set_attr("_grappler_do_not_remove", attr_value_pb2.AttrValue(b=True))
        return total

    return add_n
