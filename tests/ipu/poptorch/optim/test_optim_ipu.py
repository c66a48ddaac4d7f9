"""poptorch.optim and torch.optim on the device: every optimizer makes the updates of the oracle."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Mapping, Sequence, Tuple

import pytest

from ipu_conformance import check
from ipu_conformance.oracle.regression import WEIGHT, same_rule
from ipu_conformance.run import optimizer

from ..lazily import poptorch
from .regression import Problem, assert_weights, both, make, rule, trained

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
ROWS: Dict[str, Tuple[str, str, Mapping[str, Any]]] = {
    **{
        f"{package}-{word}": (package, *row)
        for package, (word, row) in itertools.product(("torch", "poptorch"), BOTH.items())
    },
    "poptorch-SGD-combined": (
        "poptorch", "SGD", {"momentum": 0.9, "use_combined_accum": True, "velocity_scaling": 4.0}),
    "poptorch-SGD-clipped": ("poptorch", "SGD", {"max_grad_norm": 0.5, "loss_scaling": 8.0}),
    "poptorch-SGD-below-the-limit": ("poptorch", "SGD", {"max_grad_norm": 1e6}),
    # Without a large epsilon an adaptive optimizer forgets the scale.
    "poptorch-SGD-scaled": ("poptorch", "SGD", {"momentum": 0.9, "loss_scaling": 1000.0}),
    "poptorch-Adam-scaled": ("poptorch", "Adam", {"eps": 0.1, "loss_scaling": 1000.0}),
    "poptorch-AdamW-scaled": ("poptorch", "AdamW", {"eps": 0.1, "loss_scaling": 1000.0}),
    "poptorch-RMSprop-scaled": ("poptorch", "RMSprop", {"eps": 0.1, "momentum": 0.5, "loss_scaling": 1000.0}),
    "poptorch-Adam-clipped": ("poptorch", "Adam", {"eps": 0.1, "max_grad_norm": 0.5, "loss_scaling": 8.0}),
    "poptorch-AdamW-clipped": ("poptorch", "AdamW", {"eps": 0.1, "max_grad_norm": 0.5, "loss_scaling": 8.0}),
    "poptorch-AdamW-told-not-to-correct": ("poptorch", "AdamW", {"bias_correction": False}),
    "poptorch-RMSprop-tf": ("poptorch", "RMSprop", {"eps": 0.01, "use_tf_variant": True}),
    "poptorch-RMSprop-tf-momentum": ("poptorch", "RMSprop", {"momentum": 0.5, "use_tf_variant": True}),
    "poptorch-RMSprop-tf-all": (
        "poptorch", "RMSprop",
        {"alpha": 0.75, "eps": 0.01, "centered": True, "momentum": 0.5, "weight_decay": 0.2, "use_tf_variant": True}),
    "poptorch-LAMB": ("poptorch", "LAMB", {"eps": 1e-6, "weight_decay": 0.1}),
    "poptorch-LAMB-uncorrected": ("poptorch", "LAMB", {"eps": 1e-6, "weight_decay": 0.0, "bias_correction": False}),
    "poptorch-LAMB-limited": ("poptorch", "LAMB", {"eps": 1e-6, "weight_decay": 0.1, "max_weight_norm": 1.0}),
}  # fmt: skip


def begun(arguments: Mapping[str, Any]) -> Dict[str, float]:
    """What the state of an optimizer with these arguments begins with, where it is not zero."""
    return {"square": 1.0} if arguments.get("use_tf_variant") else {}


def assert_trains(row: str, micro_batches: int = 1, **problem: Any) -> None:
    """Three calls leave the weights where the oracle's optimizer does."""
    __tracebackhide__ = True
    package, name, arguments = ROWS[row]
    weights = trained(make(name, package, **arguments), **problem)
    clip, calls = arguments.get("max_grad_norm"), same_rule(rule(name, arguments), 0.1)
    assert_weights(weights, calls, initial_state=begun(arguments), clip=clip, accumulation=micro_batches)


