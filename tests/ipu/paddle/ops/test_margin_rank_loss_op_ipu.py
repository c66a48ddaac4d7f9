"""Losses of pairs and of signs: by margin, by the chance that one wins, and by the hinge."""

from __future__ import annotations

from typing import Any

import numpy as np

from ipu_conformance.oracle.sample import Chooser

from .op_test_ipu import F, case, forward_and_gradient, integers, values


def _signs(chooser: Chooser) -> np.ndarray:
    return 2.0 * integers(4, 1, high=1)(chooser) - 1.0


def _labels(chooser: Chooser) -> np.ndarray:
    return integers(4, 1, high=1)(chooser).astype(float)


def _appended(paddle: Any, type: str, output: str, like: Any, **inputs: Any) -> Any:
    """The output of an op that Paddle has no function for."""
    block = paddle.static.default_main_program().current_block()
    variable = block.create_var(dtype=like.dtype, shape=like.shape)
    block.append_op(type=type, inputs=inputs, outputs={output: variable})
    return variable


def _rank(paddle: Any, left: Any, right: Any, label: Any, reduction: str) -> Any:
    return _appended(paddle, "rank_loss", "Out", left, Left=left, Right=right, Label=label)


def _hinge(paddle: Any, scores: Any, sign: Any, reduction: str) -> Any:
    label = paddle.scale(sign, 0.5, 0.5)
    return _appended(paddle, "hinge_loss", "Loss", scores, Logits=scores, Labels=label)


AWAY = (-1.0, 1.0)
PAIR = (values(4, 1, low=0.75, high=2.0), values(4, 1, low=-2.0, high=0.0))

CASES = (
    case("margin_ranking_loss", F + "margin_ranking_loss", *PAIR, _signs, margin=0.5, reduction="mean"),
    case("margin_ranking_loss", F + "margin_ranking_loss", *PAIR, _signs, name="margin_ranking_loss-each", margin=0.25,
         reduction="none"),
    case("hinge_embedding_loss", F + "hinge_embedding_loss", values(4, 1, avoid=[1.0]), _signs, margin=1.0,
         reduction="sum"),
    case("rank_loss", _rank, values(4, 1), values(4, 1), _labels, reduction="none"),
    case("hinge_loss", _hinge, values(4, 1, avoid=AWAY), _signs, reduction="none"),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
