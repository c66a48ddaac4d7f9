"""Operations in float16 that the host would compute otherwise than the device, or not at all: here in float32.

The device holds the partial sums of products and convolutions in float32 unless it is told otherwise; the host's
kernels hold them in float16, where they have any. What is computed in float32 is rounded to float16 once, at its end.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence, Tuple

from ipu_conformance.emulator import faults

_MATH, _LINALG, _NN = (f"tensorflow.python.ops.gen_{name}_ops" for name in ("math", "linalg", "nn"))

OPERATIONS: Sequence[Tuple[str, str, bool]] = (
    (_MATH, "mat_mul", True),
    (_MATH, "batch_mat_mul_v2", True),
    (_LINALG, "einsum", True),
    (_NN, "conv2d", True),
    (_NN, "conv2d_backprop_input", True),
    (_NN, "conv3d", True),
    (_NN, "conv3d_backprop_input_v2", True),
    (_NN, "max_pool3d", False),
    (_NN, "avg_pool3d", False),
    (_MATH, "truncate_mod", False),
)
"""TensorFlow's module and function, and whether it has partial sums; for the others the host has no kernel."""


def widening(own: Callable[..., Any], *, partials: bool) -> Callable[..., Any]:
    """The operation that computes float16 in float32 in a program; ``partials`` if that is for its partial sums."""

    @functools.wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        from tensorflow.python.eager import context
        from tensorflow.python.framework import dtypes, ops
        from tensorflow.python.ops import math_ops

        def read(value: Any) -> Any:
            # A variable under a policy of mixed precision tells its own type, and is read in another.
            return ops.convert_to_tensor(value) if hasattr(value, "_cast_dtype") else value

        def widened(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(map(widened, value)) if any(map(is_half, value)) else value
            return math_ops.cast(value, dtypes.float32) if is_half(value) else value

        def is_half(value: Any) -> bool:
            return getattr(value, "dtype", None) == dtypes.float16

        args, kwargs = tuple(map(read, args)), {name: read(value) for name, value in kwargs.items()}
        operands = [*args, *kwargs.values()]
        wide = any(is_half(each) for value in operands for each in (value if isinstance(value, list) else [value]))
        if not wide or context.executing_eagerly() or (partials and _partials() == "float16"):
            return own(*args, **kwargs)
        result = own(*map(widened, args), **{name: widened(value) for name, value in kwargs.items()})
        return math_ops.cast(result, dtypes.float16)

    return call


def _partials() -> str:
    """The type of partial sums of what is made now: that of the scope around it."""
    from ipu_conformance.emulator.tensorflow.compile import scopes

    held = "float16" if scopes.partials() == "half" else "float32"
    return faults.at("numerics.partials", held)
