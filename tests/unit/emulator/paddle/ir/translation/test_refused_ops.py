"""Calls of translated ops that have no counterpart on the device, and ops whose results have no fixed shape."""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

import paddle
import paddle.nn.functional as F
import pytest

from ipu_conformance.ir import IRError
from ipu_conformance.ir.readers.paddle import ops
from ipu_conformance.ir.readers.paddle import program as paddle_program

from ...programs import static
from .calls import linspace, raw

Feeds = Sequence[Tuple[Sequence[int], str]]


IMAGE = ([1, 2, 4, 4], "float32")
REFUSED = {
    "lengths": (
        lambda x, lengths: paddle.nn.LSTM(4, 3, direction="bidirect")(x, sequence_length=lengths)[0],
        [([2, 3, 4], "float32"), ([2], "int32")],
        "has lengths of sequences that it reads backwards, too; use one direction",
    ),
    "new dimensions": (
        lambda x, v: paddle.static.setitem(x, (slice(None), None), v),
        [([3, 4], "float32"), ([3, 1, 4], "float32")],
        "leave None out of the index",
    ),
    "reflection": (
        lambda x, grid: F.grid_sample(x, grid, padding_mode="reflection"),
        [IMAGE, ([1, 3, 3, 2], "float32")],
        "with 'reflection' around it",
    ),
    "overlaps": (
        lambda x, size: paddle.vision.ops.yolo_box(x, size, [10, 13], 2, 0.1, 8, iou_aware=True)[0],
        [([1, 8, 4, 4], "float32"), ([1, 2], "int32")],
        "leave iou_aware off",
    ),
    "slots": (
        raw("data_norm", "X BatchSize BatchSum BatchSquareSum", "Y Means Scales", slot_dim=2),
        [([3, 4], "float32"), *[([4], "float32")] * 3],
        "leave slot_dim as it is",
    ),
    "an axis that is fed": (
        lambda x, axis: paddle.concat([x, x], axis=axis),
        [([3, 4], "float32"), ([1], "int32")],
        "has its axis as a tensor",
    ),
    "repeats that are fed": (
        lambda x, times: paddle.tile(x, times),
        [([3, 4], "float32"), ([2], "int32")],
        "repeats it as often as tensors say",
    ),
    "whole steps": (lambda: linspace(0, 4, 5, dtype="int32"), [], "linspace makes 5 of INT32"),
    "a count that is fed": (
        lambda count: linspace(0.0, 4.0, count),
        [([1], "int32")],
        "'x0' is a number that is computed or fed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_without_a_counterpart_is_refused(name: str) -> None:
    """The error says what of the op is not translated."""
    build: Any
    build, feeds, message = REFUSED[name]
    with static() as (program, _, _):
        _built(build, feeds)
        with pytest.raises(IRError) as error:
            paddle_program.read_program(program)

    assert message in str(error.value)


def _built(build: Callable[..., Any], feeds: Feeds) -> Any:
    return build(*(paddle.static.data(f"x{place}", shape, kind) for place, (shape, kind) in enumerate(feeds)))


@pytest.mark.parametrize(
    ("build", "kind", "op"),
    [
        (paddle.nonzero, "bool", "where_index"),
        (paddle.unique, "float32", "unique"),
        (lambda x: paddle.masked_select(x, x > 0), "float32", "masked_select"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_op_whose_result_has_no_fixed_shape_has_no_row(build: Callable[..., Any], kind: str, op: str) -> None:
    """How long the result is depends on the values, which nobody knows when a program is compiled."""
    with static() as (program, _, _):
        _built(build, [([3, 4], kind)])
        types = [each.type for each in program.global_block().ops]

    assert op in types
    assert op not in ops.ROWS
