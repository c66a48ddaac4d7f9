"""setOptimizer: what it changes on a compiled model, what it refuses, and what it says."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check
from ipu_conformance.oracle.regression import BIAS, WEIGHT
from ipu_conformance.run import optimizer

from ..lazily import poptorch, torch
from .regression import Make, Problem, assert_weights, both, make

SGD = optimizer("sgd")
MOMENTUM = optimizer("sgd", momentum=0.9)


def test_changes_wait_for_set_optimizer() -> None:
    """A learning rate that is changed on the host has no effect until the optimizer is set, compiled or not."""
    problem = Problem(make("SGD", "torch"))
    for rate in (0.02, 0.01):
        problem.optimizer.param_groups[0]["lr"] = rate
        problem.call()
    problem.executor.setOptimizer(problem.optimizer)
    problem.call()

    assert_weights(problem.weights(), both((SGD, 0.1), (SGD, 0.1), (SGD, 0.01)))


def test_a_new_optimizer_takes_over() -> None:
    """Another optimizer of the same kind is used from the next call on."""
    problem = Problem(make("SGD", "torch"))
    problem.call()
    problem.executor.setOptimizer(torch.optim.SGD(problem.model.parameters(), lr=0.02))
    problem.call(2)

    assert_weights(problem.weights(), both((SGD, 0.1), (SGD, 0.02), (SGD, 0.02)))


CHANGES: Dict[str, Tuple[str, str, Dict[str, Any], Dict[str, Any]]] = {
    **{
        f"{package}-{name}": (package, name, arguments, {"lr": 0.05})
        for package in ("torch", "poptorch")
        for name, arguments in {"SGD": {"momentum": 0.9}, "Adam": {}, "AdamW": {}, "RMSprop": {"momentum": 0.5}}.items()
    },
    "momentum": ("torch", "SGD", {"momentum": 0.5}, {"momentum": 0.9}),
    "weight_decay": ("torch", "SGD", {"weight_decay": 0.5}, {"weight_decay": 0.1}),
    "dampening": ("torch", "SGD", {"momentum": 0.5, "dampening": 0.5}, {"dampening": 0.1}),
}
"""Optimizers, and what changes: learning rates, and values of torch's that differ from its defaults."""


@pytest.mark.parametrize("change", CHANGES)
def test_the_state_outlives_set_optimizer(change: str) -> None:
    """Momentum and moments go on from where they were, with the new value."""
    package, name, first, second = CHANGES[change]
    problem = Problem(make(name, package, **first))
    problem.call(2)
    problem.set_optimizer(**second)
    problem.call(2)

    settings = {**first, **second}
    rate = settings.pop("lr", 0.1)
    before, after = (optimizer(name.lower(), **first), 0.1), (optimizer(name.lower(), **settings), rate)
    assert_weights(problem.weights(), both(before, before, after, after))


SCHEDULERS: Dict[str, Callable[[Any, Any], Any]] = {
    "StepLR": lambda scheduler, optimizer: scheduler.StepLR(optimizer, 2, gamma=0.5),
    "MultiStepLR": lambda scheduler, optimizer: scheduler.MultiStepLR(optimizer, [1, 3], gamma=0.5),
    "ExponentialLR": lambda scheduler, optimizer: scheduler.ExponentialLR(optimizer, 0.5),
    "LambdaLR": lambda scheduler, optimizer: scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)),
    "LinearLR": lambda scheduler, optimizer: scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=3),
    "CosineAnnealingLR": lambda scheduler, optimizer: scheduler.CosineAnnealingLR(optimizer, 5),
    "PolynomialLR": lambda scheduler, optimizer: scheduler.PolynomialLR(optimizer, 6, power=2.0),
}


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_of_torch_set_the_learning_rate(name: str) -> None:
    """A scheduler steps on the host, and setOptimizer sends its learning rate to the device."""
    problem = Problem(make("SGD", "torch", momentum=0.9))
    scheduler = SCHEDULERS[name](torch.optim.lr_scheduler, problem.optimizer)
    problem.executor.setOptimizer(problem.optimizer)
    rates = []
    for _ in range(4):
        rates.append(problem.optimizer.param_groups[0]["lr"])
        problem.call()
        scheduler.step()
        problem.executor.setOptimizer(problem.optimizer)

    check.differs(actual=rates[-1], other=rates[0], what="the last learning rate")
    assert_weights(problem.weights(), both(*((MOMENTUM, rate) for rate in rates)))


