"""poptorch.optim and torch.optim on the device: every optimizer makes the updates of the oracle."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Mapping, NamedTuple, Tuple

import pytest

from ipu_conformance import check
from ipu_conformance.oracle.regression import BIAS, WEIGHT, same_rule
from ipu_conformance.run import Rule, optimizer

from .regression import Make, Problem, assert_weights, make, trained


class Row(NamedTuple):
    """How an optimizer is made, from torch.optim or poptorch.optim, and the oracle's rule for it."""

    package: str
    name: str
    arguments: Mapping[str, Any]
    rule: Rule
    begin: Mapping[str, float] = {}

    def make(self, poptorch: Any, **more: Any) -> Make:
        """What makes the optimizer for all weights of a model."""
        return make(poptorch, self.name, self.package, **self.arguments, **more)


KEYS = {"eps": "epsilon", "centered": "centred"}
"""The oracle's names of arguments whose names differ."""


def row(package: str, name: str, **arguments: Any) -> Row:
    """An optimizer whose rule follows from its arguments."""
    settings = {KEYS.get(key, key): value for key, value in arguments.items() if key != "betas"}
    if "betas" in arguments:
        settings["beta1"], settings["beta2"] = arguments["betas"]
    return Row(package, name, arguments, optimizer(name.lower(), **settings))


