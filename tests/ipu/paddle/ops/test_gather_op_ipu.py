"""Values that are looked up along an axis, and by their coordinates."""

from __future__ import annotations

import numpy as np

from ipu_conformance.oracle.sample import Chooser

from .op_test_ipu import case, forward_and_gradient, integers, values


def _coordinates(chooser: Chooser) -> np.ndarray:
    return np.stack([chooser.integers((4,), 0, high) for high in (1, 2)], axis=-1)


CASES = (
    case("gather", "gather", values(4, 3), integers(5, high=3), axis=0),
    case("gather", "gather", values(2, 4, 3), integers(5, high=3), name="gather-inner", axis=1, differentiable=False),
    case("index_select", "index_select", values(4, 5), integers(3, high=3), axis=1),
    case("gather_nd", "gather_nd", values(2, 3, 4), _coordinates),
    case("take_along_axis", lambda p, x, index, axis: p.take_along_axis(x, index, axis, broadcast=False), values(3, 4),
         integers(3, 2, high=3), axis=1),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
