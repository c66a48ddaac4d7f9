"""Dynamic-to-static in float16: enable_fp16 turns the Layer and its program into float16."""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import pytest

from ..regression import RATE, START, half, odd, targets
from .test_dy2static_ipu import SIZE, home, inference, model, training

HALF = np.float16


def specified(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Tuple[np.ndarray, float, np.ndarray]:
    """Output, loss and the float16 weight after a step, every op's result rounded."""
    out = half(half(x) * weight)
    off = half(out - half(y))
    loss = float(half(half(off * off).mean()))
    back = half(2 * off * half(1.0 / off.size))
    gradient = half((back * half(x)).sum(axis=0))
    return out, loss, half(weight - RATE * gradient)


@pytest.mark.parametrize("way", ["decorated", "wrapped", "whole"])
def test_inference_rounds(paddle: Any, way: str) -> None:
    """Outputs are float16, rounded after each op."""
    net = model(paddle, way=way)
    inference(paddle).set_precision_config(enable_fp16=True)
    out = net(paddle.to_tensor(odd(SIZE))).numpy()

    assert out.dtype == HALF
    assert out.tolist() == half(half(odd(SIZE)) * START).tolist()
    assert out.tolist() != (odd(SIZE) * START).tolist()


def trained(paddle: Any, turns: int, **options: Any) -> Tuple[Any, List[Tuple[np.ndarray, float]], Any]:
    """A model trained for some calls in float16, and what the calls returned."""
    net = model(paddle)
    training(paddle, net, **options).set_precision_config(enable_fp16=True)
    returned = []
    for turn in range(turns):
        y = targets(SIZE, turn * SIZE)
        out, loss = net(paddle.to_tensor(odd(SIZE, turn * SIZE)), paddle.to_tensor(y))
        returned.append((out.numpy(), float(loss)))
    return net, returned, net.weight.numpy().copy()


@pytest.mark.parametrize("turns", [1, 2])
def test_a_call_is_a_step_in_float16(paddle: Any, turns: int) -> None:
    """Outputs, losses and weights are the specified float16; the Layer is float16 and stale until weights come home."""
    net, returned, stale = trained(paddle, turns)
    home(paddle)
    weight = START

    assert stale.dtype == HALF
    assert stale.tolist() == START.tolist()
    for turn, (out, loss) in enumerate(returned):
        wanted, cost, weight = specified(odd(SIZE, turn * SIZE), targets(SIZE, turn * SIZE), weight)
        assert out.dtype == HALF
        assert (out.tolist(), loss) == (wanted.tolist(), cost)
    assert net.weight.numpy().dtype == HALF
    assert net.weight.numpy().tolist() == weight.tolist()


@pytest.mark.parametrize("scaling", [8.0, 128.0])
def test_loss_scaling_cancels(paddle: Any, scaling: float) -> None:
    """Scaling by a power of two leaves the same float16 weight where nothing over- or underflows."""
    net, _, _ = trained(paddle, 1, loss_scaling=scaling)
    home(paddle)

    assert net.weight.numpy().tolist() == specified(odd(SIZE), targets(SIZE), START)[2].tolist()


@pytest.mark.parametrize("enabled", [True, False])
def test_only_enable_fp16_turns_a_layer(paddle: Any, enabled: bool) -> None:
    """Without it the Layer, its outputs and the arithmetic are float32."""
    net = model(paddle)
    inference(paddle).set_precision_config(enable_fp16=enabled)
    out = net(paddle.to_tensor(odd(SIZE))).numpy()

    assert out.dtype == net.weight.numpy().dtype == (HALF if enabled else np.float32)
    assert bool((out == odd(SIZE) * START).all()) is not enabled
