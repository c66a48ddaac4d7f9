"""poptorch.optim and torch.optim on the device: every optimizer makes the updates of the oracle."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Mapping, NamedTuple

import pytest

from ipu_conformance.oracle.regression import BIAS, WEIGHT, same_rule
from ipu_conformance.run import Rule, optimizer

from .regression import Problem, assert_weights, trained


class Row(NamedTuple):
    """How an optimizer is made, from torch.optim or poptorch.optim, and the oracle's rule for it."""

    package: str
    name: str
    arguments: Mapping[str, Any]
    rule: Rule
    begin: Mapping[str, float] = {}


SGD: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "decay": {"weight_decay": 0.1},
    "momentum": {"momentum": 0.9},
    "dampened": {"momentum": 0.9, "dampening": 0.25},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "momentum-decay": {"momentum": 0.5, "weight_decay": 0.2},
}
ROWS: Dict[str, Row] = {
    f"{package}-SGD-{name}": Row(package, "SGD", {"lr": 0.1, **arguments}, optimizer("sgd", **arguments))
    for package, (name, arguments) in itertools.product(("torch", "poptorch"), SGD.items())
}
for _package in ("torch", "poptorch"):
    ROWS.update({
        f"{_package}-Adam": Row(_package, "Adam", {"lr": 0.1}, optimizer("adam")),
        f"{_package}-Adam-decay": Row(
            _package, "Adam", {"lr": 0.1, "weight_decay": 0.2}, optimizer("adam", weight_decay=0.2)
        ),
        f"{_package}-Adam-betas": Row(
            _package, "Adam", {"lr": 0.1, "betas": (0.5, 0.75), "eps": 0.01},
            optimizer("adam", beta1=0.5, beta2=0.75, epsilon=0.01),
        ),
        f"{_package}-AdamW": Row(_package, "AdamW", {"lr": 0.1}, optimizer("adamw")),
        f"{_package}-AdamW-decay": Row(
            _package, "AdamW", {"lr": 0.1, "weight_decay": 0.3}, optimizer("adamw", weight_decay=0.3)
        ),
        f"{_package}-RMSprop": Row(_package, "RMSprop", {"lr": 0.1}, optimizer("rmsprop")),
        f"{_package}-RMSprop-alpha": Row(
            _package, "RMSprop", {"lr": 0.1, "alpha": 0.5, "weight_decay": 0.1, "eps": 0.01},
            optimizer("rmsprop", alpha=0.5, weight_decay=0.1, epsilon=0.01),
        ),
        f"{_package}-RMSprop-momentum": Row(
            _package, "RMSprop", {"lr": 0.1, "momentum": 0.5}, optimizer("rmsprop", momentum=0.5)
        ),
        # A coefficient of 0.5 keeps the centred variance of three gradients away from zero.
        f"{_package}-RMSprop-centered": Row(
            _package, "RMSprop", {"lr": 0.1, "alpha": 0.5, "centered": True, "momentum": 0.5},
            optimizer("rmsprop", alpha=0.5, centred=True, momentum=0.5),
        ),
    })  # fmt: skip
_TF = {"epsilon_inside": True, "rate_in_velocity": True}
ROWS.update({
    "poptorch-SGD-combined": Row(
        "poptorch", "SGD", {"lr": 0.1, "momentum": 0.9, "use_combined_accum": True, "velocity_scaling": 4.0},
        optimizer("sgd", momentum=0.9),
    ),
    "poptorch-AdamW-told-not-to-correct": Row(
        "poptorch", "AdamW", {"lr": 0.1, "bias_correction": False}, optimizer("adamw")
    ),
    "poptorch-RMSprop-tf": Row(
        "poptorch", "RMSprop", {"lr": 0.1, "eps": 0.01, "use_tf_variant": True},
        optimizer("rmsprop", epsilon=0.01, **_TF), {"square": 1.0},
    ),
    "poptorch-RMSprop-tf-momentum": Row(
        "poptorch", "RMSprop", {"lr": 0.1, "momentum": 0.5, "use_tf_variant": True},
        optimizer("rmsprop", momentum=0.5, **_TF), {"square": 1.0},
    ),
    "poptorch-LAMB": Row(
        "poptorch", "LAMB", {"lr": 0.1, "eps": 1e-6, "weight_decay": 0.1}, optimizer("lamb", weight_decay=0.1)
    ),
    "poptorch-LAMB-uncorrected": Row(
        "poptorch", "LAMB", {"lr": 0.1, "eps": 1e-6, "weight_decay": 0.0, "bias_correction": False},
        optimizer("lamb", weight_decay=0.0, bias_correction=False),
    ),
    "poptorch-LAMB-limited": Row(
        "poptorch", "LAMB", {"lr": 0.1, "eps": 1e-6, "weight_decay": 0.1, "max_weight_norm": 1.0},
        optimizer("lamb", weight_decay=0.1, max_weight_norm=1.0),
    ),
})  # fmt: skip


