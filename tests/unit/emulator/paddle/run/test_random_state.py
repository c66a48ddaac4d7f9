"""Random numbers of Paddle's emulated device."""

from __future__ import annotations

import numpy as np
import paddle
from hypothesis import given
from hypothesis import strategies as st
from paddle.base import core

from ipu_conformance.emulator.paddle.compile import slot_programs, subprograms
from ipu_conformance.emulator.paddle.run import random_state
from tests.unit.examples import at_most

from ..programs import static

small = st.integers(0, 1000)


@at_most(200)
@given(st.tuples(small, small, small, small, small), st.tuples(small, small, small, small, small))
def test_slots_have_seeds_of_their_own(first: tuple, second: tuple) -> None:
    """A seed depends on every part, and is one that Paddle does not replace by its own."""
    one, other = random_state.number(*first), random_state.number(*second)

    assert 0 < one < 2**31
    assert (one == other) == (first == second)


def test_dropouts_read_their_seeds() -> None:
    """Each dropout of a copy has a variable for its seed, numbered in the order of the program; tests draw nothing."""
    with static() as (program, _, _):
        x = paddle.static.data("x", [2, 3], "float32")
        first = paddle.nn.functional.dropout(x, 0.5)
        paddle.nn.functional.dropout(paddle.nn.functional.dropout(first, 0.25, training=False), 0.5)
        seeded = slot_programs.seeded(program)
        read = [
            op.input("Seed") for op in subprograms.ops_of(seeded) if op.type() == "dropout" and not op.attr("is_test")
        ]

        assert read == [["@SEED@0"], ["@SEED@1"]]
        assert slot_programs.seeds_of(subprograms.ops_of(seeded)) == ["@SEED@0", "@SEED@1"]
        assert not slot_programs.seeds_of(subprograms.ops_of(program))


def test_the_generator_of_the_user_goes_on() -> None:
    """What a slot draws from Paddle's generator leaves the user's next draw as it would have been."""
    generator = core.default_cpu_generator()
    before = generator.get_state()
    paddle.seed(7)
    expected = paddle.rand([4]).numpy()
    paddle.seed(7)
    with random_state.generator(3):
        first = paddle.rand([4]).numpy()
    actual = paddle.rand([4]).numpy()
    with random_state.generator(3):
        again = paddle.rand([4]).numpy()
    generator.set_state(before)

    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(again, first)
    assert not np.array_equal(first, expected)
