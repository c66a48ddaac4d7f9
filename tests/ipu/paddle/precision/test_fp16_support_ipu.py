"""Programs in float16, in whole or in part: every op's result is rounded to nearest even, and fetched in float16."""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import Tolerance

from .. import regression
from ..device import compiled, started
from ..regression import RATE, START, float32, half, half_step, odd, targets

HALF = np.float16
PAST = 2048.0
"""From here on float16 has even numbers only."""


def infer(paddle: Any, build: Callable[[Any], Any], x: np.ndarray, *, feed: str = "float32", **options: Any) -> Any:
    """Turn a function of one variable into a float16 program and run it on the device."""
    variable = paddle.static.data("x", list(x.shape), feed)
    out = build(variable)
    if feed == "float32":
        regression.to_half(paddle)
    return compiled(paddle, [out], size=len(x), enable_fp16=True, **options).run(x.astype(feed))[0]


# Below a tie, a tie to the even number below, above a tie, ties to the even number above, and so on.
ADDENDS = [0.5, 1.0, 1.5, 2.5, 3.0, 5.0, 7.0, 6.999]
Row = Tuple[Callable[[Any], Any], List[float], List[float], Dict[str, Any]]
VALUES: Dict[str, Row] = {
    # 2048 + x - 2048 is x rounded to an even number: the nearest, and of two the one whose half is even.
    **{
        f"sums-{feed}": (lambda v: (v + PAST) - PAST, ADDENDS, [0, 0, 2, 2, 4, 4, 8, 8], {"feed": feed})
        for feed in ("float32", "float16")
    },
    # Below 2^-14 float16 has fewer and fewer bits, down to 2^-24, and nothing becomes zero above that.
    "small": (
        lambda v: (v * 2.0**-19) * 2.0**15,
        [2.0**-4, 3 * 2.0**-5, 5 * 2.0**-6, 2.0**-7],
        [2.0**-8, 3 * 2.0**-9, 2.0**-8, 0.0],
        {},
    ),
    # A result beyond the range is the largest value.
    "overflow": (lambda v: v * v, [300.0, -3.0], [65504.0, 9.0], {}),
}


@pytest.mark.parametrize("what", VALUES)
def test_values_are_rounded_to_nearest_even(paddle: Any, static: Any, what: str) -> None:
    """Sums and small values have the bits of float16, and what overflows saturates."""
    build, x, expected, options = VALUES[what]
    rounded = infer(paddle, build, np.array([x], np.float32), **options)

    check.identical(actual=rounded, expected=np.array([expected], HALF), what=f"what becomes of {x}")


@pytest.mark.parametrize("random", [False, True])
def test_overflow_stops_a_checked_program(paddle: Any, static: Any, random: bool) -> None:
    """With enable_floating_point_checks, overflow is an error, under stochastic rounding, too."""
    checked: Dict[str, Any] = {"enable_floating_point_checks": True, "enable_stochastic_rounding": random}

    with check.raises(RuntimeError, what="the square of 300 in float16"):
        infer(paddle, lambda v: v * v, np.array([[300.0, -3.0]], np.float32), **checked)


@pytest.mark.parametrize("declared", ["float16", "float32"])
def test_float32_arrays_are_rounded_on_their_way(paddle: Any, static: Any, declared: str) -> None:
    """A float32 array that is fed to a float16 variable, or cast to it, is rounded to nearest even for good."""
    x = np.array([[1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-12, 1 + 2.0**-10]], np.float32)
    variable = static.data("x", [1, 4], declared)
    narrow = variable if declared == "float16" else paddle.cast(variable, "float16")
    (fetched,) = compiled(paddle, [paddle.cast(narrow, "float32") * 1.5], size=1).run(x)

    expected = float32([[1.5, 1.5 * (1 + 2.0**-9), 1.5, 1.5 * (1 + 2.0**-10)]])
    check.identical(actual=fetched, expected=expected, what="the feed times 1.5")


