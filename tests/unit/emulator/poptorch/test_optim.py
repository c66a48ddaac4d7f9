"""What is read from optimizers, what may be replaced after compiling, and how state is named and restored."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Dict, FrozenSet, List

import pytest
import torch

from ipu_conformance import check
from ipu_conformance.emulator.poptorch.api import Error, Options
from ipu_conformance.emulator.poptorch.optim import optimizers, update
from ipu_conformance.emulator.poptorch.optim import read as optim_read
from ipu_conformance.emulator.poptorch.optim import state as optim_state


@pytest.fixture
def weights() -> Dict[str, torch.nn.Parameter]:
    return {"a": torch.nn.Parameter(torch.ones(2)), "b": torch.nn.Parameter(torch.zeros(3))}


def rule(optimizer: Any, weights: Dict[str, torch.nn.Parameter]) -> update.DeviceUpdate:
    return update.rule_for(optimizer, weights, None)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda p: torch.optim.AdamW(p), "adamw"),
        (lambda p: torch.optim.Adam(p), "adam"),
        (lambda p: torch.optim.Adam(p, decoupled_weight_decay=True), "adamw"),
        (lambda p: torch.optim.SGD(p, lr=0.1), "sgd"),
        (lambda p: torch.optim.RMSprop(p), "rmsprop"),
        (lambda p: optimizers.LAMB(p), "lamb"),
        (lambda p: optimizers.AdamW(p), "adamw"),
    ],
    ids=["AdamW", "Adam", "Adam-decoupled", "SGD", "RMSprop", "LAMB", "poptorch-AdamW"],
)
def test_the_kind_is_that_of_the_nearest_base(make: Any, kind: str, weights: Dict[str, torch.nn.Parameter]) -> None:
    """AdamW is AdamW although torch derives it from Adam."""
    assert optim_read.read(make(weights.values()), weights).kind == kind


@pytest.mark.parametrize(
    ("make", "variable"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.001), {"lr"}),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), {"lr", "momentum", "weight_decay"}),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), {"lr", "momentum"}),
        (lambda p: torch.optim.Adam(p, betas=(0.5, 0.6), eps=1e-3), {"lr", "eps"}),
        (lambda p: torch.optim.RMSprop(p, alpha=0.5, momentum=0.5), {"lr", "momentum"}),
        (lambda p: optimizers.SGD(p, lr=0.001, momentum=0.0), {"lr", "momentum"}),
        (lambda p: optimizers.Adam(p, betas=(0.5, 0.6)), {"betas"}),
        (lambda p: optimizers.RMSprop(p), set()),
    ],
    ids=["sgd", "sgd-values", "nesterov", "betas", "alpha", "poptorch-default-passed", "poptorch-betas", "poptorch"],
)
def test_variable_values(make: Any, variable: FrozenSet[str], weights: Dict[str, torch.nn.Parameter]) -> None:
    """Torch's values are variable when they differ from their defaults, PopTorch's when they were passed."""
    (group,) = optim_read.read(make(weights.values()), weights).groups

    assert set(group.values) - group.constant == variable


def test_groups_hold_names_in_their_order(weights: Dict[str, torch.nn.Parameter]) -> None:
    """Each group has its own weights and values."""
    optimizer = torch.optim.SGD([{"params": [weights["b"]], "lr": 0.5}, {"params": [weights["a"]]}], lr=0.1)
    read = optim_read.read(optimizer, weights)

    assert [(group.names, group.values["lr"]) for group in read.groups] == [(("b",), 0.5), (("a",), 0.1)]


def test_options_do_not_hide_anything_from_another_model(
    weights: Dict[str, torch.nn.Parameter], caplog: pytest.LogCaptureFixture
) -> None:
    """An odd attribute is reported once per model: again for other options, not again for the same."""
    optimizer = torch.optim.SGD(weights.values(), lr=0.1)
    first, second = Options(), Options()
    for options in (first, second):
        update.rule_for(optimizer, weights, options)
    optimizer.colour = "red"
    for options in (first, first, second):
        update.rule_for(optimizer, weights, options)

    assert caplog.text.count("colour") == 2


def test_what_schedulers_leave_is_expected(weights: Dict[str, torch.nn.Parameter]) -> None:
    """No scheduler of torch makes an optimizer look odd."""
    for make in (
        lambda own: torch.optim.lr_scheduler.StepLR(own, 1),
        lambda own: torch.optim.lr_scheduler.OneCycleLR(own, 0.1, total_steps=9),
        lambda own: torch.optim.lr_scheduler.CyclicLR(own, 0.1, 0.2),
        lambda own: torch.optim.lr_scheduler.ReduceLROnPlateau(own),
    ):
        optimizer = torch.optim.SGD(weights.values(), lr=0.1, momentum=0.9)
        make(optimizer)

        assert (optim_read.unexpected(optimizer), optim_read.unexpected_in_groups(optimizer)) == ([], [[]])


def test_a_constant_cannot_be_replaced(weights: Dict[str, torch.nn.Parameter]) -> None:
    """The error names the attribute, what it is and what it was to be."""
    old = rule(torch.optim.SGD(weights.values(), lr=0.1), weights)
    new = rule(torch.optim.SGD(weights.values(), lr=0.1, momentum=0.9), weights)

    with pytest.raises(Error, match=r"momentum of group 0 .* 0 .* 0\.9"):
        update.changed_constants(old, new)


def test_a_variable_can_be_replaced_by_any_value(weights: Dict[str, torch.nn.Parameter]) -> None:
    """What was variable when the program was compiled stays so, even at the default."""
    old = rule(torch.optim.SGD(weights.values(), lr=0.1, momentum=0.9), weights)
    new = rule(torch.optim.SGD(weights.values(), lr=0.2), weights)

    update.changed_constants(old, new)


def test_equal_values_of_other_types_are_equal(weights: Dict[str, torch.nn.Parameter]) -> None:
    """A list is as good as a tuple, and a tensor of one number as good as that number."""
    old = rule(torch.optim.Adam(weights.values(), lr=0.5, betas=(0.5, 0.75)), weights)
    optimizer = torch.optim.Adam(weights.values(), lr=torch.tensor(0.25))
    optimizer.param_groups[0].update(betas=[0.5, torch.tensor(0.75)])
    new = rule(optimizer, weights)
    update.changed_constants(old, new)

    assert (new.settings.groups[0].values["lr"], new.settings.groups[0].values["betas"]) == (0.25, (0.5, 0.75))


@pytest.mark.parametrize(
    "make",
    [
        lambda w: torch.optim.Adam(w.values()),
        lambda w: torch.optim.SGD([{"params": [w["a"]]}, {"params": [w["b"]]}], lr=0.1),
    ],
    ids=["kind", "groups"],
)
def test_another_program_cannot_be_replaced(make: Any, weights: Dict[str, torch.nn.Parameter]) -> None:
    """Neither the kind of an optimizer nor the number of its groups changes after compiling."""
    with pytest.raises(Error, match="compiled with sgd and 1 groups"):
        update.changed_constants(rule(torch.optim.SGD(weights.values(), lr=0.1), weights), rule(make(weights), weights))


def test_a_running_mean_cannot_come_later(weights: Dict[str, torch.nn.Parameter]) -> None:
    """A program that was compiled for the mean at the end cannot keep a running one."""
    old = rule(optimizers.SGD(weights.values(), lr=0.1), weights)
    new = rule(optimizers.SGD(weights.values(), lr=0.1, accum_type=torch.float16), weights)

    with pytest.raises(ValueError, match="already compiled"):
        update.changed_constants(old, new)


KINDS = {
    "SGD": (optimizers.SGD, {"lr": 0.1, "momentum": 0.9}),
    "Adam": (optimizers.Adam, {"lr": 0.1}),
    "AdamW": (optimizers.AdamW, {"lr": 0.1}),
    "RMSprop": (optimizers.RMSprop, {"lr": 0.1, "momentum": 0.5, "centered": True}),
    "LAMB": (optimizers.LAMB, {"lr": 0.1}),
}


@pytest.mark.parametrize("name", KINDS)
def test_restored_state_goes_on_with_the_same_bits(name: str, weights: Dict[str, torch.nn.Parameter]) -> None:
    """Updates after saving and restoring the state are those of a run without a break."""
    cls, kwargs = KINDS[name]
    gradients = [{own: torch.full_like(value, 0.3 * n + 0.1) for own, value in weights.items()} for n in range(4)]
    optimizer = cls(weights.values(), **kwargs)
    states: List[Any] = [{}]
    optimizer._ipu_state_to_device(states)
    moved = {own: value.detach().clone() for own, value in weights.items()}
    for made in gradients[:2]:
        rule(optimizer, weights).step(moved, made, states[0])
    saved, at_break = optimizer.state_dict(), {own: value.clone() for own, value in moved.items()}
    for made in gradients[2:]:
        rule(optimizer, weights).step(moved, made, states[0])

    other = cls(weights.values(), **kwargs)
    other.load_state_dict(saved)
    fresh: List[Any] = [{}, {}]
    other._ipu_state_to_device(fresh)
    for made in gradients[2:]:
        rule(other, weights).step(at_break, made, fresh[1])

    for own, value in moved.items():
        check.identical(actual=at_break[own], expected=value, what=own)


def test_loaded_state_waits_for_the_device(weights: Dict[str, torch.nn.Parameter]) -> None:
    """State that was loaded before compiling is shown, and goes to the device when that is attached."""
    optimizer = optimizers.SGD(weights.values(), lr=0.1, momentum=0.9)
    optimizer.load_state_dict({**optimizer.state_dict(), "ipu_state": {"Accl1___a": torch.tensor([1.0, 2.0])}})
    assert list(optimizer.state_dict()["ipu_state"]) == ["Accl1___a"]
    states: List[Any] = [{}]
    optimizer._ipu_state_to_device(states)

    check.identical(actual=states[0]["a"]["velocity"], expected=torch.tensor([1.0, 2.0]), what="velocity")
    assert "b" not in states[0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda own: pickle.loads(pickle.dumps(own))], ids=["copy", "pickle"])
def test_a_copy_keeps_its_settings_and_not_the_device(copied: Any, weights: Dict[str, torch.nn.Parameter]) -> None:
    """Copies carry what was given, and the state as it was; the device stays with the original."""
    optimizer = optimizers.SGD(weights.values(), lr=0.1, momentum=0.9, loss_scaling=8.0)
    state = {"a": {"velocity": torch.ones(2), "step": torch.ones(())}}
    optimizer._ipu_state_to_device([state])
    other = copied(optimizer)

    assert other.loss_scaling == 8.0
    assert not other.variable_attrs.isConstant("loss_scaling")
    assert other.variable_attrs.isConstant("velocity_scaling")
    assert list(other.state_dict()["ipu_state"]) == ["Accl1___a"]
    assert other.state_dict()["ipu_param"] is None


def test_parameters_are_the_variables(weights: Dict[str, torch.nn.Parameter]) -> None:
    """What is sent to the program is what is not compiled into it."""
    read = optim_read.read(optimizers.Adam(weights.values(), lr=0.5, betas=(0.25, 0.75), loss_scaling=4.0), weights)

    assert optim_state.parameters(read) == {"lr___0": 0.5, "betas0___0": 0.25, "betas1___0": 0.75, "loss_scaling": 4.0}


def test_lamb_steps_on_the_host_as_on_the_device(weights: Dict[str, torch.nn.Parameter]) -> None:
    """Torch has no LAMB: the host's steps have the bits of the device's."""
    optimizer = optimizers.LAMB(weights.values(), lr=0.1, weight_decay=0.1)
    moved = {own: value.detach().clone() for own, value in weights.items()}
    state: Dict[str, Dict[str, torch.Tensor]] = {}
    for number in range(3):
        gradients = {own: torch.full_like(value, number - 0.7) for own, value in weights.items()}
        rule(optimizer, weights).step(moved, gradients, state)
        for own, value in weights.items():
            value.grad = gradients[own]
        optimizer.step()

    for own, value in weights.items():
        check.identical(actual=value.detach(), expected=moved[own], what=own)
