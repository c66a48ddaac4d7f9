"""Embedding: rows of a table by id, whose gradient adds up where an id repeats.

``padding_idx`` names a row that is never trained. In torch it is looked up like any other ("row"); in Paddle its
output is zero whatever the row holds ("zero"). TensorFlow has no such id.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import numpy as np

from ipu_conformance.oracle.op import OPS, Array, Op, Term, exact
from ipu_conformance.oracle.ops.arrays.movement import pull, pull_terms
from ipu_conformance.oracle.sample import Chooser, Sample


def _embedding(ids: Array, weight: Array, *, padding_idx: Optional[int] = None, padding: str = "zero") -> Array:
    rows = weight[ids]
    return np.where((ids == padding_idx)[..., None], 0.0, rows) if _zeroed(padding_idx, padding) else rows


def _zeroed(padding_idx: Optional[int], padding: str) -> bool:
    return padding_idx is not None and padding == "zero"


def _sources(ids: Array, weight: Array, padding_idx: Optional[int]) -> Array:
    positions = np.arange(1, 1 + weight.size).reshape(weight.shape)
    trained = np.ones_like(ids, dtype=bool) if padding_idx is None else ids != padding_idx
    return np.where(trained[..., None], positions[ids], 0).ravel()


def _vjp(
    cotangent: Array, ids: Array, weight: Array, *, padding_idx: Optional[int] = None, padding: str = "zero"
) -> List[Any]:
    return pull(_sources(ids, weight, padding_idx), cotangent, (ids, weight))


def _vjp_error(
    gradients: Sequence[Any],
    cotangent: Array,
    ids: Array,
    weight: Array,
    *,
    padding_idx: Optional[int] = None,
    padding: str = "zero",
) -> List[List[Term]]:
    return pull_terms(_sources(ids, weight, padding_idx), cotangent, (ids, weight))


def _draw(chooser: Chooser) -> Sample:
    rows, width = chooser.integer(1, 6), chooser.integer(1, 4)
    ids = chooser.integers(chooser.shape(1, 2, 6), 0, rows - 1)
    return Sample(
        (ids, chooser.array((rows, width))), {"padding_idx": chooser.choice([None, chooser.integer(0, rows - 1)])}
    )


OPS.add(Op("embedding", "embedding", _embedding, exact, _draw, _vjp, _vjp_error))
