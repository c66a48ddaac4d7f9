"""The oracle against SciPy, PyTorch, TensorFlow and Paddle, within the derived tolerance."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.ops import OPS
from tests.unit.examples import at_most
from tests.unit.oracle.installed import framework_using, installed
from tests.unit.oracle.ops.strategies import samples
from tests.unit.oracle.witnesses import WITNESSES
from tests.unit.oracle.witnesses.agreement import agreement

EXAMPLES = {"scipy": 4, "torch": 6, "tensorflow": 4, "paddle": 4}
"""How many samples each witness is asked for; PyTorch has the most rows and the fewest exceptions."""
ROWS = [
    pytest.param(witness, name, id=f"{framework_using(witness)}-{name}")
    for witness in EXAMPLES
    for name in sorted(WITNESSES[witness].rows)
]


@pytest.mark.parametrize(("witness", "name"), ROWS)
def test_the_oracle_and_a_witness_agree(witness, name):
    """A witness computes what the oracle specifies, in float64 and in float32."""
    installed(witness)

    @at_most(EXAMPLES[witness])
    @given(sample=samples(OPS[name]), dtype=st.sampled_from(["float64", "float32"]))
    def agree(sample, dtype):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a framework warns of itself is not ours to mend
            result = agreement(OPS[name], WITNESSES[witness], sample, dtype)

        assert result.forward is None or result.forward < 1.0, f"{witness} disagrees on the outputs in {dtype}"
        assert result.gradient is None or result.gradient < 1.0, f"{witness} disagrees on the gradients in {dtype}"

    agree()
