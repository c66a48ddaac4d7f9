"""Ops of the table under Paddle's other names make what they make under the first."""

from __future__ import annotations

from typing import Any, Mapping

import pytest

from ipu_conformance import check, frameworks
from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops.row import Call, Missing, Row
from ipu_conformance.ops.rows.loss.reduced import reduced
from ipu_conformance.trials import judge
from ipu_conformance.trials.bench import Bench

from ..device import appended


def _diag_embed(paddle: Any, x: Any, offset: int) -> Any:
    if x.ndim != 1:
        raise Inexpressible("it makes matrices of vectors")
    return paddle.squeeze(paddle.nn.functional.diag_embed(paddle.unsqueeze(x, 0), offset), 0)


def _diagonal(paddle: Any, x: Any, offset: int) -> Any:
    if x.ndim != 2:
        raise Inexpressible("it takes the diagonal of matrices")
    return paddle.diagonal(x, offset)


def _add_n(paddle: Any, *tensors: Any) -> Any:
    if any(list(x.shape) != list(tensors[0].shape) for x in tensors):
        raise Inexpressible("it adds tensors of one shape")
    return paddle.add_n(list(tensors))


def _column(paddle: Any, type: str, slot: str, **inputs: Any) -> Any:
    """The output of an op that Paddle has no function for and that takes columns."""
    like = next(iter(inputs.values()))
    columns = {name: paddle.reshape(x, [-1, 1]) for name, x in inputs.items()}
    shape = next(iter(columns.values())).shape
    return paddle.reshape(appended(paddle, type, columns, slot=slot, made=like.dtype, shape=shape), like.shape)


def _rank(paddle: Any, left: Any, right: Any, label: Any) -> Any:
    return _column(paddle, "rank_loss", "Out", Left=left, Right=right, Label=label)


def _hinge(paddle: Any, scores: Any, sign: Any) -> Any:
    return _column(paddle, "hinge_loss", "Loss", Logits=scores, Labels=paddle.scale(sign, 0.5, 0.5))


def _cumsum(paddle: Any, x: Any, **attributes: Any) -> Any:
    return appended(paddle, "cumsum", {"X": x}, made=x.dtype, shape=x.shape, flatten=False, **attributes)


def _row(op: str, call: Call, **options: Any) -> Row:
    """A row that is not in the table."""
    return Row(op, *(Missing("the name is Paddle's"),) * 2, call, **options)


OTHERS: Mapping[str, Row] = {
    "diag_embed": _row("diag", _diag_embed, without_gradient=("paddle",)),
    "diagonal": _row("diag", _diagonal),
    "add_n": _row("add", _add_n),
    "expand_as": _row("expand", lambda paddle, x, shape: paddle.expand_as(x, paddle.zeros(list(shape), x.dtype))),
    "cumsum": _row("cumsum", _cumsum),
    "rank_loss": _row("rank_loss", reduced(_rank)),
    "hinge_loss": _row("hinge_loss", reduced(_hinge)),
}


WITHOUT_A_HANDLER = ("diag_embed", "diagonal", "hinge_loss")
"""Calls that become ops for which an IPU build has no handler: the emulator alone is asked."""


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.emulator] * (name in WITHOUT_A_HANDLER)) for name in OTHERS]
)
def test_another_call_is_the_same_op(paddle: Any, name: str, dtype: str) -> None:
    """Outputs are the oracle's, and gradients where Paddle has them."""
    row = OTHERS[name]
    trials = Bench("paddle", frameworks.load("paddle"), dtype, [(row, "drawn")]).trials(row, "drawn")

    for trial in trials:
        judge.forward(row, trial, dtype, "paddle")
        if trial.asked.wanted:
            judge.gradient(row, trial, dtype, "paddle")
    check.differs(actual=len(trials), other=0, what=f"the number of calls of {name} that Paddle can express")
