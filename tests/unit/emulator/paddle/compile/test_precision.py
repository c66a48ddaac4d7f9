"""Programs that compute in float16 by rounding around float32 kernels."""

from __future__ import annotations

from typing import Any, List

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from paddle.base import core

from ipu_conformance.emulator.core import numerics
from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.compile import precision
from ipu_conformance.emulator.paddle.errors import PopartError
from tests.unit.examples import at_most

from ..programs import run, static

STEP = 2.0**-10
"""The distance of float16 values between 1 and 2."""


def strategy(**options: Any) -> IpuStrategy:
    """A strategy with the given options."""
    made = IpuStrategy()
    made.set_options(options)
    return made


def test_a_float32_program_is_left_alone() -> None:
    """Where nothing is float16 the same program comes back."""
    with static() as (program, _, _):
        x = paddle.static.data("x", [2, 3], "float32")
        paddle.matmul(x, x, transpose_y=True)

        assert precision.realise(program, IpuStrategy()) is program


def test_results_are_rounded_to_nearest_even() -> None:
    """Each op's result is the nearest float16 of what it computes from rounded operands, ties to even."""
    values = np.array([1 + STEP / 2, 1 + 3 * STEP / 2, 1 + STEP / 2 + STEP / 8, 3.14159, -2.71828], np.float32)
    with static() as (program, _, scope):
        x = paddle.static.data("x", [5], "float32")
        y = paddle.cast(x, "float16")
        z = y * y
        realised = precision.realise(program, IpuStrategy())
        got = run(realised, {"x": values}, [y.name, z.name], scope)

    rounded = values.astype(np.float16)
    assert got[0].tolist() == rounded.tolist()
    assert got[1].tolist() == (rounded.astype(np.float32) ** 2).astype(np.float16).tolist()
    assert rounded[0] == 1
    assert rounded[1] == 1 + 2 * STEP


def test_nothing_but_float16_is_rounded() -> None:
    """A float32 variable of a mixed program keeps its bits."""
    values = np.array([1 + 2.0**-20, 3.14159], np.float32)
    with static() as (program, _, scope):
        x = paddle.static.data("x", [2], "float32")
        wide = x * 1.0
        half = paddle.cast(x, "float16")
        got = run(precision.realise(program, IpuStrategy()), {"x": values}, [wide.name, half.name], scope)

    assert got[0].tolist() == values.tolist()
    assert got[1].tolist() == values.astype(np.float16).tolist()


def test_the_given_program_is_not_changed() -> None:
    """Realising makes a new program; the user's own keeps its types and ops."""
    with static() as (program, _, _):
        paddle.cast(paddle.static.data("x", [2], "float32"), "float16")
        before = program.desc.serialize_to_string()
        realised = precision.realise(program, IpuStrategy())

        assert program.desc.serialize_to_string() == before
        assert precision.halves(program)
        assert not precision.halves(realised)


def test_overflow_saturates() -> None:
    """A result beyond the range of float16 becomes its largest value."""
    with static() as (program, _, scope):
        half = paddle.cast(paddle.static.data("x", [2], "float32"), "float16")
        squared = half * half
        got = run(
            precision.realise(program, IpuStrategy()), {"x": np.array([300, -3], np.float32)}, [squared.name], scope
        )

    assert got[0].tolist() == [65504.0, 9.0]


def test_overflow_traps_when_asked() -> None:
    """With floating-point checks an overflow is an error that names the value."""
    with static() as (program, _, scope):
        half = paddle.cast(paddle.static.data("x", [2], "float32"), "float16")
        squared = half * half
        realised = precision.realise(program, strategy(enable_floating_point_checks=True))

        with pytest.raises(PopartError, match=r"Floating point exception: .*90000"):
            run(realised, {"x": np.array([3, 300], np.float32)}, [squared.name], scope)


def stochastic(seed: int) -> IpuStrategy:
    """A strategy with stochastic rounding."""
    return strategy(enable_stochastic_rounding=True, random_seed=seed)


def test_stochastic_rounding_is_unbiased() -> None:
    """A quarter of a step above a value is rounded up a quarter of the times.

    The bound is five standard deviations of the binomial distribution, missed less than once in a million seeds.
    """
    count = 4096
    with static() as (program, _, scope):
        half = paddle.cast(paddle.static.data("x", [count], "float32"), "float16")
        realised = precision.realise(program, stochastic(7))
        (got,) = run(realised, {"x": np.full(count, 1 + STEP / 4, np.float32)}, [half.name], scope)

    assert set(got.tolist()) == {1.0, 1 + STEP}
    assert abs(int((got > 1).sum()) - count / 4) < 5 * (count * 0.25 * 0.75) ** 0.5


def test_replicas_round_alike_and_turns_differ() -> None:
    """The programs of two replicas that round the same values draw the same; the next turn and other seeds do not."""
    values = np.full(64, 1 + STEP / 2, np.float32)
    with static() as (program, _, scope):
        half = paddle.cast(paddle.static.data("x", [64], "float32"), "float16")

        def turns(seed: int) -> List[List[float]]:
            realised = precision.realise(program, stochastic(seed))
            return [run(realised, {"x": values}, [half.name], scope)[0].tolist() for _ in range(2)]

        first, second, other = turns(7), turns(7), turns(8)

    assert first == second
    assert first[0] != first[1]
    assert first[0] != other[0]


@at_most(60)
@given(arrays.arrays(np.float32, st.integers(0, 8), elements=st.floats(width=32, allow_nan=False)))
def test_what_the_device_holds_is_what_the_host_gets(values: np.ndarray) -> None:
    """Sending rounds once; receiving a float16 variable gives those values with their type, others as they are."""
    held = precision.to_device(values, "float16")
    back = precision.to_host(held, "float16")

    assert held.dtype == np.float32
    assert back.dtype == np.float16
    assert np.array_equal(held, back.astype(np.float32))
    assert np.array_equal(back, numerics.to_float16(values))
    assert precision.to_host(values, "float32") is values
    assert precision.to_device(values, precision.FLOAT32) is values


@pytest.mark.parametrize("held", ["float16", "float32"])
def test_weights_follow_the_host(held: str) -> None:
    """A weight that the host holds in float16 is declared so; others are left alone."""
    with static() as (program, startup, scope):
        weight = paddle.create_parameter([2], "float32", name="weight")
        run(startup, {}, [], scope)
        scope.find_var("weight").get_tensor().set(np.ones(2, held), core.CPUPlace())
        precision.follow_the_scope(program, scope)

        assert weight.dtype == (precision.FLOAT16 if held == "float16" else precision.FLOAT32)
