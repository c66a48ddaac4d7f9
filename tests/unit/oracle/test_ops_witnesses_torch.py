"""The oracle against PyTorch, within the derived tolerance."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.oracle.witness_checks import check_agreement, rows


@pytest.mark.parametrize("name", rows("torch"))
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_oracle_and_torch_agree(name, data):
    """PyTorch computes what the oracle specifies, in float64 and in float32."""
    check_agreement("torch", name, data)
