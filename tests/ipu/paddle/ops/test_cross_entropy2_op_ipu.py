"""Losses of many classes: of scores, of probabilities and of logarithms of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_conformance.oracle.sample import Chooser

from .op_test_ipu import FLOAT32, F, called, case, forward_and_gradient, integers, values

LABELS = integers(6, high=4)


def _of_probabilities(paddle: Any, x: Any, label: Any, *, reduction: str, normalise: bool) -> Any:
    loss = paddle.nn.functional.cross_entropy(x, label.unsqueeze(1), reduction=reduction, use_softmax=False)
    return loss.squeeze(1)


def _soft(paddle: Any, x: Any, label: Any, *, reduction: str, label_smoothing: float) -> Any:
    return paddle.nn.functional.cross_entropy(x, label, soft_label=True, reduction=reduction).squeeze(1)


def _chances(chooser: Chooser) -> np.ndarray:
    drawn = chooser.array((6, 5), 0.25, 1.0)
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))


ENTROPY = called(F + "cross_entropy", reduction="reduction", ignore_index="ignore_index")
NLL = called(F + "nll_loss", reduction="reduction")

CASES = (
    case("cross_entropy_loss", ENTROPY, values(6, 5), LABELS, name="scores", reduction="none", ignore_index=-100,
         label_smoothing=0.0),
    case("cross_entropy_loss", ENTROPY, values(6, 5), LABELS, name="scores-mean", modes=FLOAT32, reduction="mean",
         ignore_index=-100, label_smoothing=0.0),
    case("cross_entropy_of_probabilities", _of_probabilities, _chances, LABELS, name="chances", reduction="none",
         normalise=False),
    case("soft_cross_entropy_loss", _soft, values(6, 5), _chances, name="soft", modes=FLOAT32, reduction="none",
         label_smoothing=0.0),
    case("nll_loss", NLL, values(6, 5, low=-4.0, high=-0.25), LABELS, name="nll", modes=FLOAT32, reduction="none",
         ignore_index=-100),
    case("nll_loss", NLL, values(6, 5, low=-4.0, high=-0.25), LABELS, name="nll-mean", modes=FLOAT32, reduction="mean",
         ignore_index=-100),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
