"""Saving: a run that is saved, loaded by a new program and resumed is the run without a break."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

from ipu_conformance import check
from ipu_conformance.nets import Data
from ipu_conformance.run import RunConfig

from .frame import Runs, data_of, net_of
from .table import each, row, table
from .tiny import PAIR, SAMPLES

BREAK = 2
SAVED = table(
    row("mlp", (1, 2, 3), "adam", steps=5),
    row("linear", (2, 3, 1), "adam", steps=5),
    row("mlp", (2, 3, 1), "momentum", steps=5),
    row("bn_convnet", (1, 3, 2), "adamw", steps=3),
    row("residual", (1, 3, 2), "rmsprop", steps=3),
    row("tied_weights", (1, 3, 2), "lamb", steps=3),
    row("mlp", (1, 6, 1), "adam", "pipelined-3", steps=3),
    row("tied_weights", (2, 3, 1), "momentum", "sharded-4", steps=3),
    row(PAIR, (3, 4, 5), "adamw", steps=4, micro_batch=SAMPLES),
)


def steps(trainer: Any, data: Data, first: int, last: int) -> List[Any]:
    """The losses of some steps."""
    return [trainer.step(data, step)[0] for step in range(first, last)]


@each(SAVED)
def test_a_resumed_run_is_the_same_run(runs: Runs, name: str, config: RunConfig, tmp_path: Path) -> None:
    """After two steps, a file and a new program, losses and weights have the bits of a run without a break."""
    driver, net, data = runs.driver, net_of(name), data_of(name, config)
    with driver.training(net, config) as trainer:
        steps(trainer, data, 0, BREAK)
        trainer.save(tmp_path)
        straight = steps(trainer, data, BREAK, config.steps)
        weights, statistics = trainer.weights(), trainer.statistics() or {}
    with driver.training(net, config) as trainer:
        trainer.load(tmp_path)
        resumed = steps(trainer, data, BREAK, config.steps)
        again = {**trainer.weights(), **(trainer.statistics() or {})}

    for step, (loss, wanted) in enumerate(zip(resumed, straight), BREAK):
        check.identical(actual=loss, expected=wanted, what=f"the losses of step {step}")
    for weight, value in {**weights, **statistics}.items():
        check.identical(actual=again[weight], expected=value, what=weight)


@each(table(row("linear", (2, 3, 1), "adam", steps=5)))
def test_the_file_holds_the_optimizer_s_state(runs: Runs, name: str, config: RunConfig, tmp_path: Path) -> None:
    """Weights alone are not a run: with a state that begins again the next step goes elsewhere."""
    driver, net, data = runs.driver, net_of(name), data_of(name, config)
    with driver.training(net, config) as trainer:
        steps(trainer, data, 0, BREAK)
        trainer.save(tmp_path)
        before = trainer.weights()
    with driver.training(net, config) as trainer:
        trainer.load(tmp_path)
        trainer.step(data, BREAK)
        resumed = trainer.weights()
    with driver.training(net, config) as trainer:
        start = trainer.weights()
        trainer.step(data, BREAK)
        fresh = trainer.weights()

    for weight in before:
        moved, restarted = resumed[weight] - before[weight], fresh[weight] - start[weight]
        check.differs(actual=moved, other=restarted, what=f"the third step of {weight}")