def test_ops_outside_of_the_guard_stay_float32(paddle: Any, static: Any) -> None:
    """With fp16_guard only what was built inside it is float16."""
    x = np.array([[1 + 2.0**-10, 3.0]], np.float32)
    variable = static.data("x", [1, 2], "float32")
    wide = variable * variable
    with static.amp.fp16_guard():
        narrow = wide + 2048.0
    lists = static.amp.CustomOpLists()
    lists.unsupported_list = set()
    static.amp.cast_model_to_fp16(static.default_main_program(), lists, use_fp16_guard=True)
    squares, sums = compiled(paddle, [wide, narrow], size=1).run(x)

    check.identical(actual=squares, expected=x * x, what="the square outside of the guard")
    sums_in_half = (half(x.astype(np.float64) ** 2) + 2048).astype(HALF)
    check.identical(actual=sums, expected=sums_in_half, what="the sum inside the guard")


def test_listed_ops_stay_float32(paddle: Any, static: Any) -> None:
    """An op of the unsupported list computes in float32 between float16 ones."""
    x = np.array([[3.0, 5.0]], np.float32)
    variable = static.data("x", [1, 2], "float32")
    out = paddle.square(variable) + 0.25
    lists = static.amp.CustomOpLists()
    lists.unsupported_list = {"scale"}
    regression.to_half(paddle, lists)
    (fetched,) = compiled(paddle, [out * 1.0], size=1).run(x * 30)

    check.identical(actual=fetched, expected=float32(half((x.astype(np.float64) * 30) ** 2) + 0.25), what="the output")


OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
CHAINS = ["**", "*-", "*+*", "+*-*", "**-+"]
"""The operations on x with x again, from left to right."""


@pytest.mark.parametrize("chain", CHAINS)
def test_each_op_of_a_chain_is_rounded(paddle: Any, static: Any, chain: str) -> None:
    """The result of every op is rounded before the next one reads it; rounding at the end alone differs."""
    x = np.linspace(0.9, 1.7, 24, dtype=np.float32).reshape(2, 12)

    def applied(value: Any, rounded: Callable[[Any], Any] = lambda exact: exact) -> Any:
        result = value
        for sign in chain:
            result = rounded(OPERATORS[sign](result, value))
        return result

    expected, rounded_once = applied(half(x), half).astype(HALF), applied(half(x)).astype(HALF)

    check.differs(actual=rounded_once, other=expected, what="the result that is rounded at the end alone")
    check.identical(actual=infer(paddle, applied, x), expected=expected, what=f"the result of {chain}")