def maker(poptorch: Any, row: Row, **more: Any) -> Callable[[Any], Any]:
    """What makes the row's optimizer for all weights of a model."""
    import torch

    package = torch.optim if row.package == "torch" else poptorch.optim
    return lambda model: getattr(package, row.name)(model.parameters(), **row.arguments, **more)


@pytest.mark.parametrize("name", ROWS)
def test_updates_are_the_oracles(poptorch: Any, name: str) -> None:
    """Three calls leave the weights where the oracle's optimizer does."""
    row = ROWS[name]
    weights = trained(poptorch, maker(poptorch, row))

    assert_weights(weights, same_rule(row.rule, 0.1), initial_state=row.begin)


@pytest.mark.parametrize("name", ["torch-SGD-momentum", "torch-Adam", "poptorch-RMSprop", "poptorch-LAMB"])
def test_an_update_uses_the_mean_of_accumulated_gradients(poptorch: Any, name: str) -> None:
    """With three micro-batches to an update, the optimizer sees the mean of their gradients, once a call."""
    row = ROWS[name]
    weights = trained(poptorch, maker(poptorch, row), accumulation=3)

    assert_weights(weights, same_rule(row.rule, 0.1), accumulation=3)


@pytest.mark.parametrize("name", ["torch-SGD-nesterov", "torch-AdamW", "poptorch-Adam", "poptorch-LAMB-limited"])
def test_an_update_uses_the_mean_over_replicas(poptorch: Any, name: str) -> None:
    """With two replicas the optimizer sees the mean of their gradients, and the weights are updated once."""
    row = ROWS[name]
    weights = trained(poptorch, maker(poptorch, row), replicas=2)

    assert_weights(weights, same_rule(row.rule, 0.1), accumulation=2)


@pytest.mark.parametrize("name", ["torch-SGD-dampened", "torch-Adam-decay", "poptorch-RMSprop-centered"])
def test_each_stage_of_a_pipeline_updates_its_weights(poptorch: Any, name: str) -> None:
    """Weights on two IPUs follow the optimizer as they would on one."""
    row = ROWS[name]
    weights = trained(poptorch, maker(poptorch, row), accumulation=3, pipelined=True)

    assert_weights(weights, same_rule(row.rule, 0.1), accumulation=3)


