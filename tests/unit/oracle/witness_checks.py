"""What the tests of every witness share: drawn samples, compared in float64 and in float32."""

from __future__ import annotations

import warnings
from typing import Any, List

from hypothesis import strategies as st

from ipu_conformance.oracle.ops import OPS
from tests.unit.oracle.installed import installed
from tests.unit.oracle.strategies import samples
from tests.unit.oracle.witnesses import WITNESSES
from tests.unit.oracle.witnesses.agreement import agreement


def rows(witness: str) -> List[str]:
    """The names of the ops that ``witness`` has rows for."""
    return sorted(WITNESSES[witness].rows)


def check_agreement(witness: str, name: str, data: Any) -> None:
    """Draw a sample of op ``name`` and compare the oracle with ``witness`` in both types."""
    installed(witness)
    sample = data.draw(samples(OPS[name]), label="sample")
    dtype = data.draw(st.sampled_from(["float64", "float32"]), label="dtype")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a framework warns of itself is not ours to mend
        result = agreement(OPS[name], WITNESSES[witness], sample, dtype)

    assert result.forward is None or result.forward < 1.0, f"{witness} disagrees on the outputs in {dtype}"
    assert result.gradient is None or result.gradient < 1.0, f"{witness} disagrees on the gradients in {dtype}"