OPS: Dict[str, Tuple[Callable[[Any, Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "exp": (lambda paddle, v: paddle.exp(v), np.exp),
    "tanh": (lambda paddle, v: paddle.tanh(v), np.tanh),
    "sqrt": (lambda paddle, v: paddle.sqrt(v), np.sqrt),
    "log": (lambda paddle, v: paddle.log(v), np.log),
    "softmax": (
        lambda paddle, v: paddle.nn.functional.softmax(v),
        lambda v: np.exp(v) / np.exp(v).sum(axis=1, keepdims=True),
    ),
    "matmul": (lambda paddle, v: paddle.matmul(v, v, transpose_y=True), lambda v: v @ v.T),
    "mean": (lambda paddle, v: paddle.mean(v, axis=1), lambda v: v.mean(axis=1)),
}


@pytest.mark.parametrize("name", OPS)
def test_an_op_rounds_once(paddle: Any, static: Any, name: str) -> None:
    """Inside an op nothing is rounded to float16: its result is within one spacing of the exact one.

    Half a spacing is the rounding of the result; the other half covers ways of computing in float32.
    """
    x = np.linspace(0.5, 2.0, 24, dtype=np.float32).reshape(3, 8)
    build, exactly = OPS[name]
    expected = exactly(half(x))
    spacing = np.spacing(np.abs(expected).astype(HALF)).astype(np.float64)
    tolerance = Tolerance(spacing, "a spacing of float16", 0.0)
    rounded = infer(paddle, lambda v: build(paddle, v), x)

    check.close(actual=rounded, expected=expected, tolerance=tolerance, what=name, dtype=HALF)


MAKERS: Dict[str, Callable[[Any, Any], Any]] = {
    **{name: build for name, (build, _) in OPS.items()},
    "sum": lambda paddle, v: paddle.add_n([v, v * 0.3125, v * 0.0703125]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_an_op_makes_is_float16_wherever_it_goes(paddle: Any, static: Any, name: str) -> None:
    """A result that goes on into float32 inside the program has no more bits than float16."""
    x = (np.arange(1, 16, dtype=np.float32) / 16).reshape(3, 5)
    wide = infer(paddle, lambda v: paddle.cast(MAKERS[name](paddle, v), "float32"), x, feed="float16")

    check.dtype(actual=wide, expected=np.float32, what=name)
    check.identical(actual=wide, expected=wide.astype(HALF).astype(np.float32), what=f"{name} in float32")


COUNTS = ("batches_per_step", "accumulation_factor", "replicated_graph_count")


def train(paddle: Any, when: str, runs: int = 1, *, cut: bool = False, rule: Any = None, **options: Any) -> Any:
    """Train the model in float16, cast before or after it gets its optimizer; what each run fetches, and the weight."""
    _, device = regression.trainable(
        paddle,
        rule or paddle.optimizer.SGD(RATE),
        half=when,
        cut=cut,
        fetches=("out", "loss"),
        enable_fp16=True,
        **options,
    )
    count = 4 * math.prod(options.get(name, 1) for name in COUNTS)
    fetched = [device.run(odd(count, run * count), targets(count, run * count)) for run in range(runs)]
    device.sync()
    return fetched, device.value("w")


@pytest.mark.parametrize(("when", "scaling"), [("before", 1.0), ("after", 1.0), ("after", 4.0), ("after", 512.0)])
def test_a_step_rounds_forwards_backwards_and_in_the_update(
    paddle: Any, static: Any, when: str, scaling: float
) -> None:
    """Outputs and loss are the specified float16; the weight is float16 if it was cast before the optimizer.

    Scaling the loss by a power of two changes nothing.
    """
    ((out, loss),), weight = train(paddle, when, loss_scaling=scaling)
    expected_out, expected_loss, gradient = half_step(odd(4), targets(4), START)
    stepped = START - RATE * gradient

    check.identical(actual=out, expected=expected_out.astype(HALF), what="the output")
    check.identical(actual=loss, expected=expected_loss.astype(HALF).reshape(1), what="the loss")
    expected_weight = stepped.astype(HALF) if when == "before" else float32(stepped)
    check.identical(actual=weight, expected=expected_weight, what="the weight")


@pytest.mark.parametrize(
    ("when", "moved", "by"), [("before", False, "SGD"), ("after", True, "SGD"), ("before", False, "Momentum")]
)
def test_small_steps_add_up_in_float32_weights_alone(paddle: Any, static: Any, when: str, moved: bool, by: str) -> None:
    """A step below half a spacing is lost in a float16 weight, and kept in a float32 one."""
    _, weight = train(paddle, when, runs=2, rule=getattr(paddle.optimizer, by)(2.0**-14))

    changed = (weight.astype(np.float64) != START).tolist()
    check.equal(actual=changed, expected=[moved, moved], what=f"whether each value of the weight {weight} has moved")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("scaling", [1.0, 256.0])
def test_loss_scaling_saves_small_gradients(paddle: Any, static: Any, when: str, scaling: float) -> None:
    """A gradient of 2^-26 is zero in float16; scaled by 2^8 on its way back it arrives, and is scaled down again."""
    x = static.data("x", [1, 1], "float32")
    weight = paddle.create_parameter([1], "float32", name="w", default_initializer=paddle.nn.initializer.Constant(0.0))
    loss = paddle.sum((x * weight) * 2.0**-13)
    halves = regression.to_half(paddle) if when == "before" else []
    # The step is made in float32: a rate of 2^20 brings 2^-26 into the range of float16.
    regression.minimize(paddle.optimizer.SGD(2.0**20), loss)
    regression.start(paddle, halves or regression.to_half(paddle))
    device = compiled(paddle, [loss], size=1, training=True, loss_scaling=scaling)
    device.run(np.full((1, 1), 2.0**-13, np.float32))
    device.sync()

    check.equal(actual=device.value("w").tolist(), expected=[-(2.0**-6) if scaling > 1 else 0.0], what="the weight")


FACTORS: Dict[str, Tuple[int, Dict[str, Any]]] = {
    "batches": (3, {"batches_per_step": 3}),
    "accumulation": (4, {"enable_gradient_accumulation": True, "accumulation_factor": 4}),
    "replicas": (5, {"enable_replicated_graphs": True, "replicated_graph_count": 5, "num_ipus": 5}),
}


@pytest.mark.ipus(8)
@pytest.mark.parametrize("factor", FACTORS)
def test_every_micro_batch_is_rounded(paddle: Any, static: Any, factor: str) -> None:
    """However a run gets several micro-batches, each gives the specified float16 outputs."""
    count, options = FACTORS[factor]
    with check.accepted(f"training in float16 with {options}"):
        ((outputs, losses),), _ = train(paddle, "after", **options)
    weight, steps = START, []
    for turn in range(count):
        steps.append(half_step(odd(4, 4 * turn), targets(4, 4 * turn), weight))
        if factor == "batches":  # each meets the weight of the one before
            weight = float32(weight - RATE * steps[-1][2])

    expected_outputs, expected_losses = (np.array([step[each] for step in steps], HALF) for each in (0, 1))
    check.identical(actual=outputs, expected=expected_outputs, what="the output by micro-batch")
    check.identical(actual=losses.reshape(-1), expected=expected_losses, what="the loss by micro-batch")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("pipelined", [False, True])
def test_stages_hand_on_float16(paddle: Any, static: Any, pipelined: bool) -> None:
    """Cut in two, the program gives the same bits as in one piece."""
    options: Any = {"num_ipus": 2, "enable_manual_shard": True}
    accumulating = {"enable_gradient_accumulation": True, "accumulation_factor": 4}
    if pipelined:
        options.update(enable_pipelining=True)
    ((outputs, _),), weight = train(paddle, "by hand", cut=True, **options, **accumulating)
    parts = [half_step(odd(4, 4 * turn), targets(4, 4 * turn), START) for turn in range(4)]
    gradient = np.mean([part[2] for part in parts], axis=0)

    expected = np.array([out for out, *_ in parts], HALF)
    check.identical(actual=outputs, expected=expected, what="the output by micro-batch")
    check.identical(actual=weight, expected=float32(START - RATE * gradient), what="the weight")


@pytest.mark.parametrize("partials", ["float", "half"])
def test_partial_sums(paddle: Any, static: Any, partials: str) -> None:
    """A float16 product sums in float32; half partials may lose what is small beside the sum."""
    x = np.zeros((1, 64), np.float32)
    x[0, 0], x[0, 16::16] = 2048.0, 1.0
    ones = static.data("ones", [64, 1], "float16")
    variable = static.data("x", [1, 64], "float16")
    out = paddle.matmul(variable, ones)
    device = compiled(paddle, [out], feeds=["x", "ones"], size=1, partials_type_matmuls=partials)
    (total,) = device.run(x.astype(HALF), np.ones((64, 1), HALF))
    # 2051 lies between 2050 and 2052; partial sums in float16 may lose any of the three ones.
    possible = [2052.0] if partials == "float" else [2048.0, 2050.0, 2052.0]

    check.dtype(actual=total, expected=HALF, what="the sum")
    check.holds(total.item() in possible, f"the sum is {total.item()} where one of {possible} is expected.")


PRODUCTS: Dict[str, Tuple[Tuple[int, ...], Tuple[int, ...], Dict[str, bool]]] = {
    "shared": ((3, 4, 5), (5, 2), {}),
    "turned-weight": ((3, 4, 5), (2, 5), {"transpose_y": True}),
    "turned-input": ((3, 5, 4), (5, 2), {"transpose_x": True}),
    "repeated": ((3, 4, 5), (1, 5, 2), {}),
    "stacked": ((3, 4, 5), (3, 5, 2), {}),
}
"""The shape of an input and of a weight, and how they are multiplied."""


@pytest.mark.parametrize("partials", ["float", "half"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_gradients_of_products_are_summed(paddle: Any, static: Any, name: str, partials: str) -> None:
    """The gradient of a weight is the sum over all matrices that it is multiplied with; small numbers are exact."""
    fed, held, how = PRODUCTS[name]
    start = np.ones(held, np.float32)
    initial = paddle.nn.initializer.Assign(start)
    weight = paddle.static.create_parameter(list(held), "float32", "w", default_initializer=initial)
    variable = static.data("x", list(fed), "float16")
    out = paddle.cast(paddle.matmul(variable, paddle.cast(weight, "float16"), **how), "float32")
    paddle.optimizer.SGD(1.0).minimize(paddle.sum(out))
    started(paddle)
    device = compiled(paddle, [out], size=fed[0], training=True, partials_type_matmuls=partials)
    x = (np.arange(np.prod(fed)) % 7 - 3).reshape(fed)
    (fetched,) = device.run(x.astype(HALF))
    device.sync()

    left = np.swapaxes(x, 1, 2) if how.get("transpose_x") else x
    right = np.swapaxes(start, -1, -2) if how.get("transpose_y") else start
    gradient = np.swapaxes(left, 1, 2) @ np.ones((*left.shape[:2], 2))
    gradient = gradient if name == "stacked" else gradient.sum(axis=0, keepdims=len(held) > 2)
    gradient = gradient.T if how.get("transpose_y") else gradient
    check.identical(actual=fetched, expected=float32(left @ right), what="the product")
    check.identical(actual=device.value("w"), expected=float32(start - gradient), what="the weight")


def _check_both_ways(paddle: Any, below: float, above: float) -> None:
    """The bound is five standard deviations of the binomial distribution, missed less than once in a million seeds."""
    __tracebackhide__ = True
    count = 4096
    x = np.full((1, count), below + (above - below) / 4, np.float32)
    rounded = infer(paddle, lambda v: v * 1.0, x, enable_stochastic_rounding=True, random_seed=11)
    up, bound = int((rounded == above).sum()), 5 * (count * 0.25 * 0.75) ** 0.5

    values = set(rounded.reshape(-1).tolist())
    check.equal(actual=values, expected={below, above}, what="the set of rounded values")
    check.holds(abs(up - count / 4) < bound, f"{up} of {count} values go up where {count // 4} ± {bound:.0f} should.")


def test_stochastic_rounding_goes_both_ways(paddle: Any, static: Any) -> None:
    """Of values a quarter of a spacing above a float16 about a quarter goes up."""
    _check_both_ways(paddle, 1.0, 1 + 2.0**-10)


SMALLEST = 2.0**-24
"""The smallest float16 number, and the spacing of those below 2 to the power of -14."""
NEIGHBOURS = {
    "negative": (-1.0, -1 - 2.0**-10),
    "subnormal": (3 * SMALLEST, 4 * SMALLEST),
    "smallest": (0.0, SMALLEST),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_stochastic_rounding_keeps_the_mean_of_any_number(paddle: Any, static: Any, name: str) -> None:
    """Numbers below zero, and those that float16 holds with fewer bits, go both ways, too."""
    _check_both_ways(paddle, *NEIGHBOURS[name])


TWICE_FOUR = (1.0, 2.0, 4.0, 4.0)


def test_stochastic_rounding_is_independent(paddle: Any, static: Any) -> None:
    """The same values are rounded otherwise by every op and in every run, and by each seed.

    Two ops multiply by four, so that chance cannot come from the values alone.
    """
    count, runs = 512, 3
    x = np.full((1, count), 1 + 2.0**-12, np.float32)
    variable = static.data("x", list(x.shape), "float32")
    outs = [paddle.cast(variable * factor, "float16") for factor in TWICE_FOUR]
    rounded = []
    for seed in (11, 12, 13):
        device = compiled(paddle, outs, size=1, enable_stochastic_rounding=True, random_seed=seed)
        rounded.append([[fetched.reshape(-1) for fetched in device.run(x)] for _ in range(runs)])
    up = np.array(rounded, np.float32) > np.array(TWICE_FOUR, np.float32)[:, np.newaxis]

    check.dropout_masks(masks=up, rate=0.75, axes=("seed", "run", "op"), what="rounding upwards")
