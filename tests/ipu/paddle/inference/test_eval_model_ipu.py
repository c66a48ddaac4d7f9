"""Evaluation with a training program: ``runtime_options.enable_eval`` stops the weights and nothing else."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .. import exact
from ..exact import Device, counts

EVAL = "runtime_options.enable_eval"
OPTIMIZERS: List[Tuple[str, Callable[[Any], Any], Tuple[str, ...]]] = [
    ("sgd", lambda o: o.SGD(exact.RATE), ()),
    ("sgd-decay", lambda o: o.SGD(exact.RATE, weight_decay=0.5), ()),
    ("momentum", lambda o: o.Momentum(exact.RATE, 0.5), ("velocity_0",)),
    ("momentum-decay", lambda o: o.Momentum(exact.RATE, 0.5, weight_decay=0.5), ("velocity_0",)),
    ("adam", lambda o: o.Adam(exact.RATE), ("moment1_0", "moment2_0", "beta1_pow_acc_0")),
    ("adamw", lambda o: o.AdamW(exact.RATE, weight_decay=0.5), ("moment1_0", "moment2_0", "beta1_pow_acc_0")),
    ("adamax", lambda o: o.Adamax(exact.RATE), ("moment_0", "inf_norm_0", "beta1_pow_acc_0")),
    ("lamb", lambda o: o.Lamb(exact.RATE, lamb_weight_decay=0.5), ("moment1_0", "moment2_0")),
    ("adagrad", lambda o: o.Adagrad(exact.RATE), ("moment_0",)),
    ("adadelta", lambda o: o.Adadelta(exact.RATE), ("_avg_squared_grad_0", "_avg_squared_update_0")),
    ("rmsprop", lambda o: o.RMSProp(exact.RATE), ("mean_square_0",)),
]
NAMES = [row[0] for row in OPTIMIZERS]


def device(
    paddle: Any, make: Callable[[Any], Any], config: RunConfig = exact.ONE, stages: int = 1
) -> Tuple[Device, Any]:
    """A chain with that optimizer, and its strategy."""
    chosen = exact.strategy(paddle, config, ipus=stages)
    return Device(paddle, exact.chain(paddle, optimizer=make(paddle.optimizer), stages=stages), chosen), chosen


@pytest.mark.parametrize("make", [row[1] for row in OPTIMIZERS], ids=NAMES)
def test_evaluation_moves_no_weight(paddle: Any, static: Any, make: Callable[[Any], Any]) -> None:
    """With enable_eval the learning rate and the weight decay are 0."""
    made, chosen = device(paddle, make, counts(3))
    chosen.set_options({EVAL: True})
    out, _ = made.run(exact.samples(3))
    made.backend.weights_to_host()
    start = np.array(exact.STARTS[0], np.float32)

    check.identical(actual=made.weights()["w0"], expected=start, what="the weight")
    check.identical(actual=out.reshape(3, 2), expected=exact.samples(3) * start, what="the output")


@pytest.mark.parametrize(
    ("make", "moments"), [row[1:] for row in OPTIMIZERS if row[2]], ids=[row[0] for row in OPTIMIZERS if row[2]]
)
def test_moments_advance_in_evaluation(
    paddle: Any, static: Any, make: Callable[[Any], Any], moments: Tuple[str, ...]
) -> None:
    """With enable_eval the state of the optimizer moves on, and steps are counted."""
    made, chosen = device(paddle, make)
    before = [made.value(f"w0_{name}") for name in moments]
    chosen.set_options({EVAL: True})
    made.run(exact.samples(1))
    made.backend.weights_to_host()
    for name, old in zip(moments, before):
        assert not np.array_equal(made.value(f"w0_{name}"), old), f"{name} has not moved"


def test_decay_is_not_part_of_the_moments_in_evaluation(paddle: Any, static: Any) -> None:
    """The velocity is the gradient's alone, without what weight decay adds in training."""
    made, chosen = device(paddle, lambda o: o.Momentum(exact.RATE, 0.5, weight_decay=0.5))
    chosen.set_options({EVAL: True})
    made.run(exact.samples(1))
    made.backend.weights_to_host()
    x = exact.samples(1)[0]
    gradient = np.sign(x * np.array(exact.STARTS[0], np.float32) - 1) * x

    check.identical(actual=made.value("w0_velocity_0"), expected=gradient, what="the velocity")


def test_decay_is_part_of_the_moments_in_training(paddle: Any, static: Any) -> None:
    """The velocity holds the gradient and the decay."""
    made, _ = device(paddle, lambda o: o.Momentum(exact.RATE, 0.5, weight_decay=0.5))
    made.run(exact.samples(1))
    made.backend.weights_to_host()
    x, start = exact.samples(1)[0], np.array(exact.STARTS[0], np.float32)
    expected = np.sign(x * start - 1) * x + np.float32(0.5) * start

    check.identical(actual=made.value("w0_velocity_0"), expected=expected, what="the velocity")


@pytest.mark.parametrize("stages", [1, 2])
def test_training_goes_on_after_evaluation(paddle: Any, static: Any, stages: int) -> None:
    """Without a new compilation, evaluation is switched on and off between runs."""
    made, chosen = device(paddle, lambda o: o.SGD(exact.RATE), stages=stages)
    x = exact.samples(1)
    chosen.set_options({EVAL: True})
    made.run(x)
    chosen.set_options({EVAL: False})
    made.run(x)
    chosen.set_options({EVAL: True})
    made.run(x)
    made.backend.weights_to_host()
    expected = exact.plain_run(x, exact.ONE, stages=stages).weights
    weights = made.weights()
    for name, value in expected.items():
        check.identical(actual=weights[name], expected=value, what=name)


def test_a_changed_rate_counts_after_evaluation(paddle: Any, static: Any) -> None:
    """A schedule that went on during evaluation is heard by the next run that trains."""
    rate = paddle.optimizer.lr.StepDecay(exact.RATE, step_size=1, gamma=0.25)
    chosen = exact.strategy(paddle)
    made = Device(paddle, exact.chain(paddle, optimizer=paddle.optimizer.SGD(rate)), chosen)
    chosen.set_options({EVAL: True})
    made.run(exact.samples(1))
    rate.step()
    chosen.set_options({EVAL: False})
    made.run(exact.samples(1))
    made.backend.weights_to_host()
    expected = exact.plain_run(exact.samples(1), exact.ONE, rate=exact.RATE / 4).weights["w0"]

    check.identical(actual=made.weights()["w0"], expected=expected, what="the weight")
