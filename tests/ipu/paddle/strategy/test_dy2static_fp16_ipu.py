"""Dynamic-to-static in float16: enable_fp16 turns the Layer and its program into float16."""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..regression import RATE, START, half, half_step, odd, targets
from .test_dy2static_ipu import SIZE, WAYS, configured, home, model, training

HALF = np.float16


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_inference_rounds(paddle: Any, way: str, enabled: bool) -> None:
    """Outputs are float16, rounded after each op; without enable_fp16 the Layer and the arithmetic are float32."""
    net = model(paddle, way=way)
    configured(paddle, is_training=False).set_precision_config(enable_fp16=enabled)
    out = net(paddle.to_tensor(odd(SIZE))).numpy()
    exact = odd(SIZE) * START

    check.dtype(actual=net.weight.numpy(), expected=HALF if enabled else np.float32, what="the weight")
    expected = (half(odd(SIZE)) * START).astype(HALF) if enabled else exact.astype(np.float32)
    check.identical(actual=out, expected=expected, what="the output")
    if enabled:
        check.differs(actual=out.astype(np.float64), other=exact, what="the output")


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


@pytest.mark.parametrize(("turns", "scaling"), [(1, 1.0), (3, 1.0), (1, 8.0), (1, 128.0)])
def test_a_call_is_a_step_in_float16(paddle: Any, turns: int, scaling: float) -> None:
    """Outputs, losses and weights are the specified float16; the Layer is float16 and stale until weights come home.

    Scaling by a power of two leaves the same weight where nothing over- or underflows.
    """
    net, returned, stale = trained(paddle, turns, loss_scaling=scaling)
    home(paddle)
    weight = START.astype(HALF)

    check.identical(actual=stale, expected=weight, what="the weight before it comes home")
    for turn, (out, loss) in enumerate(returned):
        x, y = odd(SIZE, turn * SIZE), targets(SIZE, turn * SIZE)
        expected_out, expected_loss, gradient = half_step(x, y, weight)
        check.identical(actual=out, expected=expected_out.astype(HALF), what=f"the output of call {turn}")
        check.equal(actual=loss, expected=float(expected_loss), what=f"the loss of call {turn}")
        weight = (weight - RATE * gradient).astype(HALF)
    check.identical(actual=net.weight.numpy(), expected=weight, what="the weight")
