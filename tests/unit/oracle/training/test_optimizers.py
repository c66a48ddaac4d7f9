"""Optimizers follow those of PyTorch, Keras and Paddle in float64."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.training import optimizers
from ipu_conformance.run import OPTIMIZERS, Rule, optimizer
from tests.unit.examples import at_most
from tests.unit.oracle.installed import installed
from tests.unit.oracle.training.amplification import tolerance

# Keras and Paddle hold rates and some powers of beta in float32: these numbers and their first powers are exact there.
RATE, UPDATES = 0.0625, 4
BETAS = {"beta1": 0.75, "beta2": 0.9375}
EPSILON = 2.0**-12

_random = np.random.default_rng(7)
WEIGHT = _random.standard_normal((3, 4))
GRADIENTS = [_random.standard_normal((3, 4)) for _ in range(UPDATES)]

CASES: Dict[str, Tuple[Rule, Callable[[Any, List[Any]], Any]]] = {
    "torch-sgd": (optimizer("sgd"), lambda o, p: o.SGD(p, RATE)),
    "torch-sgd-momentum": (
        optimizer("sgd", momentum=0.75, weight_decay=0.125),
        lambda o, p: o.SGD(p, RATE, momentum=0.75, weight_decay=0.125),
    ),
    "torch-sgd-nesterov": (
        optimizer("sgd", momentum=0.75, nesterov=True),
        lambda o, p: o.SGD(p, RATE, momentum=0.75, nesterov=True),
    ),
    "torch-adam": (
        optimizer("adam", **BETAS, epsilon=EPSILON, weight_decay=0.125),
        lambda o, p: o.Adam(p, RATE, tuple(BETAS.values()), EPSILON, 0.125),
    ),
    "torch-adamw": (
        optimizer("adamw", **BETAS, epsilon=EPSILON, weight_decay=0.125),
        lambda o, p: o.AdamW(p, RATE, tuple(BETAS.values()), EPSILON, 0.125),
    ),
    "torch-adamax": (
        optimizer("adamax", **BETAS, epsilon=EPSILON, weight_decay=0.125),
        lambda o, p: o.Adamax(p, RATE, tuple(BETAS.values()), EPSILON, 0.125),
    ),
    "torch-rmsprop": (
        optimizer("rmsprop", alpha=0.75, epsilon=EPSILON, weight_decay=0.125),
        lambda o, p: o.RMSprop(p, RATE, 0.75, EPSILON, 0.125),
    ),
    "torch-rmsprop-centred": (
        optimizer("rmsprop", alpha=0.75, epsilon=EPSILON, momentum=0.5, centred=True),
        lambda o, p: o.RMSprop(p, RATE, 0.75, EPSILON, momentum=0.5, centered=True),
    ),
    "torch-adagrad": (
        optimizer("adagrad", epsilon=EPSILON, initial=0.25, rate_decay=0.125, weight_decay=0.125),
        lambda o, p: o.Adagrad(p, RATE, 0.125, 0.125, 0.25, EPSILON),
    ),
    "torch-adadelta": (
        optimizer("adadelta", rho=0.75, epsilon=EPSILON, weight_decay=0.125),
        lambda o, p: o.Adadelta(p, RATE, 0.75, EPSILON, 0.125),
    ),
    "tensorflow-sgd-momentum": (
        optimizer("sgd", momentum=0.75, rate_in_velocity=True, weight_decay=0.125, decoupled=True),
        lambda o, p: o.SGD(RATE, 0.75, weight_decay=0.125),
    ),
    "tensorflow-sgd-nesterov": (
        optimizer("sgd", momentum=0.75, rate_in_velocity=True, nesterov=True),
        lambda o, p: o.SGD(RATE, 0.75, nesterov=True),
    ),
    "tensorflow-adam": (
        optimizer("adam", **BETAS, epsilon=EPSILON, epsilon_at="uncorrected"),
        lambda o, p: o.Adam(RATE, *BETAS.values(), EPSILON),
    ),
    "tensorflow-adamw": (
        optimizer("adamw", **BETAS, epsilon=EPSILON, weight_decay=0.125, epsilon_at="uncorrected"),
        lambda o, p: o.AdamW(RATE, 0.125, *BETAS.values(), EPSILON),
    ),
    "tensorflow-adamax": (
        optimizer("adamax", **BETAS, epsilon=EPSILON, epsilon_at="denominator"),
        lambda o, p: o.Adamax(RATE, *BETAS.values(), EPSILON),
    ),
    "tensorflow-rmsprop-centred": (
        optimizer(
            "rmsprop",
            alpha=0.75,
            epsilon=EPSILON,
            momentum=0.5,
            centred=True,
            epsilon_inside=True,
            rate_in_velocity=True,
        ),
        lambda o, p: o.RMSprop(RATE, 0.75, 0.5, EPSILON, centered=True),
    ),
    "tensorflow-adagrad": (
        optimizer("adagrad", epsilon=EPSILON, initial=0.25, epsilon_inside=True),
        lambda o, p: o.Adagrad(RATE, 0.25, EPSILON),
    ),
    "tensorflow-adadelta": (
        optimizer("adadelta", rho=0.75, epsilon=EPSILON),
        lambda o, p: o.Adadelta(RATE, 0.75, EPSILON),
    ),
    "paddle-sgd": (optimizer("sgd", weight_decay=0.125), lambda o, p: o.SGD(RATE, p, weight_decay=0.125)),
    "paddle-sgd-nesterov": (
        optimizer("sgd", momentum=0.75, nesterov=True, weight_decay=0.125),
        lambda o, p: o.Momentum(RATE, 0.75, p, True, weight_decay=0.125),
    ),
    "paddle-adam": (
        optimizer("adam", **BETAS, epsilon=EPSILON),
        lambda o, p: o.Adam(RATE, *BETAS.values(), EPSILON, p),
    ),
    "paddle-adamw": (
        optimizer("adamw", **BETAS, epsilon=EPSILON, weight_decay=0.125),
        lambda o, p: o.AdamW(RATE, *BETAS.values(), EPSILON, p, weight_decay=0.125),
    ),
    "paddle-adamax": (
        optimizer("adamax", **BETAS, epsilon=EPSILON, epsilon_at="norm"),
        lambda o, p: o.Adamax(RATE, *BETAS.values(), EPSILON, p),
    ),
    "paddle-rmsprop-centred": (
        optimizer(
            "rmsprop",
            alpha=0.75,
            epsilon=EPSILON,
            momentum=0.5,
            centred=True,
            epsilon_inside=True,
            rate_in_velocity=True,
        ),
        lambda o, p: o.RMSProp(RATE, 0.75, EPSILON, 0.5, True, p),
    ),
    "paddle-adagrad": (
        optimizer("adagrad", epsilon=EPSILON, initial=0.25),
        lambda o, p: o.Adagrad(RATE, EPSILON, p, initial_accumulator_value=0.25),
    ),
    "paddle-adadelta": (
        optimizer("adadelta", rho=0.75, epsilon=EPSILON),
        lambda o, p: o.Adadelta(RATE, EPSILON, 0.75, p),
    ),
    "paddle-lamb": (
        optimizer("lamb", **BETAS, epsilon=EPSILON, weight_decay=0.125),
        lambda o, p: o.Lamb(RATE, 0.125, *BETAS.values(), EPSILON, p),
    ),
}


def ours(rule: Rule, r: Callable[..., Any] = optimizers.exact) -> np.ndarray:
    weight, state = WEIGHT, optimizers.begin(rule, WEIGHT)
    for t, gradient in enumerate(GRADIENTS, 1):
        weight, state = optimizers.step(rule, weight, gradient, state, RATE, t, r)
    return weight


def by_torch(make: Callable[[Any, List[Any]], Any]) -> np.ndarray:
    torch = installed("torch")
    weight = torch.tensor(WEIGHT, requires_grad=True)
    rule = make(torch.optim, [weight])
    for gradient in GRADIENTS:
        weight.grad = torch.tensor(gradient)
        rule.step()
    return weight.detach().numpy()


def by_tensorflow(make: Callable[[Any, List[Any]], Any]) -> np.ndarray:
    tf = installed("tensorflow")
    weight = tf.Variable(WEIGHT)
    rule = make(tf.keras.optimizers, [weight])
    for gradient in GRADIENTS:
        rule.apply_gradients([(tf.constant(gradient), weight)])
    return weight.numpy()


def by_paddle(make: Callable[[Any, List[Any]], Any]) -> np.ndarray:
    paddle = installed("paddle")
    weight = paddle.create_parameter(WEIGHT.shape, "float64")
    weight.set_value(WEIGHT)
    rule = make(paddle.optimizer, [weight])
    for gradient in GRADIENTS:
        (weight * paddle.to_tensor(gradient)).sum().backward()
        rule.step()
        rule.clear_grad()
    return weight.numpy()


WITNESSES = {"torch": by_torch, "tensorflow": by_tensorflow, "paddle": by_paddle}


@pytest.mark.filterwarnings("ignore:Op .* is executed through .append_op.:DeprecationWarning")  # Paddle's own affair
@pytest.mark.parametrize("case", CASES)
def test_follows_the_framework(case: str) -> None:
    """After some updates the weight is the one that the framework's own optimizer makes."""
    rule, make = CASES[case]
    allowed = tolerance(lambda r: {"weight": ours(rule, r)})
    difference = np.max(np.abs(ours(rule) - WITNESSES[case.split("-")[0]](make)))

    assert difference <= allowed, f"differs by {difference:.1e}, allowed {allowed:.1e} for float64 rounding"


