"""Parts of tensors, with and without steps, and triangles of matrices."""

from __future__ import annotations

from typing import Any, Sequence

from .op_test_ipu import called, case, forward_and_gradient, values


def _slice(paddle: Any, x: Any, starts: Sequence[int], stops: Sequence[int]) -> Any:
    return paddle.slice(x, list(range(len(starts))), list(starts), list(stops))


def _strided(paddle: Any, x: Any, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Any:
    return paddle.strided_slice(x, list(range(len(starts))), list(starts), list(stops), list(steps))


CASES = (
    case("slice", _slice, values(4, 5, 6), starts=(1, 0, -3), stops=(4, 3, -1)),
    case("strided_slice", _strided, values(4, 5, 7), starts=(0, 1, 6), stops=(4, 5, 0), steps=(1, 2, -3)),
    case("tril", called("tril", "offset"), values(2, 4, 5), offset=1),
    case("triu", called("triu", "offset"), values(2, 4, 5), offset=-1),
)

test_forward, test_gradient = forward_and_gradient(CASES)
