"""The class swap: who hears of a touch, what stays the same, and what leaves no trace."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any, Callable, Dict

import pytest
import torch

from ipu_conformance.emulator.poptorch.run import wrapping


class Owner:
    """Counts the touches that it hears of."""

    def __init__(self) -> None:
        self.touches = 0

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Count."""
        self.touches += 1
        return True


def wrapped() -> Any:
    """A wrapped model with two parameters and three buffers, and its owner."""
    model, owner = torch.nn.Sequential(torch.nn.BatchNorm1d(2)), Owner()
    wrapping.wrap(model, owner)
    return model, owner


TOUCHES: Dict[str, Any] = {
    "data": lambda weight: weight.data,
    "grad": lambda weight: weight.grad,
    "shape": lambda weight: weight.shape,
    "function": lambda weight: torch.add(weight, 1),
    "in a list": lambda weight: torch.stack([weight, weight]),
    "method": lambda weight: weight.mean(),
    "operator": lambda weight: weight * 2,
    "comparison": lambda weight: weight == 1,
    "index": lambda weight: weight[0],
    "len": len,
    "assignment": lambda weight: setattr(weight, "note", 1),
    "repr": repr,
    "str": str,
    "pickle": pickle.dumps,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("kind", ["weight", "running_mean"])
@pytest.mark.parametrize("name", sorted(TOUCHES))
def test_the_owner_hears_of_a_touch(name: str, kind: str) -> None:
    """Every way to the values of a parameter or buffer asks the owner first."""
    model, owner = wrapped()
    weight = getattr(model[0], kind)
    before = owner.touches

    TOUCHES[name](weight)

    assert owner.touches > before


def test_reading_inside_a_transfer_is_no_touch() -> None:
    """While weights are moved they can be read as they are."""
    model, owner = wrapped()
    weight = model[0].weight
    before = owner.touches

    with wrapping.untouched():
        weight.clone()

    assert owner.touches == before


def test_a_touch_inside_a_touch_is_one() -> None:
    """An owner that reads weights while it copies them is not asked again."""
    model = torch.nn.Linear(1, 1)

    class Reads(Owner):
        def copyWeightsToHostIfNeeded(self) -> bool:
            model.weight.sum()
            return super().copyWeightsToHostIfNeeded()

    owner = Reads()
    wrapping.wrap(model, owner)

    model.state_dict()

    assert owner.touches > 0


@pytest.mark.parametrize("make", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_are_not_wrapped(make: Callable[[Any], Any]) -> None:
    """A copy of a wrapped model is a plain model with the same values."""
    model, _ = wrapped()

    made = make(model)

    assert (type(made), type(made[0].weight), type(made[0].running_mean)) == (
        torch.nn.Sequential,
        torch.nn.Parameter,
        torch.Tensor,
    )
    assert torch.equal(made[0].weight, model[0].weight)
    assert made[0].weight.requires_grad


def test_results_are_plain_tensors() -> None:
    """What is computed from a wrapped weight is no weight."""
    model, _ = wrapped()

    weight, buffer = model[0].weight, model[0].running_mean
    assert {type(weight + 1), type(weight.data), type(buffer.clone())} == {torch.Tensor}


def test_wrapping_keeps_identity_and_kind() -> None:
    """A wrapped weight is the same object, a leaf and a Parameter; the model is an instance of its class."""
    model = torch.nn.Linear(2, 2)
    weight = model.weight
    owner = Owner()

    wrapping.wrap(model, owner)

    assert model.weight is weight
    assert isinstance(weight, torch.nn.Parameter)
    assert isinstance(model, torch.nn.Linear)
    assert weight.is_leaf


def test_unwrapping_restores_every_class() -> None:
    """Afterwards nothing tells that the model was wrapped, and the owner hears no more."""
    model, owner = wrapped()

    wrapping.unwrap(model)
    heard = owner.touches
    model.state_dict()

    assert owner.touches == heard
    assert not wrapping.is_wrapped(model)
    assert type(model[0].weight) is torch.nn.Parameter
    assert "_poptorch" not in "".join([*model.__dict__, *model[0].weight.__dict__])


def test_gradients_flow_through_wrapped_parameters() -> None:
    """A wrapped model can be trained on the host."""
    model, owner = torch.nn.Linear(2, 1), Owner()
    wrapping.wrap(model, owner)

    model(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()

    assert torch.equal(model.weight.grad, torch.ones(1, 2))


def test_a_model_does_not_keep_its_owner_alive() -> None:
    """The owner goes when nobody else holds it; the model then knows no trainer."""
    model, owner = wrapped()
    reference = weakref.ref(owner)

    del owner
    gc.collect()

    assert reference() is None
    assert wrapping.trainer_of(model) is None
    model.state_dict()