@pytest.mark.parametrize("package", ["torch", "poptorch"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_every_group_has_its_own_learning_rate(poptorch: Any, torch: Any, package: str, name: str) -> None:
    """A group's learning rate counts for its weights, the optimizer's for those of groups without one."""
    cls = getattr(torch.optim if package == "torch" else poptorch.optim, name)

    def make(model: Any) -> Any:
        return cls([{"params": [model.layer.weight]}, {"params": [model.layer.bias], "lr": 0.02}], lr=0.1)

    rule = optimizer(name.lower())
    calls = [{WEIGHT: (rule, 0.1), BIAS: (rule, 0.02)}] * 3
    assert_weights(trained(poptorch, make), calls)


@pytest.mark.parametrize("package", ["torch", "poptorch"])
@pytest.mark.parametrize(
    ("name", "key", "setting", "values"),
    [
        ("SGD", "weight_decay", "weight_decay", (0.3, 0.0)),
        ("SGD", "momentum", "momentum", (0.5, 0.9)),
        ("AdamW", "weight_decay", "weight_decay", (0.3, 0.1)),
        ("Adam", "eps", "epsilon", (0.01, 0.5)),
        ("RMSprop", "alpha", "alpha", (0.9, 0.5)),
    ],
    ids=["SGD-weight_decay", "SGD-momentum", "AdamW-weight_decay", "Adam-eps", "RMSprop-alpha"],
)
def test_every_group_has_its_own_values(
    poptorch: Any, torch: Any, package: str, name: str, key: str, setting: str, values: Any
) -> None:
    """A group's hyper-parameters count for its weights alone."""
    cls = getattr(torch.optim if package == "torch" else poptorch.optim, name)

    def make(model: Any) -> Any:
        weights = (model.layer.weight, model.layer.bias)
        return cls([{"params": [weight], key: value} for weight, value in zip(weights, values)], lr=0.1)

    rules = [optimizer(name.lower(), **{setting: value}) for value in values]
    assert_weights(trained(poptorch, make), [{WEIGHT: (rules[0], 0.1), BIAS: (rules[1], 0.1)}] * 3)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_gradients_are_clipped_by_the_norm_of_all(poptorch: Any, name: str) -> None:
    """Gradients with a norm above max_grad_norm are shrunk together to that norm."""
    epsilon = {"SGD": {}, "Adam": {"eps": 0.1}, "AdamW": {"eps": 0.1}}[name]  # without it Adam forgets the scale
    cls = getattr(poptorch.optim, name)
    weights = trained(poptorch, lambda model: cls(model.parameters(), lr=0.1, max_grad_norm=0.5, **epsilon))

    rule = optimizer(name.lower(), **({"epsilon": 0.1} if epsilon else {}))
    assert_weights(weights, same_rule(rule, 0.1), clip=0.5)


def test_gradients_below_the_norm_are_left_alone(poptorch: Any) -> None:
    """A limit that no gradient reaches changes nothing."""
    weights = trained(poptorch, lambda model: poptorch.optim.SGD(model.parameters(), lr=0.1, max_grad_norm=1e6))

    assert_weights(weights, same_rule(optimizer("sgd"), 0.1))


def test_the_mean_of_accumulated_gradients_is_clipped(poptorch: Any) -> None:
    """Clipping looks at the gradient that the update uses, not at those of micro-batches."""
    weights = trained(
        poptorch, lambda model: poptorch.optim.SGD(model.parameters(), lr=0.1, max_grad_norm=0.5), accumulation=3
    )

    assert_weights(weights, same_rule(optimizer("sgd"), 0.1), accumulation=3, clip=0.5)


def test_the_norm_is_over_all_stages_of_a_pipeline(poptorch: Any) -> None:
    """Gradients of weights on different IPUs are clipped by the norm of them all."""
    weights = trained(
        poptorch,
        lambda model: poptorch.optim.SGD(model.parameters(), lr=0.1, max_grad_norm=0.5),
        accumulation=3,
        pipelined=True,
    )

    assert_weights(weights, same_rule(optimizer("sgd"), 0.1), accumulation=3, clip=0.5)


def test_the_norm_is_that_of_the_mean_over_replicas(poptorch: Any) -> None:
    """Clipping comes after the all-reduce."""
    weights = trained(
        poptorch, lambda model: poptorch.optim.SGD(model.parameters(), lr=0.1, max_grad_norm=0.5), replicas=2
    )

    assert_weights(weights, same_rule(optimizer("sgd"), 0.1), accumulation=2, clip=0.5)


@pytest.mark.parametrize("package", ["torch", "poptorch"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_maximising_climbs(poptorch: Any, torch: Any, package: str, name: str) -> None:
    """maximize=True follows the gradient upwards: the loss of one batch rises from call to call."""
    cls = getattr(torch.optim if package == "torch" else poptorch.optim, name)
    problem = Problem(poptorch, lambda model: cls(model.parameters(), lr=0.1, maximize=True))
    losses = []
    for _ in range(3):
        problem.calls = 0
        losses.append(float(problem.call()[1]))

    assert losses[0] < losses[1] < losses[2]


def test_weights_that_need_no_gradient_stay(poptorch: Any) -> None:
    """A frozen weight in the optimizer is not updated, nor does it decay."""

    def make(model: Any) -> Any:
        model.layer.bias.requires_grad_(False)
        return poptorch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)

    rule = optimizer("sgd", weight_decay=0.1)
    assert_weights(trained(poptorch, make), [{WEIGHT: (rule, 0.1)}] * 3)


def test_without_an_optimizer_sgd_trains(poptorch: Any) -> None:
    """A training model that is given no optimizer uses SGD with a learning rate of 0.01."""
    assert_weights(trained(poptorch, lambda model: None), same_rule(optimizer("sgd"), 0.01))


@pytest.mark.parametrize("name", ["Adagrad", "Adadelta", "Adamax"])
def test_an_optimizer_without_counterpart_is_refused(poptorch: Any, torch: Any, name: str) -> None:
    """Optimizers that the device does not have raise an error that names them, at the latest on compiling."""
    with pytest.raises(ValueError, match=name):
        trained(poptorch, lambda model: getattr(torch.optim, name)(model.parameters(), lr=0.1), calls=1)


@pytest.mark.parametrize("package", ["torch", "poptorch"])
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_amsgrad_is_refused(poptorch: Any, torch: Any, package: str, name: str) -> None:
    """The device has no AMSGrad: asking for it raises a ValueError, at the latest on compiling."""
    cls = getattr(torch.optim if package == "torch" else poptorch.optim, name)
    with pytest.raises(ValueError, match="amsgrad"):
        trained(poptorch, lambda model: cls(model.parameters(), lr=0.1, amsgrad=True), calls=1)
