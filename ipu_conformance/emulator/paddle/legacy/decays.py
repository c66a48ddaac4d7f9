"""``paddle.fluid.layers.learning_rate_scheduler``: learning rates that count the runs of their program."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Sequence, Tuple, Union

import paddle
from paddle.optimizer.lr import LRScheduler

from ipu_conformance.emulator.paddle.legacy import table
from ipu_conformance.emulator.paddle.legacy.table import Old

Rule = Callable[[int], float]


class Decay(LRScheduler):
    """A learning rate by the number of runs that came before."""

    def __init__(self, rule: Rule) -> None:
        if paddle.in_dynamic_mode():
            raise NotImplementedError(
                "A decay of paddle.fluid.layers was made in dynamic mode, where it is not emulated: use a scheduler of "
                "paddle.optimizer.lr"
            )
        self.rule = rule
        super().__init__(rule(0))

    def get_lr(self) -> float:
        """The rate of the next run."""
        return self.rule(self.last_epoch)

    def after_run(self) -> None:
        """Count a run of the program."""
        self.step()


def _passed(run: int, steps: int, staircase: bool) -> float:
    return run // steps if staircase else run / steps


def _exponential_decay(learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool) -> Decay:
    return Decay(lambda run: learning_rate * decay_rate ** _passed(run, decay_steps, staircase))


def _natural_exp_decay(learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool) -> Decay:
    return Decay(lambda run: learning_rate * math.exp(-decay_rate * _passed(run, decay_steps, staircase)))


def _inverse_time_decay(learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool) -> Decay:
    return Decay(lambda run: learning_rate / (1 + decay_rate * _passed(run, decay_steps, staircase)))


def _polynomial_decay(
    learning_rate: float, decay_steps: int, end_learning_rate: float, power: float, cycle: bool
) -> Decay:
    def rule(run: int) -> float:
        steps = decay_steps * max(1, math.ceil(run / decay_steps)) if cycle else decay_steps
        left = 1 - min(run, steps) / steps
        return (learning_rate - end_learning_rate) * left**power + end_learning_rate

    return Decay(rule)


def _piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Decay:
    if len(values) - len(boundaries) != 1:
        raise ValueError(
            f"piecewise_decay has {len(values)} values for {len(boundaries)} boundaries; give one value more"
        )
    return Decay(lambda run: float(values[sum(run >= boundary for boundary in boundaries)]))


def _noam_decay(d_model: float, warmup_steps: float, learning_rate: float) -> Decay:
    def rule(run: int) -> float:
        number: float = learning_rate * d_model**-0.5 * min((run + 1) ** -0.5, warmup_steps**-1.5 * (run + 1))
        return number

    return Decay(rule)


def _cosine_decay(learning_rate: float, step_each_epoch: int, epochs: int) -> Decay:
    return Decay(lambda run: learning_rate * 0.5 * (math.cos(run // step_each_epoch * math.pi / epochs) + 1))


def _linear_lr_warmup(
    learning_rate: Union[float, Decay], warmup_steps: int, start_lr: float, end_lr: float
) -> Decay:  # fmt: skip
    after: Rule = learning_rate.rule if isinstance(learning_rate, Decay) else lambda run: float(learning_rate)
    rise = float(end_lr) - float(start_lr)
    return Decay(lambda run: start_lr + rise * (run / float(warmup_steps)) if run < warmup_steps else after(run))


_STAIRS = "learning_rate, decay_steps, decay_rate, staircase=False"

ROWS: Tuple[Old, ...] = (
    Old("exponential_decay", _STAIRS, _exponential_decay),
    Old("natural_exp_decay", _STAIRS, _natural_exp_decay),
    Old("inverse_time_decay", _STAIRS, _inverse_time_decay),
    Old("polynomial_decay", "learning_rate, decay_steps, end_learning_rate=0.0001, power=1.0, cycle=False",
        _polynomial_decay),
    Old("piecewise_decay", "boundaries, values", _piecewise_decay),
    Old("noam_decay", "d_model, warmup_steps, learning_rate=1.0", _noam_decay),
    Old("cosine_decay", "learning_rate, step_each_epoch, epochs", _cosine_decay),
    Old("linear_lr_warmup", "learning_rate, warmup_steps, start_lr, end_lr", _linear_lr_warmup),
)  # fmt: skip
"""The decays, by the names that ``layers`` has too."""

_FUNCTIONS = table.functions(ROWS)


def __getattr__(name: str) -> Any:
    return (
        _FUNCTIONS[name]
        if name in _FUNCTIONS
        else table.missing("paddle.fluid.layers.learning_rate_scheduler", name)
    )  # fmt: skip


def __dir__() -> List[str]:
    return sorted(_FUNCTIONS)
