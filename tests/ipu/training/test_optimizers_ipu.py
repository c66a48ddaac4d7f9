"""Every optimizer takes the oracle's steps and leaves the oracle's state, while its learning rate changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Iterable, Optional

from ipu_conformance.run import RunConfig, learning_rate, optimizer

from .frame import AnyNet, Runs, cut
from .table import BETAS, RULES, SHORT, STAGED, WHOLE, Row, Table, chosen, counted, each
from .tiny import UNMOVED

SQUARES = {"alpha": 0.75, "epsilon": 0.0625}
OPTIMIZERS = {
    **RULES,
    "sgd-decay": optimizer("sgd", weight_decay=0.125),
    "momentum-decay": optimizer("sgd", momentum=0.75, weight_decay=0.125),
    "dampening": optimizer("sgd", momentum=0.75, dampening=0.5),
    "nesterov": optimizer("sgd", momentum=0.75, nesterov=True),
    "adam-betas": optimizer("adam", **SHORT),
    "adam-decay": optimizer("adam", weight_decay=0.125, **BETAS),
    "adamw-plain": optimizer("adamw", weight_decay=0.0, **SHORT),
    "adamw-betas": optimizer("adamw", weight_decay=0.25, **BETAS),
    "adamax": optimizer("adamax", **BETAS),
    "adamax-decay": optimizer("adamax", weight_decay=0.125, **SHORT),
    "lamb-plain": optimizer("lamb", weight_decay=0.0, **BETAS),
    "adadelta": optimizer("adadelta", rho=0.75, epsilon=0.0625),
    "adadelta-decay": optimizer("adadelta", rho=0.5, epsilon=0.0625, weight_decay=0.125),
    "adagrad": optimizer("adagrad", epsilon=0.0625, initial=0.125),
    "adagrad-decay": optimizer("adagrad", epsilon=0.0625, weight_decay=0.125),
    "rmsprop-plain": optimizer("rmsprop", **SQUARES),
    "rmsprop-centred": optimizer("rmsprop", centred=True, **SQUARES),
    "rmsprop-all": optimizer("rmsprop", centred=True, momentum=0.5, weight_decay=0.125, **SQUARES),
}
HALVED = learning_rate("step", base=0.0625, size=1, gamma=0.5)
STATE = "what the tensors of its optimizer's state mean"
"""PopTorch hands them out under the names of its compiler, and documents neither the names nor the values.

Paddle brings a velocity home as PopART keeps it, multiplied for the next step.
"""


def placed(name: AnyNet, config: RunConfig, rules: Iterable[str]) -> Table:
    """Optimizers with one configuration, whose rate is halved after every step."""
    return {rule: Row(name, replace(config, optimizer=OPTIMIZERS[rule], learning_rate=HALVED)) for rule in rules}


def steady(rows: Table) -> Table:
    """The rows with one rate for all steps, which is all that some frameworks have for their optimizers."""
    constant = learning_rate(base=0.0625)
    return {
        f"{rule}-steady": Row(name, replace(config, learning_rate=constant)) for rule, (name, config) in rows.items()
    }


SINGLE = placed("linear", counted(3, 4, 1, steps=3), OPTIMIZERS)
SINGLE = {
    **SINGLE,
    **steady({rule: SINGLE[rule] for rule in ("adadelta", "rmsprop", "rmsprop-plain", "rmsprop-centred")}),
}
PIPELINE = cut("tied_weights", counted(2, 6, 1, steps=2), 3, "pipelined")
CUT = placed("tied_weights", PIPELINE, ("momentum-decay", "nesterov", "adam-decay", "adamax", "lamb", "rmsprop-all"))
SHARED = placed("mlp", counted(3, 2, 4, steps=2), ("dampening", "adam-betas", "adagrad", "adadelta", "rmsprop-centred"))
SHARED = {**SHARED, **steady({rule: SHARED[rule] for rule in ("adadelta", "rmsprop-centred")})}


def _stateful(rows: Table) -> Any:
    return chosen(rows, lambda each: each.config.optimizer.name != "sgd" or each.config.optimizer["momentum"])


EVERYWHERE = {
    **SINGLE,
    **{f"stages-{rule}": each for rule, each in CUT.items()},
    **{f"replicas-{rule}": each for rule, each in SHARED.items()},
}


@each(EVERYWHERE)
def test_an_optimizer_steps_as_specified(runs: Runs, name: str, config: RunConfig) -> None:
    """State is kept from call to call, by stages that have their own, and by replicas that see the reduced gradient."""
    runs.compare(name, config, ["losses", "weights"])


def _velocity(config: RunConfig) -> Optional[str]:
    return "the velocity of the last step" if config.optimizer.name == "sgd" else None


@each(_stateful(SINGLE), without={"poptorch": STATE, "paddle": _velocity})
def test_the_state_is_the_oracle_s(runs: Runs, name: str, config: RunConfig) -> None:
    """Velocities, means and variances of every weight are the oracle's after the last step."""
    runs.compare_state(name, config)


@each(_stateful({**WHOLE, **STAGED}), without={"poptorch": STATE, "paddle": _velocity})
def test_the_state_of_every_weight_moves(runs: Runs, name: str, config: RunConfig) -> None:
    """Whatever the counts and the cut, the state of the last weight is as the oracle says, like that of the first."""
    runs.compare_state(name, config)


STILL = placed(UNMOVED, counted(1, 2, 1, steps=2), ("adam", "lamb-plain", "rmsprop-centred", "adagrad"))


@each({**STILL, **steady({"rmsprop-centred": STILL["rmsprop-centred"]})})
def test_a_gradient_of_zero_is_a_number_like_others(runs: Runs, name: str, config: RunConfig) -> None:
    """No step is divided by what a gradient of zero leaves at zero: its weights stay, or decay, and others move."""
    runs.compare(name, config, ["losses", "weights"])
