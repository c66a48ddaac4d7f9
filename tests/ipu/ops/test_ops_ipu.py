"""Every op of the table makes of every micro-batch what the oracle says, and so do its gradients.

The cases of an op follow from its row: drawn calls that cover its geometry, and the edges of its domain. Those of one
family share compiled programs.
"""

from __future__ import annotations

import pytest

from ipu_conformance.ops import Row

from . import judge
from .bench import Bench
from .cases import parameters


@pytest.mark.parametrize(("bench", "row", "edge"), parameters("forward"), indirect=["bench"])
def test_forward(bench: Bench, row: Row, edge: str) -> None:
    """The outputs of an op are the oracle's."""
    for trial in bench.trials(row, edge):
        judge.forward(row, trial, bench.dtype, bench.framework)


@pytest.mark.parametrize(("bench", "row", "edge"), parameters("gradient"), indirect=["bench"])
def test_gradient(bench: Bench, row: Row, edge: str) -> None:
    """The gradients of an op's inputs are the oracle's, summed over the micro-batches."""
    for trial in bench.trials(row, edge):
        judge.gradient(row, trial, bench.dtype, bench.framework)