def marked(mark: str, attribute: str) -> Make:
    """What makes PopTorch's SGD with one attribute marked as variable or as constant."""

    def make(model: Any) -> Any:
        sgd = poptorch.optim.SGD(model.parameters(), lr=0.1)
        getattr(sgd.variable_attrs, mark)(attribute)
        return sgd

    return make


def test_what_is_marked_as_variable_can_change() -> None:
    """markAsVariable before compiling makes a constant changeable."""
    problem = Problem(marked("markAsVariable", "weight_decay"))
    problem.call()
    problem.set_optimizer(weight_decay=0.3)
    problem.call(2)

    decayed = (optimizer("sgd", weight_decay=0.3), 0.1)
    assert_weights(problem.weights(), both((SGD, 0.1), decayed, decayed))


CONSTANTS: Dict[str, Tuple[Make, Dict[str, Any]]] = {
    "SGD-momentum": (make("SGD", "torch"), {"momentum": 0.9}),
    "SGD-weight_decay": (make("SGD", "torch"), {"weight_decay": 0.1}),
    "SGD-nesterov": (make("SGD", "torch", momentum=0.9), {"nesterov": True}),
    "Adam-betas": (make("Adam", "torch", betas=(0.5, 0.5)), {"betas": (0.6, 0.6)}),
    "Adam-eps": (make("Adam", "torch"), {"eps": 0.1}),
    "AdamW-weight_decay": (make("AdamW", "torch"), {"weight_decay": 0.5}),
    "RMSprop-alpha": (make("RMSprop", "torch", alpha=0.5), {"alpha": 0.6}),
    "RMSprop-centered": (make("RMSprop", "torch"), {"centered": True}),
    "left-out": (make("SGD"), {"momentum": 0.9}),
    "marked": (marked("markAsConstant", "lr"), {"lr": 0.3}),
}
"""Values that are compiled in: those at torch's defaults, betas, alpha, nesterov and centered always, those that were
not passed to PopTorch's optimizers, and those that are marked."""


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_torchs_optimizers_cannot_change(name: str) -> None:
    """Changing a constant of the compiled model raises an Error that names it."""
    first, change = CONSTANTS[name]
    problem = Problem(first)
    problem.call()

    with check.raises(poptorch.Error, match=next(iter(change)), what=f"{name}: changing {change}"):
        problem.set_optimizer(**change)


def test_constants_of_poptorchs_optimizers_cannot_change() -> None:
    """A loss scale that was left out is compiled in, too."""
    problem = Problem(make("SGD"))
    problem.call()
    problem.optimizer.loss_scaling = 8.0

    with check.raises(poptorch.Error, match="loss_scaling", what="changing a loss scale that was not passed"):
        problem.executor.setOptimizer(problem.optimizer)


def test_a_refused_optimizer_leaves_the_old_one() -> None:
    """After an Error of setOptimizer the model trains on with the optimizer that it had."""
    problem = Problem(make("SGD", "torch"))
    problem.call()
    with check.raises(poptorch.Error, what="an optimizer with another momentum"):
        problem.executor.setOptimizer(torch.optim.SGD(problem.model.parameters(), lr=0.5, momentum=0.9))
    problem.call(2)

    assert_weights(problem.weights(), both((SGD, 0.1), (SGD, 0.1), (SGD, 0.1)))


def test_before_compiling_anything_can_be_set() -> None:
    """A model that has not been compiled takes an optimizer of any kind."""
    problem = Problem(make("SGD", "torch", lr=0.5))
    problem.executor.setOptimizer(torch.optim.AdamW(problem.model.parameters(), lr=0.1, weight_decay=0.3))
    problem.call(2)

    rule = (optimizer("adamw", weight_decay=0.3), 0.1)
    assert_weights(problem.weights(), both(rule, rule))


