"""Mixed precision: some ops, or the optimizer's weights, stay in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_conformance import check

from .. import regression
from ..device import compiled
from ..regression import float32, half, odd

HALF = np.float16


def test_a_cast_back_keeps_the_loss(paddle: Any, static: Any) -> None:
    """What float16 has lost does not come back in float32."""
    x = np.array([[1 + 2.0**-12, 1 + 2.0**-10]], np.float32)
    variable = static.data("x", [1, 2], "float32")
    out = paddle.cast(paddle.cast(variable, "float16"), "float32") * 1.5
    (fetched,) = compiled(paddle, [out], size=1).run(x)

    check.identical(actual=fetched, expected=float32([[1.5, 1.5 * (1 + 2.0**-10)]]), what="the output")


def test_ops_outside_of_the_guard_stay_float32(paddle: Any, static: Any) -> None:
    """With fp16_guard only what was built inside it is float16."""
    x = np.array([[1 + 2.0**-10, 3.0]], np.float32)
    variable = static.data("x", [1, 2], "float32")
    wide = variable * variable
    with static.amp.fp16_guard():
        narrow = wide + 2048.0
    lists = static.amp.CustomOpLists()
    lists.unsupported_list = set()
    static.amp.cast_model_to_fp16(static.default_main_program(), lists, use_fp16_guard=True)
    squares, sums = compiled(paddle, [wide, narrow], size=1).run(x)

    check.identical(actual=squares, expected=x * x, what="the square outside of the guard")
    sums_in_half = (half(x.astype(np.float64) ** 2) + 2048).astype(HALF)
    check.identical(actual=sums, expected=sums_in_half, what="the sum inside the guard")


def test_listed_ops_stay_float32(paddle: Any, static: Any) -> None:
    """An op of the unsupported list computes in float32 between float16 ones."""
    x = np.array([[3.0, 5.0]], np.float32)
    variable = static.data("x", [1, 2], "float32")
    out = paddle.square(variable) + 0.25
    lists = static.amp.CustomOpLists()
    lists.unsupported_list = {"scale"}
    regression.to_half(paddle, lists)
    (fetched,) = compiled(paddle, [out * 1.0], size=1).run(x * 30)

    check.identical(actual=fetched, expected=float32(half((x.astype(np.float64) * 30) ** 2) + 0.25), what="the output")


def test_a_weight_in_half_loses_small_steps(paddle: Any, static: Any) -> None:
    """Without a master weight, which no IPU build has, a step below half the spacing of float16 is lost."""
    rule = paddle.optimizer.Momentum(2.0**-12, momentum=0.0)
    built = regression.build(paddle, optimizer=rule, half="before")
    regression.start(paddle, built.halves)
    device = compiled(paddle, [built.loss], feeds=regression.FEEDS, training=True)
    for _ in range(6):
        device.run(odd(4), regression.targets(4))
    device.sync()
    weight = device.value("w")

    # A step is about 2^-12 times a gradient between 1/2 and 2; the spacing of float16 above 1 is 2^-10.
    check.dtype(actual=weight, expected=HALF, what="the weight")
    moved = (weight.astype(np.float64) != regression.START).tolist()
    check.equal(actual=moved, expected=[False, False], what=f"whether each value of the weight {weight} has moved")
