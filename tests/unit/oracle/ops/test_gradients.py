"""Every gradient against central differences in float64, on drawn shapes and attributes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.op import Op
from ipu_conformance.oracle.ops import OPS
from ipu_conformance.oracle.sample import SeededChooser
from tests.unit.examples import at_most
from tests.unit.oracle.ops.differences import gradient_ratio
from tests.unit.oracle.ops.strategies import samples

DIFFERENTIABLE = [name for name, op in OPS.items() if op.vjp is not None]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@at_most(8)
@given(data=st.data())
def test_gradient_is_the_derivative(name, data):
    """The vector-Jacobian product is the derivative of the weighted outputs along every direction."""
    op = OPS[name]
    sample = data.draw(samples(op), label="sample")
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")

    assert gradient_ratio(op, sample, seed) < 1.0


def _scaled_by(factor: float, op: Op) -> Op:
    def vjp(*arguments, **attributes):
        assert op.vjp is not None
        return [None if value is None else value * factor for value in op.vjp(*arguments, **attributes)]

    return replace(op, vjp=vjp)


@pytest.mark.parametrize("name", ["conv", "gelu", "layer_norm", "cross_entropy_loss", "max_pool", "softmax"])
def test_gradient_that_is_a_millionth_off_is_found(name):
    """The comparison is sharp: a gradient wrong in its seventh digit exceeds the bound."""
    op = OPS[name]
    ratios = [gradient_ratio(_scaled_by(1.000001, op), op.draw(SeededChooser(seed)), seed) for seed in range(5)]

    assert max(ratios) > 1.0
