"""setOptimizer: what it changes on a compiled model, what it refuses, and what it says."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check
from ipu_conformance.oracle.regression import BIAS, WEIGHT
from ipu_conformance.run import optimizer

from .regression import Make, Problem, assert_weights, both, make

SGD = optimizer("sgd")
MOMENTUM = optimizer("sgd", momentum=0.9)


def test_changes_wait_for_set_optimizer(poptorch: Any) -> None:
    """A learning rate that is changed on the host has no effect until the optimizer is set, compiled or not."""
    problem = Problem(poptorch, make(poptorch, "SGD", "torch"))
    for rate in (0.02, 0.01):
        problem.optimizer.param_groups[0]["lr"] = rate
        problem.call()
    problem.executor.setOptimizer(problem.optimizer)
    problem.call()

    assert_weights(problem.weights(), both((SGD, 0.1), (SGD, 0.1), (SGD, 0.01)))


def test_a_new_optimizer_takes_over(poptorch: Any, torch: Any) -> None:
    """Another optimizer of the same kind is used from the next call on."""
    problem = Problem(poptorch, make(poptorch, "SGD", "torch"))
    problem.call()
    problem.executor.setOptimizer(torch.optim.SGD(problem.model.parameters(), lr=0.02))
    problem.call(2)

    assert_weights(problem.weights(), both((SGD, 0.1), (SGD, 0.02), (SGD, 0.02)))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("RMSprop", {"momentum": 0.5})],
    ids=["SGD", "Adam", "AdamW", "RMSprop"],
)
@pytest.mark.parametrize("package", ["torch", "poptorch"])
def test_the_state_outlives_set_optimizer(poptorch: Any, package: str, name: str, arguments: Dict[str, Any]) -> None:
    """Momentum and moments go on from where they were, with the new learning rate."""
    problem = Problem(poptorch, make(poptorch, name, package, **arguments))
    problem.call(2)
    problem.set_optimizer(lr=0.05)
    problem.call(2)

    rule = optimizer(name.lower(), **arguments)
    assert_weights(problem.weights(), both((rule, 0.1), (rule, 0.1), (rule, 0.05), (rule, 0.05)))


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
def test_schedulers_of_torch_set_the_learning_rate(poptorch: Any, torch: Any, name: str) -> None:
    """A scheduler steps on the host, and setOptimizer sends its learning rate to the device."""
    problem = Problem(poptorch, make(poptorch, "SGD", "torch", momentum=0.9))
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


@pytest.mark.parametrize(
    ("first", "change"),
    [
        ({"momentum": 0.5}, {"momentum": 0.9}),
        ({"weight_decay": 0.5}, {"weight_decay": 0.1}),
        ({"momentum": 0.5, "dampening": 0.5}, {"dampening": 0.1}),
    ],
    ids=["momentum", "weight_decay", "dampening"],
)
def test_what_differs_from_torchs_default_can_change(
    poptorch: Any, first: Dict[str, Any], change: Dict[str, Any]
) -> None:
    """A value of torch's optimizer that differs from its default is a variable of the compiled model."""
    problem = Problem(poptorch, make(poptorch, "SGD", "torch", **first))
    problem.call()
    problem.set_optimizer(**change)
    problem.call(2)

    before, after = (optimizer("sgd", **first), 0.1), (optimizer("sgd", **{**first, **change}), 0.1)
    assert_weights(problem.weights(), both(before, after, after))


def marked(poptorch: Any, mark: str, attribute: str) -> Make:
    """What makes PopTorch's SGD with one attribute marked as variable or as constant."""

    def make(model: Any) -> Any:
        sgd = poptorch.optim.SGD(model.parameters(), lr=0.1)
        getattr(sgd.variable_attrs, mark)(attribute)
        return sgd

    return make


def test_what_is_marked_as_variable_can_change(poptorch: Any) -> None:
    """markAsVariable before compiling makes a constant changeable."""
    problem = Problem(poptorch, marked(poptorch, "markAsVariable", "weight_decay"))
    problem.call()
    problem.set_optimizer(weight_decay=0.3)
    problem.call(2)

    decayed = (optimizer("sgd", weight_decay=0.3), 0.1)
    assert_weights(problem.weights(), both((SGD, 0.1), decayed, decayed))


