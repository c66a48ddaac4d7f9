"""A regression whose arithmetic rounds nothing in float32, as a program; ``oracle.exact`` holds its steps."""

from __future__ import annotations

import warnings
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.oracle.exact import REGRESSION_RATE as RATE
from ipu_conformance.oracle.exact import REGRESSION_START as START
from ipu_conformance.oracle.exact import Step, float32, half, inexact_in_half
from ipu_conformance.oracle.exact import regression_samples as samples
from ipu_conformance.oracle.exact import regression_step as step
from ipu_conformance.oracle.exact import regression_targets as targets

from .device import Device, compiled, save_model, started

__all__ = [
    "FEEDS", "RATE", "REDUCTIONS", "START", "Static", "Step", "build", "float32", "half", "half_step", "minimize",
    "odd", "samples", "save_squares", "start", "step", "targets", "to_half", "trainable",
]  # fmt: skip

FEEDS = ("x", "y")
REDUCTIONS = {"sum": 0, "mean": 1, "none": 2}
"""How a loss is reduced, by the numbers that ``identity_loss`` takes."""


def odd(count: int, first: int = 0) -> np.ndarray:
    """Samples that need more than the eleven bits of float16, and so do their products."""
    return inexact_in_half(samples(count, first))


def half_step(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Output, loss and gradient of a step with every op's result rounded, forwards and backwards."""
    out = half(half(x) * half(weight))
    off = half(out - half(y))
    loss = half(half(off * off).mean())
    seed = half(np.full(off.shape, 1.0 / off.size))
    back = half(2 * off * seed)
    return out, loss, half((back * half(x)).sum(axis=0))


class Static(NamedTuple):
    """The model in the main program."""

    main: Any
    out: Any
    loss: Any
    halves: Sequence[str]
    """What was turned into float16."""


def build(
    paddle: Any, *, size: int = 4, optimizer: Optional[Any] = None, half: Optional[str] = None, cut: bool = False
) -> Static:
    """Build the model into the current programs.

    ``half`` turns it into float16 before or after the optimizer, or by hand, by casts that lie in the model's stages.
    """
    narrow = (lambda value: paddle.cast(value, "float16")) if half == "by hand" else (lambda value: value)
    static = paddle.static
    x = static.data("x", [size, 2], "float32")
    y = static.data("y", [size, 2], "float32")
    shard = static.ipu_shard_guard
    with shard(index=0 if cut else -1, stage=0 if cut else -1):
        weight = paddle.create_parameter(
            [2], "float32", name="w", default_initializer=paddle.nn.initializer.Assign(START.astype(np.float32))
        )
        out = narrow(x) * narrow(weight)
    with shard(index=1 if cut else -1, stage=1 if cut else -1):
        loss = paddle.mean(paddle.square(out - narrow(y)))
    halves: List[str] = []
    if half == "before":
        halves = to_half(paddle)
    if optimizer is not None:
        minimize(optimizer, loss)
    if half == "after":
        halves = to_half(paddle)
    return Static(static.default_main_program(), out, loss, halves)


def minimize(optimizer: Any, loss: Any) -> None:
    """Add the optimizer to the program, without Paddle's advice against optimizers of float16 weights."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Accumulating with FP16")
        optimizer.minimize(loss)


def to_half(paddle: Any, lists: Optional[Any] = None) -> List[str]:
    """Turn the main program into float16 as users do, and give the names of what must follow in the scope."""
    if lists is None:
        lists = paddle.static.amp.CustomOpLists()
        lists.unsupported_list = set()
    main = paddle.static.default_main_program()
    return list(paddle.static.amp.cast_model_to_fp16(main, lists, use_fp16_guard=False))


def start(paddle: Any, halves: Sequence[str] = ()) -> None:
    """Initialise the weights of the main program in the scope, in float16 where they were turned into it."""
    started(paddle)
    if halves:
        main = paddle.static.default_main_program()
        paddle.static.amp.cast_parameters_to_fp16(paddle.CPUPlace(), main, to_fp16_var_names=set(halves))


def trainable(
    paddle: Any, optimizer: Any, *, fetches: Sequence[str] = ("loss",), half: Optional[str] = None, cut: bool = False,
    **options: Any,
) -> Tuple[Static, Device]:  # fmt: skip
    """The model with an optimizer, initialised and compiled; ``fetches`` are ``out`` and ``loss``, or one of them."""
    built = build(paddle, optimizer=optimizer, half=half, cut=cut)
    start(paddle, built.halves)
    variables = [getattr(built, name) for name in fetches]
    return built, compiled(paddle, variables, feeds=FEEDS, training=True, **options)


def save_squares(paddle: Any, folder: Any, size: int) -> str:
    """Save a model that squares its input, with a weight of ones, and give the prefix of its two files."""
    x = paddle.static.data("x", [size, 2], "float32")
    ones = paddle.nn.initializer.Constant(1.0)
    out = paddle.square(x) * paddle.create_parameter([2], "float32", default_initializer=ones)
    return save_model(paddle, folder, [x], [out])
