"""Matrix products of Paddle programs with partial sums in float16."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import paddle
import pytest

from ipu_conformance.emulator.core import numerics
from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.compile import precision

from ..programs import run, static

RANDOM = np.random.default_rng(5)


def half_partials() -> IpuStrategy:
    """A strategy that asks for them."""
    strategy = IpuStrategy()
    strategy.set_options({"partials_type_matmuls": "half"})
    return strategy


def values(*shape: int) -> np.ndarray:
    """Random float16 values."""
    return RANDOM.standard_normal(shape).astype(np.float16)


def products(x: np.ndarray, y: np.ndarray, options: Dict[str, Any], strategy: IpuStrategy) -> List[np.ndarray]:
    """The product of two float16 matrices and, for a gradient of ones, the gradients of both."""
    with static() as (program, _, scope):
        wide = [paddle.static.data(name, list(array.shape), "float32") for name, array in (("x", x), ("y", y))]
        halves = [paddle.cast(variable, "float16") for variable in wide]
        for variable in halves:
            variable.stop_gradient = False
        out = paddle.matmul(*halves, **options)
        gradients = paddle.static.gradients(out, halves)
        feed = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
        names = [variable.name for variable in (out, *gradients)]
        return run(precision.realise(program, strategy), feed, names, scope)


SHAPES: Dict[str, Tuple[Tuple[int, ...], Tuple[int, ...], Dict[str, Any]]] = {
    "plain": ((3, 40), (40, 5), {}),
    "turned": ((40, 3), (5, 40), {"transpose_x": True, "transpose_y": True}),
    "batched": ((2, 3, 40), (2, 40, 5), {}),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_products_are_those_of_the_matrix_unit(kind: str) -> None:
    """Forwards and backwards every product is the core's, with partial sums in float16."""
    first, second, options = SHAPES[kind]
    x, y = values(*first), values(*second)
    left = np.swapaxes(x, -1, -2) if options.get("transpose_x") else x
    right = np.swapaxes(y, -1, -2) if options.get("transpose_y") else y
    out, dx, dy = products(x, y, options, half_partials())
    ones = np.ones(out.shape, np.float16)
    wanted_x = numerics.dot(ones, np.swapaxes(right, -1, -2), partials="float16")
    wanted_y = numerics.dot(np.swapaxes(left, -1, -2), ones, partials="float16")

    assert out.tolist() == numerics.dot(left, right, partials="float16").tolist()
    assert dx.tolist() == (np.swapaxes(wanted_x, -1, -2) if options else wanted_x).tolist()
    assert dy.tolist() == (np.swapaxes(wanted_y, -1, -2) if options else wanted_y).tolist()


def test_partials_matter() -> None:
    """Long sums in float16 differ from those in float32."""
    x, y = values(4, 512), values(512, 4)

    assert products(x, y, {}, half_partials())[0].tolist() != products(x, y, {}, IpuStrategy())[0].tolist()


def test_float32_products_are_left_alone() -> None:
    """The option concerns float16 alone."""
    with static() as (program, _, _):
        x = paddle.static.data("x", [3, 3], "float32")
        paddle.matmul(x, x)

        assert precision.realise(program, half_partials()) is program


def test_a_product_repeated_over_a_batch_sums_its_gradient() -> None:
    """A matrix that multiplies every matrix of a batch has the sum of their gradients."""
    x, y = values(2, 3, 8), values(8, 5)
    out, _, dy = products(x, y, {}, half_partials())
    ones = np.ones((2, 3, 5), np.float16)
    parts = numerics.dot(np.swapaxes(x, -1, -2), ones, partials="float16")

    assert out.tolist() == numerics.dot(x, y, partials="float16").tolist()
    assert dy.tolist() == numerics.to_float16(parts.astype(np.float32).sum(axis=0)).tolist()


def test_mul_flattens_its_operands() -> None:
    """The older product of Paddle's flattens its operands around the inner dimension."""
    x, y = values(2, 3, 8), values(8, 5)
    with static() as (program, _, scope):
        wide = [paddle.static.data(name, list(array.shape), "float32") for name, array in (("x", x), ("y", y))]
        left, right = (paddle.cast(variable, "float16") for variable in wide)
        left.stop_gradient = right.stop_gradient = False
        block = program.global_block()
        out = block.create_var(name="out", dtype="float16", shape=[2, 3, 5])
        block.append_op(
            type="mul", inputs={"X": left, "Y": right}, outputs={"Out": out},
            attrs={"x_num_col_dims": 2, "y_num_col_dims": 1},
        )  # fmt: skip
        gradients = paddle.static.gradients(out, [left, right])
        feed = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
        names = ["out", *(variable.name for variable in gradients)]
        got = run(precision.realise(program, half_partials()), feed, names, scope)
    flat, ones = x.reshape(6, 8), np.ones((6, 5), np.float16)

    assert got[0].tolist() == numerics.dot(flat, y, partials="float16").reshape(2, 3, 5).tolist()
    assert got[1].tolist() == numerics.dot(ones, y.T, partials="float16").reshape(2, 3, 8).tolist()
    assert got[2].tolist() == numerics.dot(flat.T, ones, partials="float16").tolist()
