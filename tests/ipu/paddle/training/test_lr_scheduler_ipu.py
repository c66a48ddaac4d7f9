"""Learning-rate schedulers: the host steps them, and nothing else moves the rate."""

from __future__ import annotations

from ipu_conformance import check, nets
from ipu_conformance.run import learning_rate, optimizer

from ...training import Runs
from .config import counted


def test_a_rate_holds_until_the_scheduler_steps(runs: Runs) -> None:
    """Runs without a step of the scheduler between them train at one rate, and then at the next."""
    driver, net = runs.driver, nets.mlp()
    rate = learning_rate("piecewise", boundaries=(1,), values=(0.0, 0.25))
    config = counted(1, 2, 1, steps=3, optimizer=optimizer("sgd"), learning_rate=rate)
    data, weights = nets.distinct_micro_batches(net, config), []
    with driver.build(net, config) as program:
        compiled, run = driver.compiled_for(program, driver.strategy(config))
        for step in range(3):
            run(program.feed(data, step))
            compiled._backend.weights_to_host()
            weights.append(program.weights())
            if step == 1:
                program.rate.step()

    for name, value in net.initial_weights(config.seed).items():
        check.identical(actual=weights[0][name], expected=value, what=f"{name} at a rate of 0")
        check.identical(actual=weights[1][name], expected=value, what=f"{name} at a rate of 0 still")
        check.differs(actual=weights[2][name], other=value, what=f"{name} at the next rate")