def test_every_optimizer_has_a_row_and_a_witness() -> None:
    """The table covers the names that a configuration may use, and a framework has witnessed each."""
    assert set(optimizers.TABLE) == set(optimizers.STATES) == set(OPTIMIZERS)
    assert {rule.name for rule, _ in CASES.values()} == set(OPTIMIZERS)


def test_lamb_bounds_the_weight_norm() -> None:
    """With a small maximal weight norm the step is as if the weight had that norm."""
    free, bound = optimizer("lamb"), optimizer("lamb", max_weight_norm=2.0**-4)
    state = optimizers.begin(free, WEIGHT)
    step_free = optimizers.step(free, WEIGHT, GRADIENTS[0], state, 1.0, 1)[0] - WEIGHT
    step_bound = optimizers.step(bound, WEIGHT, GRADIENTS[0], state, 1.0, 1)[0] - WEIGHT
    ratio = 2.0**-4 / np.linalg.norm(WEIGHT)

    # The subtraction of WEIGHT leaves an eps of it, the two norms and products a dozen roundings of the step.
    allowed = 16 * np.finfo(float).eps * np.abs(WEIGHT).max()
    np.testing.assert_allclose(step_bound, step_free * ratio, rtol=0, atol=allowed)


def test_lamb_of_a_zero_weight_takes_the_plain_step() -> None:
    """Where the norm of the weight is zero the trust ratio is one."""
    rule = optimizer("lamb", weight_decay=0.0, bias_correction=False)
    zero = np.zeros((3, 4))
    moved, state = optimizers.step(rule, zero, GRADIENTS[0], optimizers.begin(rule, zero), RATE, 1)

    np.testing.assert_array_equal(moved, -RATE * (state["first"] / (np.sqrt(state["second"]) + rule["epsilon"])))


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb"])
def test_bias_correction_can_be_off(name: str) -> None:
    """Without bias correction the first step of the moments is scaled by their weights alone."""
    rule = optimizer(name, bias_correction=False, weight_decay=0.0, beta1=0.75, beta2=0.75, epsilon=0.0)
    one = np.ones((1, 1))
    moved, _ = optimizers.step(rule, one, 4 * one, optimizers.begin(rule, one), 1.0, 1)

    expected = 1 - 0.25 * 4 / math.sqrt(0.25 * 16) if name != "lamb" else 1 - 1.0  # lamb steps by the weight's norm
    assert moved.item() == expected