def test_the_kind_cannot_change() -> None:
    """A compiled model refuses an optimizer of another kind with an Error."""
    problem = Problem(make("SGD", "torch"))
    problem.call()

    with check.raises(poptorch.Error, what="Adam for a model compiled with SGD"):
        problem.executor.setOptimizer(torch.optim.Adam(problem.model.parameters(), lr=0.1))


def test_each_group_can_change() -> None:
    """New learning rates reach the groups that they belong to."""

    def grouped(model: Any) -> Any:
        groups = [{"params": [model.layer.weight], "lr": 0.1}, {"params": [model.layer.bias], "lr": 0.2}]
        return torch.optim.SGD(groups, lr=0.5)

    problem = Problem(grouped)
    problem.call()
    for group, rate in zip(problem.optimizer.param_groups, (0.03, 0.04)):
        group["lr"] = rate
    problem.executor.setOptimizer(problem.optimizer)
    problem.call()

    calls = [{WEIGHT: (SGD, 0.1), BIAS: (SGD, 0.2)}, {WEIGHT: (SGD, 0.03), BIAS: (SGD, 0.04)}]
    assert_weights(problem.weights(), calls)


def test_a_running_mean_cannot_come_after_compiling() -> None:
    """Float16 accumulators need the Running strategy: on a model compiled with Post they raise a ValueError."""
    problem = Problem(make("SGD"), accumulation=2)
    problem.call()

    with check.raises(ValueError, match="already compiled", what="float16 accumulators after compiling with Post"):
        problem.executor.setOptimizer(poptorch.optim.SGD(problem.model.parameters(), lr=0.1, accum_type=torch.float16))


@pytest.mark.parametrize("where", ["optimizer", "group"])
def test_unexpected_attributes_are_reported(where: str, said: Callable[[], str]) -> None:
    """setOptimizer warns of an attribute that the device does not know, on the optimizer or in a group."""
    problem = Problem(make("SGD", "torch"))
    problem.call()
    said()
    if where == "optimizer":
        problem.optimizer.colour = "red"
    problem.set_optimizer(**({"colour": "red"} if where == "group" else {}))

    check.contains(actual=said(), expected="colour", what="what setOptimizer says")


def test_unexpected_attributes_are_not_reported_twice(capfd: pytest.CaptureFixture[str]) -> None:
    """A second setOptimizer with the same attribute is silent, and so is a call."""
    problem = Problem(make("SGD", "torch"))
    problem.optimizer.colour = "red"
    spoken = []
    for act in (problem.call, problem.set_optimizer, problem.set_optimizer):
        act()
        spoken.append("colour" in "".join(capfd.readouterr()))

    what = "whether a call, the first and the second setOptimizer speak of the attribute"
    check.equal(actual=spoken, expected=[False, True, False], what=what)


def test_relaxed_checks_report_nothing(said: Callable[[], str]) -> None:
    """relaxOptimizerAttributesChecks silences the warnings about attributes."""
    options = poptorch.Options().relaxOptimizerAttributesChecks()
    problem = Problem(make("SGD", "torch"), options=options)
    problem.optimizer.colour = "red"
    problem.call()
    problem.executor.setOptimizer(problem.optimizer)

    check.lacks(actual=said(), unexpected="colour", what="what setOptimizer says")


def test_a_subclass_is_reported(said: Callable[[], str]) -> None:
    """A user's subclass runs as the optimizer that it derives from, with a warning that names it."""

    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            raise AssertionError("the device does not call the host's step")

    problem = Problem(lambda model: Own(model.parameters(), lr=0.1))
    problem.call(2)

    check.contains(actual=said(), expected="Own", what="what is said of a subclass")
    assert_weights(problem.weights(), both((SGD, 0.1), (SGD, 0.1)))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("package", ["torch", "poptorch"])
def test_ordinary_optimizers_say_nothing(package: str, name: str, said: Callable[[], str]) -> None:
    """Neither torch's optimizers nor PopTorch's own make the device warn."""
    problem = Problem(make(name, package))
    problem.call()
    problem.executor.setOptimizer(problem.optimizer)
    text = said().lower()

    for word in ("attribute", "subclass"):
        check.lacks(actual=text, unexpected=word, what=f"what is said of {package}'s {name}")