def test_what_is_marked_as_constant_cannot_change(poptorch: Any) -> None:
    """markAsConstant before compiling makes a value that was passed a constant, even the learning rate."""
    problem = Problem(poptorch, marked(poptorch, "markAsConstant", "lr"))
    problem.call()

    with check.raises(poptorch.Error, match="lr", what="a new rate that is marked as constant"):
        problem.set_optimizer(lr=0.3)


CONSTANTS: Dict[str, Any] = {
    "SGD-momentum": ("SGD", {}, {"momentum": 0.9}),
    "SGD-weight_decay": ("SGD", {}, {"weight_decay": 0.1}),
    "SGD-nesterov": ("SGD", {"momentum": 0.9}, {"nesterov": True}),
    "Adam-betas": ("Adam", {"betas": (0.5, 0.5)}, {"betas": (0.6, 0.6)}),
    "Adam-eps": ("Adam", {}, {"eps": 0.1}),
    "AdamW-weight_decay": ("AdamW", {}, {"weight_decay": 0.5}),
    "RMSprop-alpha": ("RMSprop", {"alpha": 0.5}, {"alpha": 0.6}),
    "RMSprop-centered": ("RMSprop", {}, {"centered": True}),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_torchs_optimizers_cannot_change(poptorch: Any, name: str) -> None:
    """Values at torch's defaults, and betas, alpha, nesterov and centered always, are compiled in: Error."""
    cls, arguments, change = CONSTANTS[name]
    problem = Problem(poptorch, make(poptorch, cls, "torch", **arguments))
    problem.call()

    with check.raises(poptorch.Error, match=next(iter(change)), what=f"changing {cls} to {change}"):
        problem.set_optimizer(**change)


@pytest.mark.parametrize("attribute", ["momentum", "loss_scaling"])
def test_constants_of_poptorchs_optimizers_cannot_change(poptorch: Any, attribute: str) -> None:
    """An argument that was left out is compiled in: changing it later raises an Error that names it."""
    problem = Problem(poptorch, make(poptorch, "SGD"))
    problem.call()
    if attribute == "momentum":
        problem.optimizer.param_groups[0]["momentum"] = 0.9
    else:
        problem.optimizer.loss_scaling = 8.0

    with check.raises(poptorch.Error, match=attribute, what=f"changing a {attribute} that was not passed"):
        problem.executor.setOptimizer(problem.optimizer)


def test_a_refused_optimizer_leaves_the_old_one(poptorch: Any, torch: Any) -> None:
    """After an Error of setOptimizer the model trains on with the optimizer that it had."""
    problem = Problem(poptorch, make(poptorch, "SGD", "torch"))
    problem.call()
    with check.raises(poptorch.Error, what="an optimizer with another momentum"):
        problem.executor.setOptimizer(torch.optim.SGD(problem.model.parameters(), lr=0.5, momentum=0.9))
    problem.call(2)

    assert_weights(problem.weights(), both((SGD, 0.1), (SGD, 0.1), (SGD, 0.1)))


def test_before_compiling_anything_can_be_set(poptorch: Any, torch: Any) -> None:
    """A model that has not been compiled takes an optimizer of any kind."""
    problem = Problem(poptorch, make(poptorch, "SGD", "torch", lr=0.5))
    problem.executor.setOptimizer(torch.optim.AdamW(problem.model.parameters(), lr=0.1, weight_decay=0.3))
    problem.call(2)

    rule = (optimizer("adamw", weight_decay=0.3), 0.1)
    assert_weights(problem.weights(), both(rule, rule))


def test_the_kind_cannot_change(poptorch: Any, torch: Any) -> None:
    """A compiled model refuses an optimizer of another kind with an Error."""
    problem = Problem(poptorch, make(poptorch, "SGD", "torch"))
    problem.call()

    with check.raises(poptorch.Error, what="Adam for a model compiled with SGD"):
        problem.executor.setOptimizer(torch.optim.Adam(problem.model.parameters(), lr=0.1))


def test_each_group_can_change(poptorch: Any, torch: Any) -> None:
    """New learning rates reach the groups that they belong to."""

    def grouped(model: Any) -> Any:
        groups = [{"params": [model.layer.weight], "lr": 0.1}, {"params": [model.layer.bias], "lr": 0.2}]
        return torch.optim.SGD(groups, lr=0.5)

    problem = Problem(poptorch, grouped)
    problem.call()
    for group, rate in zip(problem.optimizer.param_groups, (0.03, 0.04)):
        group["lr"] = rate
    problem.executor.setOptimizer(problem.optimizer)
    problem.call()

    calls = [{WEIGHT: (SGD, 0.1), BIAS: (SGD, 0.2)}, {WEIGHT: (SGD, 0.03), BIAS: (SGD, 0.04)}]
    assert_weights(problem.weights(), calls)


def test_a_running_mean_cannot_come_after_compiling(poptorch: Any, torch: Any) -> None:
    """Float16 accumulators need the Running strategy: on a model compiled with Post they raise a ValueError."""
    problem = Problem(poptorch, make(poptorch, "SGD"), accumulation=2)
    problem.call()

    with check.raises(ValueError, match="already compiled", what="float16 accumulators after compiling with Post"):
        problem.executor.setOptimizer(poptorch.optim.SGD(problem.model.parameters(), lr=0.1, accum_type=torch.float16))


@pytest.mark.parametrize("where", ["optimizer", "group"])
def test_unexpected_attributes_are_reported(poptorch: Any, where: str, said: Callable[[], str]) -> None:
    """setOptimizer warns of an attribute that the device does not know, on the optimizer or in a group."""
    problem = Problem(poptorch, make(poptorch, "SGD", "torch"))
    problem.call()
    said()
    if where == "optimizer":
        problem.optimizer.colour = "red"
    problem.set_optimizer(**({"colour": "red"} if where == "group" else {}))

    check.contains(actual=said(), expected="colour", what="what setOptimizer says")


def test_unexpected_attributes_are_not_reported_twice(poptorch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """A second setOptimizer with the same attribute is silent, and so is a call."""
    problem = Problem(poptorch, make(poptorch, "SGD", "torch"))
    problem.optimizer.colour = "red"
    problem.call()
    check.lacks(actual="".join(capfd.readouterr()), unexpected="colour", what="what the first call says")
    for ordinal, compare in (("first", check.contains), ("second", check.lacks)):
        problem.executor.setOptimizer(problem.optimizer)
        key = "expected" if ordinal == "first" else "unexpected"
        what = f"what the {ordinal} setOptimizer says"
        compare(actual="".join(capfd.readouterr()), **{key: "colour"}, what=what)


def test_relaxed_checks_report_nothing(poptorch: Any, said: Callable[[], str]) -> None:
    """relaxOptimizerAttributesChecks silences the warnings about attributes."""
    options = poptorch.Options().relaxOptimizerAttributesChecks()
    problem = Problem(poptorch, make(poptorch, "SGD", "torch"), options=options)
    problem.optimizer.colour = "red"
    problem.call()
    problem.executor.setOptimizer(problem.optimizer)

    check.lacks(actual=said(), unexpected="colour", what="what setOptimizer says")


def test_a_subclass_is_reported(poptorch: Any, torch: Any, said: Callable[[], str]) -> None:
    """A user's subclass runs as the optimizer that it derives from, with a warning that names it."""

    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            raise AssertionError("the device does not call the host's step")

    problem = Problem(poptorch, lambda model: Own(model.parameters(), lr=0.1))
    problem.call(2)

    check.contains(actual=said(), expected="Own", what="what is said of a subclass")
    assert_weights(problem.weights(), both((SGD, 0.1), (SGD, 0.1)))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("package", ["torch", "poptorch"])
def test_ordinary_optimizers_say_nothing(poptorch: Any, package: str, name: str, said: Callable[[], str]) -> None:
    """Neither torch's optimizers nor PopTorch's own make the device warn."""
    problem = Problem(poptorch, make(poptorch, name, package))
    problem.call()
    problem.executor.setOptimizer(problem.optimizer)
    text = said().lower()

    for word in ("attribute", "subclass"):
        check.lacks(actual=text, unexpected=word, what=f"what is said of {package}'s {name}")
