"""Images of another size."""

from __future__ import annotations

from typing import Any, Sequence

from .op_test_ipu import case, forward_and_gradient, values


def _nearest(paddle: Any, x: Any, size: Sequence[int], coordinates: str) -> Any:
    return paddle.nn.functional.interpolate(x, list(size), mode="nearest")


def _linear(paddle: Any, x: Any, size: Sequence[int], coordinates: str) -> Any:
    corners = coordinates == "align_corners"
    return paddle.nn.functional.interpolate(x, list(size), mode="bilinear", align_corners=corners)


CASES = (
    case("interpolate_nearest", _nearest, values(2, 3, 4, 2), size=(8, 6), coordinates="asymmetric", declared=True),
    case("interpolate_linear", _linear, values(2, 3, 4, 2), size=(8, 6), coordinates="half_pixel", declared=True),
    case("interpolate_linear", _linear, values(2, 3, 3, 2), name="interpolate_linear-corners", size=(5, 4),
         coordinates="align_corners", declared=True),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
