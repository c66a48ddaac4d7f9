"""Ops of the table under Paddle's other names make what they make under the first."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import pytest

from ipu_conformance import check, frameworks
from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops.row import Call, Missing, Row
from ipu_conformance.ops.rows.loss.reduced import reduced
from ipu_conformance.trials import judge
from ipu_conformance.trials.bench import Bench

from ..device import compiled


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


def _appended(paddle: Any, type: str, slot: str, **inputs: Any) -> Any:
    """The output of an op that Paddle has no function for and that takes columns."""
    like = next(iter(inputs.values()))
    block = paddle.static.default_main_program().current_block()
    columns = {name: paddle.reshape(x, [-1, 1]) for name, x in inputs.items()}
    column = block.create_var(dtype=like.dtype, shape=next(iter(columns.values())).shape)
    block.append_op(type=type, inputs=columns, outputs={slot: column})
    return paddle.reshape(column, like.shape)


def _rank(paddle: Any, left: Any, right: Any, label: Any) -> Any:
    return _appended(paddle, "rank_loss", "Out", Left=left, Right=right, Label=label)


def _hinge(paddle: Any, scores: Any, sign: Any) -> Any:
    return _appended(paddle, "hinge_loss", "Loss", Logits=scores, Labels=paddle.scale(sign, 0.5, 0.5))


def _cumsum(paddle: Any, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    block = paddle.static.default_main_program().current_block()
    out = block.create_var(dtype=x.dtype, shape=x.shape)
    attributes = {"axis": axis, "exclusive": exclusive, "reverse": reverse, "flatten": False}
    block.append_op(type="cumsum", inputs={"X": x}, outputs={"Out": out}, attrs=attributes)
    return out


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


def test_an_ignored_label_has_no_loss(paddle: Any) -> None:
    """A label that is to be ignored gives 0, and every other one its loss (``loss_ops.cc`` of an IPU build)."""
    scores = np.array([[0.5, -2.0], [3.0, -0.25], [-1.5, 4.0]], np.float32)
    label = np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]], np.float32)
    kept = label >= 0
    plain, ignoring = (_sigmoid_losses(paddle, scores, np.where(kept, label, filled), filled) for filled in (0.0, -1.0))

    check.identical(actual=ignoring, expected=np.where(kept, plain, np.float32(0)), what="the losses")


def _sigmoid_losses(paddle: Any, scores: np.ndarray, label: np.ndarray, ignored: float) -> np.ndarray:
    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        variables = {name: paddle.static.data(name, [3, 2], "float32") for name in ("x", "y")}
        out = main.current_block().create_var(dtype="float32", shape=[3, 2])
        main.current_block().append_op(
            type="sigmoid_cross_entropy_with_logits",
            inputs={"X": variables["x"], "Label": variables["y"]},
            outputs={"Out": out},
            attrs={"normalize": False, "ignore_index": int(ignored) if ignored else -100},
        )
        fetched = compiled(paddle, [out], feeds=("x", "y"), program=main).run(scores, label.astype(np.float32))
    paddle.disable_static()
    return fetched[0]


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
