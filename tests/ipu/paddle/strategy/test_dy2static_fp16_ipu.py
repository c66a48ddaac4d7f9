"""Dynamic-to-static in float16: enable_fp16 turns the Layer and its program into float16."""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..regression import RATE, START, half, odd, targets
from .test_dy2static_ipu import SIZE, home, inference, model, training

HALF = np.float16


def specified(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Tuple[np.ndarray, float, np.ndarray]:
    """Output, loss and weight after a step in float16, every op's result rounded."""
    out = half(half(x) * weight)
    off = half(out - half(y))
    loss = float(half(half(off * off).mean()))
    back = half(2 * off * half(1.0 / off.size))
    gradient = half((back * half(x)).sum(axis=0))
    return out.astype(HALF), loss, (weight - RATE * gradient).astype(HALF)


@pytest.mark.parametrize("way", ["decorated", "wrapped", "whole"])
def test_inference_rounds(paddle: Any, way: str) -> None:
    """Outputs are float16, rounded after each op."""
    net = model(paddle, way=way)
    inference(paddle).set_precision_config(enable_fp16=True)
    out = net(paddle.to_tensor(odd(SIZE))).numpy()

    check.identical(actual=out, expected=(half(odd(SIZE)) * START).astype(HALF), what="the output")
    check.differs(actual=out.astype(np.float64), other=odd(SIZE) * START, what="the output")


def trained(paddle: Any, turns: int, **options: Any) -> Tuple[Any, List[Tuple[np.ndarray, float]], Any]:
    """A model trained for some calls in float16, and what the calls returned."""
    net = model(paddle)
    training(paddle, net, **options).set_precision_config(enable_fp16=True)
    returned = []
    for turn in range(turns):
        y = targets(SIZE, turn * SIZE)
        out, loss = net(paddle.to_tensor(odd(SIZE, turn * SIZE)), paddle.to_tensor(y))
        returned.append((out.numpy(), loss.item()))
    return net, returned, net.weight.numpy().copy()


@pytest.mark.parametrize("turns", [1, 3])
def test_a_call_is_a_step_in_float16(paddle: Any, turns: int) -> None:
    """Outputs, losses and weights are the specified float16; the Layer is float16 and stale until weights come home."""
    net, returned, stale = trained(paddle, turns)
    home(paddle)
    weight = START.astype(HALF)

    check.identical(actual=stale, expected=weight, what="the weight before it comes home")
    for turn, (out, loss) in enumerate(returned):
        x, y = odd(SIZE, turn * SIZE), targets(SIZE, turn * SIZE)
        expected_out, expected_loss, weight = specified(x, y, weight.astype(np.float64))
        check.identical(actual=out, expected=expected_out, what=f"the output of call {turn}")
        check.equal(actual=loss, expected=expected_loss, what=f"the loss of call {turn}")
    check.identical(actual=net.weight.numpy(), expected=weight, what="the weight")


@pytest.mark.parametrize("scaling", [8.0, 128.0])
def test_loss_scaling_cancels(paddle: Any, scaling: float) -> None:
    """Scaling by a power of two leaves the same float16 weight where nothing over- or underflows."""
    net, _, _ = trained(paddle, 1, loss_scaling=scaling)
    home(paddle)
    *_, expected = specified(odd(SIZE), targets(SIZE), START)

    check.identical(actual=net.weight.numpy(), expected=expected, what="the weight")


@pytest.mark.parametrize("enabled", [True, False])
def test_only_enable_fp16_turns_a_layer(paddle: Any, enabled: bool) -> None:
    """Without it the Layer, its outputs and the arithmetic are float32."""
    net = model(paddle)
    inference(paddle).set_precision_config(enable_fp16=enabled)
    out = net(paddle.to_tensor(odd(SIZE))).numpy()
    dtype = HALF if enabled else np.float32

    check.dtype(actual=net.weight.numpy(), expected=dtype, what="the weight")
    expected = (half(odd(SIZE)) * START if enabled else odd(SIZE) * START).astype(dtype)
    check.identical(actual=out, expected=expected, what="the output")
