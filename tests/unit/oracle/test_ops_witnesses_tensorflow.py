"""The oracle against TensorFlow, within the derived tolerance."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.oracle.witness_checks import check_agreement, rows


@pytest.mark.parametrize("name", rows("tensorflow"))
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_oracle_and_tensorflow_agree(name, data):
    """TensorFlow computes what the oracle specifies, in float64 and in float32."""
    check_agreement("tensorflow", name, data)
