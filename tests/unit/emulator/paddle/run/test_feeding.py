"""Feeds dealt out to slots, and fetches put together."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.core.streams import Layout
from ipu_conformance.emulator.paddle.compile.subprograms import TensorSpec
from ipu_conformance.emulator.paddle.errors import InvalidArgument
from ipu_conformance.emulator.paddle.run.feeding import Feeder, Fetcher
from tests.unit.examples import at_most

factors = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))


@at_most(60)
@given(factors, st.integers(1, 3), st.booleans())
def test_what_is_fed_comes_back_in_order(given_factors: Tuple[int, int, int], size: int, split: bool) -> None:
    """Dealing out and putting together again keeps the order of the data, whatever the reported shape."""
    layout = Layout(*given_factors)
    own = TensorSpec("x", (size, 2), "float32")
    x = np.arange(layout.inputs * size * 2, dtype=np.float32).reshape(-1, 2)
    fed = x.reshape(layout.inputs, size, 2) if split else x
    outputs = Feeder([own], layout).deal({"x": fed})
    fetched = Fetcher(layout, replicated=True, accumulating=True).fetch("x", "float32", outputs)

    assert fetched.shape[:2] == (layout.replicas, layout.accumulation)
    np.testing.assert_array_equal(fetched.reshape(x.shape), x)


@at_most(40)
@given(factors, st.integers(1, 3))
def test_the_replica_is_dealt_to_fastest(given_factors: Tuple[int, int, int], size: int) -> None:
    """Micro-batch m of replica r is number m x replicas + r of the feed."""
    layout = Layout(*given_factors)
    x = np.arange(layout.inputs * size, dtype=np.float32).reshape(-1, 1)
    dealt = Feeder([TensorSpec("x", (size, 1), "float32")], layout).deal({"x": x})
    for replica in range(layout.replicas):
        for number in range(layout.micro_batches):
            start = (number * layout.replicas + replica) * size

            np.testing.assert_array_equal(dealt[replica][number]["x"], x[start : start + size])


@pytest.mark.parametrize(
    ("declared", "given_type", "held"),
    [
        ("int32", "int64", "int32"),
        ("float32", "float16", "float32"),
        ("float16", "float32", "float32"),
        ("bool", "bool", "bool"),
    ],
)
def test_feeds_are_held_in_the_declared_type(declared: str, given_type: str, held: str) -> None:
    """A feed becomes what the program declares; float16 is held rounded in float32."""
    array = np.array([[0, 1]]).astype(given_type)
    dealt = Feeder([TensorSpec("x", (1, 2), declared)], Layout()).deal({"x": array})[0][0]["x"]

    assert dealt.dtype == held
    np.testing.assert_array_equal(dealt, array.astype(held))


def test_what_fits_one_micro_batch_is_not_copied() -> None:
    """The array of a single micro-batch is passed on as it is."""
    array = np.zeros((2, 3), np.float32)

    assert Feeder([TensorSpec("x", (2, 3), "float32")], Layout()).deal({"x": array})[0][0]["x"] is array


@pytest.mark.parametrize("shape", [(5, 2), (7, 2), (3, 2), (6,), (2, 3, 2), (6, 3)])
def test_other_shapes_are_refused(shape: Tuple[int, ...]) -> None:
    """A feed has one of two shapes, and the sentence says which."""
    feeder = Feeder([TensorSpec("x", (2, 2), "float32")], Layout(3))

    with pytest.raises(InvalidArgument, match=r"feed x does not fit.*\(6, 2\) or \(3, 2, 2\)"):
        feeder.deal({"x": np.zeros(shape, np.float32)})


@pytest.mark.parametrize(
    ("layout", "switches", "shape", "expected"),
    [
        (Layout(), (False, False), (), (1,)),
        (Layout(), (False, False), (4,), (4,)),
        (Layout(2), (False, False), (4,), (2, 4)),
        (Layout(), (True, False), (4,), (1, 4)),
        (Layout(), (False, True), (4,), (1, 4)),
        (Layout(2, 3, 4), (True, True), (), (4, 3, 2, 1)),
        (Layout(1, 3, 4), (True, True), (5, 6), (4, 3, 5, 6)),
    ],
)
def test_reported_shapes(layout: Layout, switches: Any, shape: Tuple[int, ...], expected: Tuple[int, ...]) -> None:
    """Replicas and accumulation are reported when they are enabled, batches per step when there are several."""
    fetcher = Fetcher(layout, replicated=switches[0], accumulating=switches[1])

    assert fetcher.shape(shape) == expected
    assert fetcher.nothing(TensorSpec("x", shape, "int64")).shape == expected
    assert fetcher.nothing(TensorSpec("x", shape, "int64")).dtype == np.int32
