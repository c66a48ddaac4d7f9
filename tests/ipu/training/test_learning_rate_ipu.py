"""Learning rates: a schedule moves between calls, and every update of a call has the rate that holds when it starts."""

from __future__ import annotations

from ipu_conformance.run import RunConfig, learning_rate

from .frame import Runs
from .table import Row, counted, each, row, table

RATES = {
    "step": learning_rate("step", base=0.25, size=2, gamma=0.5),
    "multistep": learning_rate("multistep", base=0.25, milestones=(1, 4), gamma=0.5),
    "exponential": learning_rate("exponential", base=0.25, gamma=0.75),
    "polynomial": learning_rate("polynomial", base=0.25, total=5, power=2.0),
    "polynomial-end": learning_rate("polynomial", base=0.25, total=3, end=0.0625, power=2.0),
    "polynomial-cycle": learning_rate("polynomial", base=0.25, total=2, end=0.0625, cycle=True),
    "cosine": learning_rate("cosine", base=0.25, total=5, end=0.0625),
    "warmup": learning_rate("warmup", base=0.25, length=3, start=0.0625),
    "piecewise": learning_rate("piecewise", boundaries=(1, 3), values=(0.25, 0.0625, 0.5)),
    "natural_exp": learning_rate("natural_exp", base=0.25, gamma=0.5),
    "inverse_time": learning_rate("inverse_time", base=0.25, gamma=0.5),
    "noam": learning_rate("noam", base=1.0, model_size=16, warmup=3),
}


SCHEDULED = {word: Row("linear", counted(3, 4, 1, steps=5, learning_rate=rate)) for word, rate in RATES.items()}


CHANGED = table(
    row("mlp", (1, 6, 2), at="pipelined-3", word="step", steps=3, learning_rate=RATES["step"]),
    row("mlp", (2, 4, 1), at="pipelined-2", word="step", steps=3, learning_rate=RATES["step"]),
    row("mlp", (2, 3, 1), at="sharded-4", word="warmup", steps=3, learning_rate=RATES["warmup"]),
    row("tied_weights", (2, 1, 3), "adam", word="step", steps=3, learning_rate=RATES["step"]),
    row("residual", (1, 3, 2), "rmsprop", word="cosine", steps=3, learning_rate=RATES["cosine"]),
)


@each({**SCHEDULED, **CHANGED})
def test_a_schedule_trains_as_specified(runs: Runs, name: str, config: RunConfig) -> None:
    """The rate moves once a call, for all its updates, weights, stages and replicas; moments go on over the change."""
    runs.compare(name, config, ["losses", "weights"])
