"""The divergence of two distributions."""

from __future__ import annotations

from .op_test_ipu import F, called, case, forward_and_gradient, values

DIVERGENCE = called(F + "kl_div", reduction="reduction")
INPUTS = (values(3, 4, low=-3.0, high=-0.25), values(3, 4, low=0.0625, high=0.75))

CASES = (
    case("kl_div_loss", DIVERGENCE, *INPUTS, reduction="none", log_target=False),
    case("kl_div_loss", DIVERGENCE, *INPUTS, name="kl_div_loss-sum", reduction="sum", log_target=False),
    case("kl_div_loss", DIVERGENCE, *INPUTS, name="kl_div_loss-batchmean", reduction="batchmean", log_target=False),
)

test_forward, test_gradient = forward_and_gradient(CASES)
