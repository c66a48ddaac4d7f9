"""Parts of tensors that are written, and sums that are written where coordinates point."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from ipu_conformance.oracle.sample import Chooser

from ..device import compiled
from .op_test_ipu import case, forward_and_gradient, values


def _written(paddle: Any, x: Any, value: Any, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Any:
    index = tuple(slice(*bounds) for bounds in zip(starts, stops, steps))
    return paddle.static.setitem(x, index, value)


def _coordinates(chooser: Chooser) -> np.ndarray:
    """Pairs of coordinates, of which one occurs twice."""
    pairs = np.stack([chooser.integers((4,), 0, high) for high in (1, 2)], axis=-1)
    return np.concatenate([pairs, pairs[:1]])


CASES = (
    case("slice_update", _written, values(3, 4), values(3, 2), starts=(0, 1), stops=(3, 3), steps=(1, 1),
         declared=True),
    case("slice_update", _written, values(3, 5), values(2, 1), name="slice_update-steps", starts=(0, 1), stops=(3, 5),
         steps=(2, 2), declared=True),
    case("scatter_nd_add", "scatter_nd_add", values(2, 3, 4), _coordinates, values(5, 4), declared=True),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)


def test_a_number_is_written_to_a_part(paddle: Any, static: Any) -> None:
    """A number goes to every place of a part, and the rest stays."""
    x = static.data("x", [2, 3], "float32")
    out = static.setitem(x, (slice(None), slice(1, None)), 0.5)
    (got,) = compiled(paddle, [out], size=2).run(np.arange(6, dtype=np.float32).reshape(2, 3))

    assert got.tolist() == [[0, 0.5, 0.5], [3, 0.5, 0.5]]
