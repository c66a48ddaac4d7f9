"""Learning-rate schedules follow the frameworks' own schedulers."""

from __future__ import annotations

import math
from typing import Any, Callable, List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.oracle.training import schedules
from ipu_conformance.run import SCHEDULES, Rule, learning_rate
from tests.unit.examples import at_most
from tests.unit.oracle.installed import installed

COUNT = 12
# Two float64 evaluations of one formula: a dozen operations, among them a power that the schedulers of PyTorch make by
# repeated multiplication (COUNT more); the float32 arithmetic of Keras likewise, with its own eps. All are relative to
# the largest rate of the schedule, since cosine and polynomial subtract from it.
ROUNDINGS = 12 + COUNT
# powf and cosf are good to about an ulp of their result but Keras passes them rounded arguments, which a power or a
# cosine of a few units amplifies by no more than its argument.
ARGUMENT = 4


def assert_follows(rule: Rule, expected: List[float], eps: float) -> None:
    allowed = ROUNDINGS * ARGUMENT * eps * max(map(abs, expected))
    for count, theirs in enumerate(expected):
        ours = schedules.rate(rule, count)
        assert abs(ours - theirs) <= allowed, f"count {count}: {ours} instead of {theirs}, allowed {allowed:.1e}"


TORCH = {
    "step": (learning_rate("step", base=0.5, size=3, gamma=0.25), lambda s, o: s.StepLR(o, 3, 0.25)),
    "multistep": (
        learning_rate("multistep", base=0.5, milestones=(2, 3, 7), gamma=0.3),
        lambda s, o: s.MultiStepLR(o, [2, 3, 7], 0.3),
    ),
    "exponential": (learning_rate("exponential", base=0.5, gamma=0.7), lambda s, o: s.ExponentialLR(o, 0.7)),
    "polynomial": (learning_rate("polynomial", base=0.5, total=9, power=2.0), lambda s, o: s.PolynomialLR(o, 9, 2.0)),
    "cosine": (
        learning_rate("cosine", base=0.5, total=COUNT, end=0.1),
        lambda s, o: s.CosineAnnealingLR(o, COUNT, 0.1),
    ),
    "warmup": (learning_rate("warmup", base=0.5, length=7, start=0.125), lambda s, o: s.LinearLR(o, 0.25, 1.0, 7)),
    "constant": (learning_rate("constant", base=0.5), lambda s, o: s.ConstantLR(o, 1.0, 1)),
    "inverse_time": (
        learning_rate("inverse_time", base=0.5, gamma=0.3),
        lambda s, o: s.LambdaLR(o, lambda t: 1 / (1 + 0.3 * t)),
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_follows_torch(name: str) -> None:
    """A schedule gives the rates of its counterpart in torch.optim.lr_scheduler."""
    rule, make = TORCH[name]
    torch = installed("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    expected = []
    for _ in range(COUNT):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()

    assert_follows(rule, expected, float(np.finfo(np.float64).eps))


PADDLE = {
    "step": (learning_rate("step", base=0.5, size=3, gamma=0.25), lambda lr: lr.StepDecay(0.5, 3, 0.25)),
    "multistep": (
        learning_rate("multistep", base=0.5, milestones=(2, 3, 7), gamma=0.3),
        lambda lr: lr.MultiStepDecay(0.5, [2, 3, 7], 0.3),
    ),
    "exponential": (learning_rate("exponential", base=0.5, gamma=0.7), lambda lr: lr.ExponentialDecay(0.5, 0.7)),
    "polynomial": (
        learning_rate("polynomial", base=0.5, total=5, end=0.1, power=2.0),
        lambda lr: lr.PolynomialDecay(0.5, 5, 0.1, 2.0),
    ),
    "polynomial-cycle": (
        learning_rate("polynomial", base=0.5, total=5, end=0.1, power=2.0, cycle=True),
        lambda lr: lr.PolynomialDecay(0.5, 5, 0.1, 2.0, cycle=True),
    ),
    "cosine": (
        learning_rate("cosine", base=0.5, total=COUNT, end=0.1),
        lambda lr: lr.CosineAnnealingDecay(0.5, COUNT, 0.1),
    ),
    "warmup": (
        learning_rate("warmup", base=0.5, length=7, start=0.125),
        lambda lr: lr.LinearWarmup(0.5, 7, 0.125, 0.5),
    ),
    "piecewise": (
        learning_rate("piecewise", boundaries=(3, 6), values=(0.5, 0.3, 0.2)),
        lambda lr: lr.PiecewiseDecay([3, 6], [0.5, 0.3, 0.2]),
    ),
    "natural_exp": (learning_rate("natural_exp", base=0.5, gamma=0.3), lambda lr: lr.NaturalExpDecay(0.5, 0.3)),
    "inverse_time": (learning_rate("inverse_time", base=0.5, gamma=0.3), lambda lr: lr.InverseTimeDecay(0.5, 0.3)),
    "noam": (learning_rate("noam", base=0.5, model_size=64, warmup=5), lambda lr: lr.NoamDecay(64, 5, 0.5)),
}


@pytest.mark.parametrize("name", PADDLE)
def test_follows_paddle(name: str) -> None:
    """A schedule gives the rates of its counterpart in paddle.optimizer.lr."""
    rule, make = PADDLE[name]
    scheduler = make(installed("paddle").optimizer.lr)
    expected = []
    for _ in range(COUNT):
        expected.append(scheduler())
        scheduler.step()

    assert_follows(rule, expected, float(np.finfo(np.float64).eps))


KERAS = {
    "exponential": (
        learning_rate("exponential", base=0.5, gamma=0.7, every=3),
        lambda s: s.ExponentialDecay(0.5, 3, 0.7),
    ),
    "exponential-staircase": (
        learning_rate("exponential", base=0.5, gamma=0.7, every=3, staircase=True),
        lambda s: s.ExponentialDecay(0.5, 3, 0.7, staircase=True),
    ),
    "polynomial": (
        learning_rate("polynomial", base=0.5, total=5, end=0.1, power=2.0),
        lambda s: s.PolynomialDecay(0.5, 5, 0.1, 2.0),
    ),
    "polynomial-cycle": (
        learning_rate("polynomial", base=0.5, total=5, end=0.1, power=2.0, cycle=True),
        lambda s: s.PolynomialDecay(0.5, 5, 0.1, 2.0, cycle=True),
    ),
    "cosine": (learning_rate("cosine", base=0.5, total=7, end=0.125), lambda s: s.CosineDecay(0.5, 7, alpha=0.25)),
    "piecewise": (
        learning_rate("piecewise", boundaries=(3, 6), values=(0.5, 0.3, 0.2), closed=True),
        lambda s: s.PiecewiseConstantDecay([3, 6], [0.5, 0.3, 0.2]),
    ),
    "inverse_time": (
        learning_rate("inverse_time", base=0.5, gamma=0.3, every=2),
        lambda s: s.InverseTimeDecay(0.5, 2, 0.3),
    ),
    "inverse_time-staircase": (
        learning_rate("inverse_time", base=0.5, gamma=0.3, every=2, staircase=True),
        lambda s: s.InverseTimeDecay(0.5, 2, 0.3, staircase=True),
    ),
}


@pytest.mark.parametrize("name", KERAS)
def test_follows_keras(name: str) -> None:
    """A schedule gives the rates of its counterpart in tf.keras.optimizers.schedules, which computes in float32."""
    rule, make = KERAS[name]
    schedule = make(installed("tensorflow").keras.optimizers.schedules)
    expected = [float(schedule(count)) for count in range(COUNT)]

    assert_follows(rule, expected, float(np.finfo(np.float32).eps))


def test_every_schedule_has_a_row_and_a_witness() -> None:
    """The table covers the names that a configuration may use, and a framework has witnessed each."""
    witnessed = {name.split("-")[0] for table in (TORCH, PADDLE, KERAS) for name in table}

    assert set(schedules.TABLE) == set(SCHEDULES)
    assert witnessed == set(SCHEDULES)


DECAYING: List[Callable[[float], Any]] = [
    lambda base: learning_rate("step", base=base, size=2, gamma=0.5),
    lambda base: learning_rate("exponential", base=base),
    lambda base: learning_rate("polynomial", base=base, total=9, power=1.5),
    lambda base: learning_rate("cosine", base=base, total=9),
    lambda base: learning_rate("natural_exp", base=base),
    lambda base: learning_rate("inverse_time", base=base),
]


@at_most(60)
@given(st.sampled_from(DECAYING), st.floats(1e-6, 10.0), st.integers(0, 50))
def test_decays_begin_at_the_base_and_never_rise(make: Callable[[float], Any], base: float, count: int) -> None:
    """A decaying schedule begins at its base, never rises and never falls below zero."""
    rule = make(base)
    now, later = schedules.rate(rule, count), schedules.rate(rule, count + 1)

    assert math.isclose(schedules.rate(rule, 0), base, rel_tol=np.finfo(np.float64).eps)
    assert 0 <= later <= now
