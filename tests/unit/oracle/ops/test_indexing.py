"""Data movement, gather, scatter and order: adjoints that hold exactly, repeated indices and equal elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.op import Op, as_tuple, exact
from ipu_conformance.oracle.ops import OPS
from tests.unit.examples import at_most
from tests.unit.oracle.ops.kinks import ask, forward, gradients
from tests.unit.oracle.ops.strategies import samples

MOVEMENTS = [op for op in OPS.values() if op.error is exact and op.vjp is not None and op.name not in ("sort", "topk")]


@pytest.mark.parametrize("op", MOVEMENTS, ids=lambda op: op.name)
@given(data=st.data())
@at_most(10)
def test_gradient_is_the_adjoint_of_the_movement(op: Op, data: st.DataObject) -> None:
    """<g, forward(x)> equals <vjp(g), x> without any rounding, on small integers and with constants left out."""
    sample = data.draw(samples(op))
    generator = np.random.default_rng(0)
    inputs = [generator.integers(-9, 9, x.shape).astype(float) if x.dtype.kind == "f" else x for x in sample.inputs]
    nothing = [np.zeros_like(x) if x.dtype.kind == "f" else x for x in sample.inputs]
    outputs = as_tuple(op.forward(*inputs, **sample.attributes))
    constants = as_tuple(op.forward(*nothing, **sample.attributes))
    weights = tuple(generator.integers(-9, 9, y.shape).astype(float) for y in outputs)
    assert op.vjp is not None
    single = not isinstance(op.forward(*inputs, **sample.attributes), tuple)
    found = op.vjp(weights[0] if single else weights, *inputs, **sample.attributes)

    there = sum(np.sum(g * (y - c)) for g, y, c in zip(weights, outputs, constants))
    back = sum(np.sum(d * x) for d, x in zip(found, inputs) if d is not None)
    assert there == back


def test_gradient_of_a_gather_adds_up_where_an_index_repeats() -> None:
    """A row gathered three times gets the sum of its three gradients."""
    gradient, _ = gradients("gather", [[1.0], [10.0], [100.0]], np.zeros((2, 1)), [1, 1, 1], axis=0)

    np.testing.assert_array_equal(gradient, [[0.0], [111.0]])


def test_scatter_adds_every_update_of_a_repeated_index() -> None:
    """Updates with one index all arrive; the array keeps what it held."""
    np.testing.assert_array_equal(forward("scatter_add", [5.0, 6.0], [1, 1], [10.0, 100.0]), [5.0, 116.0])


def test_scatter_overwrites_and_stops_the_gradient_of_what_it_replaced() -> None:
    """A replaced row is not trained, its replacement is."""
    x, _, updates = gradients("scatter", [1.0, 2.0, 3.0], np.zeros(3), [2], [7.0])

    np.testing.assert_array_equal(x, [1.0, 2.0, 0.0])
    np.testing.assert_array_equal(updates, [3.0])


@pytest.mark.parametrize(("witness", "padding"), [("torch", "row"), ("paddle", "zero")])
def test_padding_row_is_not_trained(witness: str, padding: str) -> None:
    """The padding row is looked up in torch and zero in Paddle, and gets no gradient in either."""
    ids, weight = np.array([0, 2, 2, 1]), np.arange(1.0, 7.0).reshape(3, 2)
    _, gradient = gradients("embedding", np.ones((4, 2)), ids, weight, padding_idx=2, padding=padding)
    found = ask(witness, "embedding", ids, weight, padding_idx=2, padding=padding)

    np.testing.assert_array_equal(gradient, [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    np.testing.assert_array_equal(
        forward("embedding", ids, weight, padding_idx=2, padding=padding)[1], weight[2] if padding == "row" else [0, 0]
    )
    assert (found.forward, found.gradient) == (0.0, 0.0)


@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_keep_their_order(descending: bool) -> None:
    """Sorting and top-k put the lower index first among equals, in both directions."""
    values, order = forward("sort", [2.0, 1.0, 2.0, 1.0], axis=0, descending=descending)

    np.testing.assert_array_equal(order, [0, 2, 1, 3] if descending else [1, 3, 0, 2])
    np.testing.assert_array_equal(values, [2, 2, 1, 1] if descending else [1, 1, 2, 2])
    assert forward("topk", [2.0, 1.0, 2.0], k=1, axis=0, largest=True)[1] == [0]
    assert forward("argmax", [2.0, 1.0, 2.0], axis=0) == 0


def test_running_sums_in_their_four_forms() -> None:
    """Of 1, 2, 4: with and without the element itself, from the start and from the end."""
    forms = {(False, False): [1, 3, 7], (True, False): [0, 1, 3], (False, True): [7, 6, 4], (True, True): [6, 4, 0]}

    for (exclusive, reverse), expected in forms.items():
        found = forward("cumsum", [1.0, 2.0, 4.0], axis=0, exclusive=exclusive, reverse=reverse)
        np.testing.assert_array_equal(found, expected)


def test_pad_modes_by_hand() -> None:
    """Two elements before 1, 2, 3: the value, the mirror image without the border, the border, the other end."""
    expected = {"constant": [9, 9], "reflect": [3, 2], "replicate": [1, 1], "circular": [2, 3]}

    for mode, front in expected.items():
        found = forward("pad", [[[1.0, 2.0, 3.0]]], pads=((2, 0),), mode=mode, value=9.0)
        np.testing.assert_array_equal(found, [[[*front, 1, 2, 3]]])


def test_block_orders_differ() -> None:
    """Depth-to-space counts the block before the channel, pixel shuffle after it."""
    x = np.arange(8.0).reshape(1, 8, 1, 1)

    np.testing.assert_array_equal(forward("depth_to_space", x, block=2, order="DCR")[0, 0], [[0, 2], [4, 6]])
    np.testing.assert_array_equal(forward("depth_to_space", x, block=2, order="CRD")[0, 0], [[0, 1], [2, 3]])


@pytest.mark.parametrize("order", ["DCR", "CRD"])
def test_space_to_depth_undoes_depth_to_space(order: str) -> None:
    """The two are inverse in either order."""
    x = np.arange(2 * 8 * 3 * 2.0).reshape(2, 8, 3, 2)
    there = forward("depth_to_space", x, block=2, order=order)

    np.testing.assert_array_equal(forward("space_to_depth", there, block=2, order=order), x)
