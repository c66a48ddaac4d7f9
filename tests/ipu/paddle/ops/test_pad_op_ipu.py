"""Borders: of a constant, and of the values that are near."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from .op_test_ipu import case, forward_and_gradient, values


def _pad(paddle: Any, x: Any, pads: Sequence[Tuple[int, int]], mode: str, value: float = 0.0) -> Any:
    widths = [width for pair in reversed(pads[2:]) for width in pair]
    return paddle.nn.functional.pad(x, widths, mode=mode, value=value)


PADS = ((0, 0), (0, 0), (1, 2), (3, 0))

CASES = (
    case("pad", _pad, values(2, 3, 4, 5), name="pad-constant", pads=PADS, mode="constant", value=0.75),
    case("pad", _pad, values(2, 3, 4, 5), name="pad-reflect", pads=PADS, mode="reflect"),
    case("pad", _pad, values(2, 3, 4, 5), name="pad-replicate", pads=PADS, mode="replicate"),
)

test_forward, test_gradient = forward_and_gradient(CASES)
