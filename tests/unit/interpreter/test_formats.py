"""What every reader reads can be executed: whole numbers through a dense layer, bit for bit."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance.interpreter import execute
from ipu_conformance.ir.files import loads

from ..ir import hlo_files, paddle_files, tf_files

X = np.arange(-3.0, 3.0).reshape(2, 3)
W = np.array([[1.0, -2.0, 3.0, 0.0], [2.0, 5.0, -1.0, 4.0], [-3.0, 1.0, 0.0, 2.0]])
B = np.array([7.0, -1.0, 2.0, -4.0])
PRODUCT = np.array([[sum(X[i, k] * W[k, j] for k in range(3)) for j in range(4)] for i in range(2)])
FILES: Dict[str, Tuple[Any, Dict[str, np.ndarray], np.ndarray]] = {
    "hlo": (hlo_files.LAYER.encode(), {"x": X, "w": W}, np.maximum(PRODUCT, 0)),
    "tensorflow": (tf_files.layer(), {"x": X, "w": W, "b": B}, np.tanh(PRODUCT + B)),
    "paddle": (paddle_files.layer(), {"x": X, "w": W, "b": B}, np.tanh(PRODUCT + B)),
}


@pytest.mark.parametrize("format", FILES)
def test_a_layer_is_executed_from_its_file(format: str) -> None:
    """A module of XLA, a GraphDef and a saved program compute what their layers say."""
    data, given, expected = FILES[format]
    graph = loads(data, format)

    outcome = execute(graph, given)

    (result,) = outcome.outputs.values()
    np.testing.assert_array_equal(result[0, 0, 0], expected)
