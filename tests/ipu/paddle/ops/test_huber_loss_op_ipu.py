"""Losses of differences: squares, absolute values, and squares near zero only."""

from __future__ import annotations

from .op_test_ipu import F, case, forward_and_gradient, values

NEAR, FAR = values(3, 4, low=0.0625, high=0.5), values(3, 4, low=1.75, high=3.0)

CASES = (
    case("huber_loss", F + "smooth_l1_loss", values(3, 4, low=-0.25, high=-0.125), NEAR, reduction="none", delta=1.0),
    case("huber_loss", F + "smooth_l1_loss", values(3, 4, low=-0.5, high=0.5), FAR, name="huber_loss-far",
         reduction="sum", delta=0.75),
    case("mse_loss", F + "mse_loss", values(3, 4), FAR, reduction="mean"),
    case("l1_loss", F + "l1_loss", values(3, 4, low=-1.0, high=1.0), FAR, reduction="mean"),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