GRADIENT_SETS = st.lists(
    st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=1, max_size=5).map(np.array), min_size=1, max_size=4
)


@at_most(100)
@given(GRADIENT_SETS, st.floats(1e-3, 1e3))
def test_clipping_bounds_the_global_norm(arrays: List[np.ndarray], limit: float) -> None:
    """Clipped gradients have at most the limit as their common norm and keep their direction; small ones stay."""
    gradients = {str(number): array for number, array in enumerate(arrays)}
    norm = math.sqrt(sum(float(np.sum(array**2)) for array in arrays))
    result = optimizers.clipped(gradients, limit)
    new_norm = math.sqrt(sum(float(np.sum(array**2)) for array in result.values()))
    # Each norm: a rounding per square and per sum (20 values at most), half of that after the root; scaling adds three.
    slack = 1 + (20 + 3) * np.finfo(float).eps

    assert new_norm <= limit * slack
    if norm * slack <= limit:
        for name, array in gradients.items():
            np.testing.assert_array_equal(result[name], array)
    elif norm > limit * slack:
        assert new_norm >= limit / slack


def test_clipping_follows_tensorflow() -> None:
    """Clipping shrinks all gradients by one factor, as tf.clip_by_global_norm does."""
    tf = installed("tensorflow")
    gradients = dict(enumerate(GRADIENTS))
    theirs, norm = tf.clip_by_global_norm([tf.constant(g) for g in GRADIENTS], 1.5)
    result = optimizers.clipped({str(key): g for key, g in gradients.items()}, 1.5)
    assert norm > 1.5

    # 48 squares are summed, in any order: that many roundings of the norm, and three of the scaling.
    for expected, actual in zip(theirs, result.values()):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=(48 + 3) * float(np.finfo(float).eps), atol=0)


def test_every_velocity_is_dampened() -> None:
    """A velocity begins with zeros and takes the dampened gradient from the first update on; the numbers are exact."""
    rule, weight = optimizer("sgd", momentum=0.5, dampening=0.25), np.array([8.0])
    state = optimizers.begin(rule, weight)
    velocities = []
    for t, gradient in enumerate((16.0, 32.0, -64.0), 1):
        weight, state = optimizers.step(rule, weight, np.array([gradient]), state, 0.125, t)
        velocities.append(float(state["velocity"][0]))

    assert velocities == [12.0, 30.0, -33.0]
    assert float(weight[0]) == 8.0 - (12.0 + 30.0 - 33.0) / 8