@pytest.mark.parametrize("name", ROWS)
def test_updates_are_the_oracles(name: str) -> None:
    """Three calls leave the weights where the oracle's optimizer does, with gradients that are clipped together."""
    assert_trains(name)


SPREAD: Mapping[str, Tuple[Mapping[str, Any], int, Sequence[str]]] = {
    "accumulated": (
        {"accumulation": 3}, 3,
        ("torch-SGD-momentum", "torch-Adam", "poptorch-RMSprop", "poptorch-LAMB", "poptorch-SGD-clipped")),
    "replicated": (
        {"replicas": 2}, 2,
        ("torch-SGD-nesterov", "torch-AdamW", "poptorch-Adam", "poptorch-LAMB-limited", "poptorch-SGD-clipped")),
    "pipelined": (
        {"accumulation": 3, "pipelined": True}, 3,
        ("torch-SGD-dampened", "torch-Adam-decay", "poptorch-RMSprop-centered", "poptorch-SGD-clipped")),
}  # fmt: skip
"""Ways to spread an update over several micro-batches, their number, and rows that are spread so."""


@pytest.mark.parametrize(("spread", "name"), [(word, name) for word, row in SPREAD.items() for name in row[2]])
def test_an_update_uses_the_mean_of_micro_batches(spread: str, name: str) -> None:
    """The optimizer sees the mean over micro-batches and replicas, clipped by its norm, on one IPU and on two."""
    problem, micro_batches, _ = SPREAD[spread]

    assert_trains(name, micro_batches, **problem)


def test_weights_that_need_no_gradient_stay() -> None:
    """A frozen weight in the optimizer is not updated, nor does it decay."""

    def frozen(model: Any) -> Any:
        model.layer.bias.requires_grad_(False)
        return poptorch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)

    rule = optimizer("sgd", weight_decay=0.1)
    assert_weights(trained(frozen), [{WEIGHT: (rule, 0.1)}] * 3)


def test_without_an_optimizer_sgd_trains() -> None:
    """A training model that is given no optimizer uses SGD with a learning rate of 0.01."""
    assert_weights(trained(lambda model: None), same_rule(optimizer("sgd"), 0.01))


REFUSED = {
    **{name: ("torch", name, {}, "nsupported") for name in ("Adagrad", "Adadelta", "Adamax")},
    **{
        f"{name}-{package}": (package, name, {"amsgrad": True}, "amsgrad")
        for package, name in itertools.product(("torch", "poptorch"), ("Adam", "AdamW"))
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_optimizer_without_counterpart_is_refused(name: str) -> None:
    """The device lacks some optimizers, and AMSGrad: an error names them, at the latest on compiling."""
    package, cls, arguments, match = REFUSED[name]

    with check.raises(
        ValueError if arguments else (AssertionError, ValueError), match=match, what=f"training with {name}"
    ):
        trained(make(cls, package, **arguments), calls=1)


RATES = (0.1, 0.025, 0.2)
KEPT = (
    "torch-SGD-momentum", "torch-AdamW-decay", "torch-RMSprop-momentum", "poptorch-SGD-nesterov", "poptorch-LAMB",
    "poptorch-RMSprop-tf-momentum", "poptorch-RMSprop-tf-all",
)  # fmt: skip


@pytest.mark.parametrize("row", KEPT)
def test_a_rate_that_changes_counts_for_new_steps(row: str) -> None:
    """What is kept from call to call holds the rate of its own call where the rule says so, and no rate elsewhere."""
    package, name, arguments = ROWS[row]
    problem = Problem(make(name, package, **arguments))
    for rate in RATES:
        problem.set_optimizer(lr=rate)
        problem.call()

    calls = both(*((rule(name, arguments), rate) for rate in RATES))
    assert_weights(problem.weights(), calls, initial_state=begun(arguments))
