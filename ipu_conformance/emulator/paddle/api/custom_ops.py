"""Custom ops of the IPU, written in Python where the vendor's are C++ against PopART.

``register`` takes an op's forward function and its gradient, in NumPy or in Paddle's own ops, and gives a function that
adds the op to a static program. ``IpuStrategy.add_custom_op`` then maps its name to PopART's, as on an IPU build::

    def forward(x, *, alpha):
        return np.where(x > 0, x, alpha * x)

    def gradient(x, y, grad, *, alpha):
        return np.where(x > 0, grad, alpha * grad)

    leaky = custom_ops.register("custom_leaky_relu", forward, gradient)
    y = leaky(x, alpha=0.125)
    strategy.add_custom_op("custom_leaky_relu", "LeakyRelu", domain="custom.ops", version=1)
"""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any, Optional

from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import custom_ops
from ipu_conformance.emulator.paddle.compile.custom_ops import CustomOp, CustomOpError, Function


def register(
    name: str,
    forward: Function,
    gradient: Optional[Function] = None,
    *,
    shapes: Optional[Function] = None,
    composed: bool = False,
) -> CustomOp:
    """Register an op and give the function that adds it to a program; registering a name again replaces it.

    ``forward(*inputs, **attributes)`` gives the output, or a tuple of several. With ``composed`` it is called once, on
    variables of the program, and writes Paddle ops; otherwise it is called in every run on NumPy arrays, and
    ``gradient(*inputs, *outputs, *gradients of the outputs, **attributes)`` gives the gradients of the inputs.
    ``shapes(*shapes of the inputs, **attributes)`` gives the shape of the output, or a list of several; without it,
    there is one output, with the shape of the first input.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise CustomOpError(f"the name of a custom op is an identifier, not {name!r}")
    if name in custom_ops.stock_ops():
        raise CustomOpError(f"{name!r} is an op of Paddle's own; choose another name for the custom op")
    if composed and (gradient is not None or shapes is not None):
        raise CustomOpError(
            f"custom op {name!r} is composed of Paddle ops, whose gradients and shapes Paddle knows; leave them out"
        )
    op = CustomOp(name, forward, gradient, shapes, composed)
    custom_ops.REGISTERED[name] = op
    return op


def refuse_sources(load: Function) -> Function:
    """``paddle.utils.cpp_extension.load`` that builds C++ ops for the CPU and refuses those written against PopART."""

    @functools.wraps(load)
    def checked(*args: Any, **kwargs: Any) -> Any:
        arguments = inspect.signature(load).bind(*args, **kwargs).arguments
        for source in arguments.get("sources") or ():
            refusals.SDK_SOURCE(source=source, for_the_ipu=_is_for_the_ipu(Path(source)))
        return load(*args, **kwargs)

    return checked


def _is_for_the_ipu(source: Path) -> bool:
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # Paddle's own load names the file that is missing.
    return any(f"#include <{header}" in text for header in ("popart", "poplar", "popops", "popnn"))
