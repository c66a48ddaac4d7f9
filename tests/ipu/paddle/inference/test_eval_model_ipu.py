"""Evaluation with a training program: ``runtime_options.enable_eval`` stops the weights and nothing else."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .. import exact
from ..exact import Device, counts

EVAL = "runtime_options.enable_eval"
OPTIMIZERS: Dict[str, Tuple[Callable[[Any], Any], Tuple[str, ...]]] = {
    "sgd": (lambda o: o.SGD(exact.RATE), ()),
    "adam": (lambda o: o.Adam(exact.RATE), ("moment1_0", "moment2_0", "beta1_pow_acc_0")),
    "adamw": (lambda o: o.AdamW(exact.RATE, weight_decay=0.5), ("moment1_0", "moment2_0", "beta1_pow_acc_0")),
    "adamax": (lambda o: o.Adamax(exact.RATE), ("moment_0", "beta1_pow_acc_0")),
    "lamb": (lambda o: o.Lamb(exact.RATE, lamb_weight_decay=0.5), ("moment1_0", "moment2_0")),
    "adagrad": (lambda o: o.Adagrad(exact.RATE), ("moment_0",)),
}
"""Optimizers and their state."""


class EvaluatedDevice(Device):
    """A chain with an optimizer whose evaluation is switched without another compilation."""

    def __init__(self, paddle: Any, make: Callable[[Any], Any], config: RunConfig = exact.ONE, stages: int = 1) -> None:
        self.strategy = exact.strategy(paddle, config, ipus=stages)
        chain = exact.chain(paddle, optimizer=make(paddle.optimizer), stages=stages)
        super().__init__(paddle, chain, self.strategy)

    def evaluate(self, x: np.ndarray) -> List[np.ndarray]:
        """One run with evaluation on."""
        self.strategy.set_options({EVAL: True})
        fetched = self.run(x)
        self.strategy.set_options({EVAL: False})
        return fetched


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_evaluation_moves_no_weight(paddle: Any, static: Any, name: str) -> None:
    """With enable_eval the rate and the weight decay are 0; the optimizer's state moves on, and steps are counted."""
    make, moments = OPTIMIZERS[name]
    device = EvaluatedDevice(paddle, make, counts(3))
    before = {moment: device.value(f"w0_{moment}") for moment in moments}
    out, _ = device.evaluate(exact.samples(3))

    check.identical(actual=device.synced_weights()["w0"], expected=exact.START, what="the weight")
    check.identical(actual=out.reshape(3, 2), expected=exact.samples(3) * exact.START, what="the output")
    for moment, old in before.items():
        check.differs(actual=device.value(f"w0_{moment}"), other=old, what=f"w0_{moment} after an evaluation")


@pytest.mark.emulator
def test_momentum_cannot_be_evaluated(paddle: Any, static: Any) -> None:
    """Evaluation is an optimizer without momentum, and momentum is a constant of the program: the run is refused."""
    device = EvaluatedDevice(paddle, lambda o: o.Momentum(exact.RATE, 0.5))

    with check.raises(RuntimeError, match="momentum", what="an evaluation with momentum"):
        device.evaluate(exact.samples(1))


@pytest.mark.emulator
@pytest.mark.parametrize("kind", ["Adadelta", "RMSProp"])
def test_an_optimizer_without_a_rate_trains_on(paddle: Any, static: Any, kind: str) -> None:
    """Where no rate is folded, enable_eval has none to set to 0: an evaluation is a training step."""
    device = EvaluatedDevice(paddle, lambda o: getattr(o, kind)(exact.RATE))
    device.evaluate(exact.samples(1))

    check.differs(actual=device.synced_weights()["w0"], other=exact.START, what="the weight")


@pytest.mark.parametrize("stages", [1, 2])
def test_training_goes_on_after_evaluation(paddle: Any, static: Any, stages: int) -> None:
    """Without a new compilation, evaluation is switched on and off between runs."""
    device = EvaluatedDevice(paddle, lambda o: o.SGD(exact.RATE), stages=stages)
    x = exact.samples(1)
    for run in (device.evaluate, device.run, device.evaluate):
        run(x)
    weights = device.synced_weights()
    for name, value in exact.plain_run(x, exact.ONE, stages=stages).weights.items():
        check.identical(actual=weights[name], expected=value, what=name)


def test_a_changed_rate_counts_after_evaluation(paddle: Any, static: Any) -> None:
    """The next training run uses the rate of a schedule that went on during evaluation."""
    rate = paddle.optimizer.lr.StepDecay(exact.RATE, step_size=1, gamma=0.25)
    device = EvaluatedDevice(paddle, lambda o: o.SGD(rate))
    device.evaluate(exact.samples(1))
    rate.step()
    device.run(exact.samples(1))
    expected = exact.plain_run(exact.samples(1), exact.ONE, rate=exact.RATE / 4).weights["w0"]

    check.identical(actual=device.synced_weights()["w0"], expected=expected, what="the weight")


def test_weights_come_home_in_evaluation(paddle: Any, static: Any) -> None:
    """What was trained before is brought to the host while evaluation is on, too."""
    device = EvaluatedDevice(paddle, lambda o: o.SGD(exact.RATE))
    x = exact.samples(1)
    device.run(x)
    device.evaluate(x)
    device.strategy.set_options({EVAL: True})
    expected = exact.plain_run(x, exact.ONE).weights["w0"]

    check.identical(actual=device.synced_weights()["w0"], expected=expected, what="the weight after a step")