BOTH: Mapping[str, Tuple[str, Mapping[str, Any]]] = {
    "SGD-plain": ("SGD", {}),
    "SGD-decay": ("SGD", {"weight_decay": 0.1}),
    "SGD-momentum": ("SGD", {"momentum": 0.9}),
    "SGD-dampened": ("SGD", {"momentum": 0.9, "dampening": 0.25}),
    "SGD-nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "SGD-momentum-decay": ("SGD", {"momentum": 0.5, "weight_decay": 0.2}),
    "SGD-nesterov-decay": ("SGD", {"momentum": 0.75, "weight_decay": 0.3, "nesterov": True}),
    "SGD-dampened-decay": ("SGD", {"momentum": 0.75, "dampening": 0.5, "weight_decay": 0.3}),
    "Adam": ("Adam", {}),
    "Adam-decay": ("Adam", {"weight_decay": 0.2}),
    "Adam-betas": ("Adam", {"betas": (0.5, 0.75), "eps": 0.01}),
    "AdamW": ("AdamW", {}),
    "AdamW-decay": ("AdamW", {"weight_decay": 0.3}),
    "RMSprop": ("RMSprop", {}),
    "RMSprop-alpha": ("RMSprop", {"alpha": 0.5, "weight_decay": 0.1, "eps": 0.01}),
    "RMSprop-momentum": ("RMSprop", {"momentum": 0.5}),
    # A coefficient of 0.5 keeps the centred variance of three gradients away from zero.
    "RMSprop-centered": ("RMSprop", {"alpha": 0.5, "centered": True, "momentum": 0.5}),
}
"""Optimizers that torch and poptorch both have."""
_TF = {"epsilon_inside": True, "rate_in_velocity": True}
ROWS: Dict[str, Row] = {
    **{
        f"{package}-{word}": row(package, name, **arguments)
        for package, (word, (name, arguments)) in itertools.product(("torch", "poptorch"), BOTH.items())
    },
    "poptorch-SGD-combined": Row(
        "poptorch", "SGD", {"momentum": 0.9, "use_combined_accum": True, "velocity_scaling": 4.0},
        optimizer("sgd", momentum=0.9),
    ),
    "poptorch-AdamW-told-not-to-correct": Row("poptorch", "AdamW", {"bias_correction": False}, optimizer("adamw")),
    "poptorch-RMSprop-tf": Row(
        "poptorch", "RMSprop", {"eps": 0.01, "use_tf_variant": True},
        optimizer("rmsprop", epsilon=0.01, **_TF), {"square": 1.0},
    ),
    "poptorch-RMSprop-tf-momentum": Row(
        "poptorch", "RMSprop", {"momentum": 0.5, "use_tf_variant": True},
        optimizer("rmsprop", momentum=0.5, **_TF), {"square": 1.0},
    ),
    "poptorch-RMSprop-tf-all": Row(
        "poptorch", "RMSprop",
        {"alpha": 0.75, "eps": 0.01, "centered": True, "momentum": 0.5, "weight_decay": 0.2, "use_tf_variant": True},
        optimizer("rmsprop", alpha=0.75, epsilon=0.01, centred=True, momentum=0.5, weight_decay=0.2, **_TF),
        {"square": 1.0},
    ),
    "poptorch-LAMB": row("poptorch", "LAMB", eps=1e-6, weight_decay=0.1),
    "poptorch-LAMB-uncorrected": row("poptorch", "LAMB", eps=1e-6, weight_decay=0.0, bias_correction=False),
    "poptorch-LAMB-limited": row("poptorch", "LAMB", eps=1e-6, weight_decay=0.1, max_weight_norm=1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_updates_are_the_oracles(poptorch: Any, name: str) -> None:
    """Three calls leave the weights where the oracle's optimizer does."""
    row = ROWS[name]
    weights = trained(poptorch, row.make(poptorch))

    assert_weights(weights, same_rule(row.rule, 0.1), initial_state=row.begin)


SPREAD: Mapping[str, Tuple[Mapping[str, Any], int]] = {
    "accumulated": ({"accumulation": 3}, 3),
    "replicated": ({"replicas": 2}, 2),
    "pipelined": ({"accumulation": 3, "pipelined": True}, 3),
}
"""Ways to spread an update over several micro-batches, and their number."""


@pytest.mark.parametrize(
    ("spread", "name"),
    [
        ("accumulated", "torch-SGD-momentum"),
        ("accumulated", "torch-Adam"),
        ("accumulated", "poptorch-RMSprop"),
        ("accumulated", "poptorch-LAMB"),
        ("replicated", "torch-SGD-nesterov"),
        ("replicated", "torch-AdamW"),
        ("replicated", "poptorch-Adam"),
        ("replicated", "poptorch-LAMB-limited"),
        ("pipelined", "torch-SGD-dampened"),
        ("pipelined", "torch-Adam-decay"),
        ("pipelined", "poptorch-RMSprop-centered"),
    ],
)
def test_an_update_uses_the_mean_of_micro_batches(poptorch: Any, spread: str, name: str) -> None:
    """The optimizer sees the mean over micro-batches and replicas, once a call, on one IPU and on two."""
    row, (problem, micro_batches) = ROWS[name], SPREAD[spread]
    weights = trained(poptorch, row.make(poptorch), **problem)

    assert_weights(weights, same_rule(row.rule, 0.1), accumulation=micro_batches)


@pytest.mark.parametrize("package", ["torch", "poptorch"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_every_group_has_its_own_learning_rate(poptorch: Any, torch: Any, package: str, name: str) -> None:
    """A group's learning rate counts for its weights, the optimizer's for those of groups without one."""
    cls = getattr(torch.optim if package == "torch" else poptorch.optim, name)

    def grouped(model: Any) -> Any:
        return cls([{"params": [model.layer.weight]}, {"params": [model.layer.bias], "lr": 0.02}], lr=0.1)

    rule = optimizer(name.lower())
    assert_weights(trained(poptorch, grouped), [{WEIGHT: (rule, 0.1), BIAS: (rule, 0.02)}] * 3)


@pytest.mark.parametrize("package", ["torch", "poptorch"])
@pytest.mark.parametrize(
    ("name", "key", "values"),
    [
        ("SGD", "weight_decay", (0.3, 0.0)),
        ("SGD", "momentum", (0.5, 0.9)),
        ("AdamW", "weight_decay", (0.3, 0.1)),
        ("Adam", "eps", (0.01, 0.5)),
        ("RMSprop", "alpha", (0.9, 0.5)),
    ],
    ids=["SGD-weight_decay", "SGD-momentum", "AdamW-weight_decay", "Adam-eps", "RMSprop-alpha"],
)
def test_every_group_has_its_own_values(
    poptorch: Any, torch: Any, package: str, name: str, key: str, values: Any
) -> None:
    """A group's hyper-parameters count for its weights alone."""
    cls = getattr(torch.optim if package == "torch" else poptorch.optim, name)

    def grouped(model: Any) -> Any:
        weights = (model.layer.weight, model.layer.bias)
        return cls([{"params": [weight], key: value} for weight, value in zip(weights, values)], lr=0.1)

    rules = [optimizer(name.lower(), **{KEYS.get(key, key): value}) for value in values]
    assert_weights(trained(poptorch, grouped), [{WEIGHT: (rules[0], 0.1), BIAS: (rules[1], 0.1)}] * 3)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_gradients_are_clipped_by_the_norm_of_all(poptorch: Any, name: str) -> None:
    """Gradients with a norm above max_grad_norm are shrunk together to that norm, which knows no loss scale."""
    # Without a large epsilon Adam forgets the scale.
    clipped = row("poptorch", name, **({} if name == "SGD" else {"eps": 0.1}))
    weights = trained(poptorch, clipped.make(poptorch, max_grad_norm=0.5, loss_scaling=8.0))

    assert_weights(weights, same_rule(clipped.rule, 0.1), clip=0.5)


def test_gradients_below_the_norm_are_left_alone(poptorch: Any) -> None:
    """A limit that no gradient reaches changes nothing."""
    weights = trained(poptorch, make(poptorch, "SGD", max_grad_norm=1e6))

    assert_weights(weights, same_rule(optimizer("sgd"), 0.1))


@pytest.mark.parametrize("spread", SPREAD)
def test_what_the_update_uses_is_clipped(poptorch: Any, spread: str) -> None:
    """The norm is that of the mean over micro-batches and replicas, and of the weights on all IPUs."""
    problem, micro_batches = SPREAD[spread]
    weights = trained(poptorch, make(poptorch, "SGD", max_grad_norm=0.5), **problem)

    assert_weights(weights, same_rule(optimizer("sgd"), 0.1), accumulation=micro_batches, clip=0.5)


@pytest.mark.parametrize("package", ["torch", "poptorch"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_maximising_climbs(poptorch: Any, package: str, name: str) -> None:
    """maximize=True follows the gradient upwards: the loss of one batch rises from call to call."""
    problem = Problem(poptorch, make(poptorch, name, package, maximize=True))
    losses = []
    for _ in range(3):
        problem.calls = 0
        losses.append(float(problem.call()[1]))

    check.holds(losses[0] < losses[1] < losses[2], f"the losses {losses} of three calls do not rise.")


def test_weights_that_need_no_gradient_stay(poptorch: Any) -> None:
    """A frozen weight in the optimizer is not updated, nor does it decay."""

    def frozen(model: Any) -> Any:
        model.layer.bias.requires_grad_(False)
        return poptorch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)

    rule = optimizer("sgd", weight_decay=0.1)
    assert_weights(trained(poptorch, frozen), [{WEIGHT: (rule, 0.1)}] * 3)


def test_without_an_optimizer_sgd_trains(poptorch: Any) -> None:
    """A training model that is given no optimizer uses SGD with a learning rate of 0.01."""
    assert_weights(trained(poptorch, lambda model: None), same_rule(optimizer("sgd"), 0.01))


@pytest.mark.parametrize("name", ["Adagrad", "Adadelta", "Adamax"])
def test_an_optimizer_without_counterpart_is_refused(poptorch: Any, name: str) -> None:
    """Optimizers that the device does not have raise an error that names them, at the latest on compiling."""
    with check.raises((AssertionError, ValueError), match="nsupported", what=f"training with {name}"):
        trained(poptorch, make(poptorch, name, "torch"), calls=1)


@pytest.mark.parametrize("package", ["torch", "poptorch"])
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_amsgrad_is_refused(poptorch: Any, package: str, name: str) -> None:
    """The device has no AMSGrad: asking for it raises a ValueError, at the latest on compiling."""
    with check.raises(ValueError, match="amsgrad", what=f"training with {package}'s {name} and amsgrad=True"):
        trained(poptorch, make(poptorch, name, package, amsgrad=True), calls=1)
