"""Losses of two classes: of probabilities, and of scores."""

from __future__ import annotations

from .op_test_ipu import FLOAT32, F, case, forward_and_gradient, integers, values

LABELS = lambda *shape: lambda chooser: integers(*shape, high=1)(chooser).astype(float)  # noqa: E731
CHANCES = values(3, 4, low=0.0625, high=0.9375)

CASES = (
    case("bce_loss", F + "binary_cross_entropy", CHANCES, LABELS(3, 4), reduction="none"),
    case("bce_loss", F + "binary_cross_entropy", CHANCES, LABELS(3, 4), name="bce_loss-sum", modes=FLOAT32,
         reduction="sum"),
    case("bce_with_logits_loss", F + "binary_cross_entropy_with_logits", values(3, 4), LABELS(3, 4), reduction="none"),
    case("bce_with_logits_loss", F + "binary_cross_entropy_with_logits", values(3, 4), LABELS(3, 4),
         name="bce_with_logits_loss-mean", modes=FLOAT32, reduction="mean"),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
