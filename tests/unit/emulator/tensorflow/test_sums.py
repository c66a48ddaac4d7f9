"""Sums of several tensors in a program are added up in the order of their inputs."""

from __future__ import annotations

from typing import Any, Callable, List

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("tf_of_file")

tf: Any = None

LARGE = float(2**24)
"""One more than this float32 does not hold: (LARGE + 1) + 1 is LARGE, and (1 + 1) + LARGE is not."""


def added(values: List[Any]) -> Any:
    """The sum of a list."""
    return tf.add_n(values)


def chained(values: List[Any]) -> Any:
    """The sum of a list as a chain of sums of two."""
    total = values[0]
    for value in values[1:]:
        total = tf.add_n([total, value])
    return total


@pytest.mark.parametrize("total", [added, chained], ids=["add_n", "chain"])
def test_inputs_that_others_hold_are_added_first(total: Callable[[List[Any]], Any]) -> None:
    """The first inputs are results of the program, so that only the last one's memory is free for the sum."""

    @tf.function
    def program(x: Any, first: Any, second: Any, third: Any) -> Any:
        values = [x * first, x * second, x * third]
        return total(values), values[:2]

    result, _ = program(tf.ones([3]), *map(tf.constant, (LARGE, 1.0, 1.0)))

    np.testing.assert_array_equal(result.numpy(), np.full(3, LARGE, np.float32))


def test_gradients_of_a_value_with_three_uses_are_added_from_the_last_use_back() -> None:
    """The gradient that reaches the value first is added first, whether its memory is free or not."""

    @tf.function
    def program(x: Any, first: Any, second: Any, third: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            uses = [tf.identity(x), tf.identity(x), tf.identity(x)]
            loss = sum(tf.reduce_sum(use * factor) for use, factor in zip(uses, (first, second, third)))
        return tape.gradient(loss, x), tape.gradient(loss, uses[1:])

    result, _ = program(tf.ones([3]), *map(tf.constant, (1.0, 1.0, LARGE)))

    np.testing.assert_array_equal(result.numpy(), np.full(3, LARGE, np.float32))
