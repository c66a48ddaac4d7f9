"""Which attributes of poptorch.optim's optimizers are variables of the program, and which values are refused."""

from __future__ import annotations

from typing import Any, Dict, Mapping

import pytest

CLASSES = ("SGD", "Adam", "AdamW", "RMSprop", "LAMB")
VALUES: Dict[str, Any] = {
    "lr": 0.5, "momentum": 0.5, "dampening": 0.5, "weight_decay": 0.5, "betas": (0.5, 0.5), "eps": 0.5, "alpha": 0.5,
    "loss_scaling": 2.0, "velocity_scaling": 2.0, "max_weight_norm": 2.0,
}  # fmt: skip
VARIABLE: Mapping[str, Any] = {
    "SGD": ("lr", "momentum", "dampening", "weight_decay", "loss_scaling", "velocity_scaling"),
    "Adam": ("lr", "betas", "eps", "weight_decay", "loss_scaling"),
    "AdamW": ("lr", "betas", "eps", "weight_decay", "loss_scaling"),
    "RMSprop": ("lr", "alpha", "eps", "weight_decay", "momentum", "loss_scaling"),
    "LAMB": ("lr", "betas", "eps", "weight_decay", "loss_scaling", "max_weight_norm"),
}
PAIRS = [(name, attribute) for name, attributes in VARIABLE.items() for attribute in attributes]


def optimizer(poptorch: Any, name: str, **arguments: Any) -> Any:
    """An optimizer for one weight."""
    import torch

    if name == "SGD":
        arguments.setdefault("lr", 0.1)
    return getattr(poptorch.optim, name)([torch.nn.Parameter(torch.ones(2))], **arguments)


@pytest.mark.parametrize(("name", "attribute"), PAIRS, ids=[f"{name}-{attribute}" for name, attribute in PAIRS])
def test_what_is_passed_is_variable(poptorch: Any, name: str, attribute: str) -> None:
    """An argument that is passed is a variable until it is marked as constant; one that is left out is a constant."""
    passed = optimizer(poptorch, name, **{attribute: VALUES[attribute]})
    assert not passed.variable_attrs.isConstant(attribute)
    if (name, attribute) != ("SGD", "lr"):
        assert optimizer(poptorch, name).variable_attrs.isConstant(attribute)

    passed.variable_attrs.markAsConstant(attribute)

    assert passed.variable_attrs.isConstant(attribute)


@pytest.mark.parametrize("name", CLASSES)
def test_a_default_that_is_passed_is_variable(poptorch: Any, name: str) -> None:
    """It counts that a value is passed, not that it differs from the default."""
    assert not optimizer(poptorch, name, loss_scaling=1.0).variable_attrs.isConstant("loss_scaling")


@pytest.mark.parametrize("name", CLASSES)
def test_what_was_marked_stays_marked(poptorch: Any, name: str) -> None:
    """Marking as variable and as constant undo each other and touch no other attribute."""
    marks = optimizer(poptorch, name, lr=0.1).variable_attrs
    marks.markAsVariable("weight_decay")
    assert (marks.isConstant("weight_decay"), marks.isConstant("lr")) == (False, False)

    marks.markAsConstant("weight_decay")

    assert (marks.isConstant("weight_decay"), marks.isConstant("lr")) == (True, False)


@pytest.mark.parametrize("mark", ["markAsVariable", "markAsConstant"])
@pytest.mark.parametrize("name", CLASSES)
def test_unknown_attributes_cannot_be_marked(poptorch: Any, name: str, mark: str) -> None:
    """Marking an attribute that the optimizer does not have raises an AssertionError that names it."""
    with pytest.raises(AssertionError, match="colour"):
        getattr(optimizer(poptorch, name).variable_attrs, mark)("colour")


ACCUMULATORS: Mapping[str, Any] = {
    "SGD": ("accum_type", "velocity_accum_type"),
    **dict.fromkeys(
        ("Adam", "AdamW", "RMSprop", "LAMB"),
        ("accum_type", "first_order_momentum_accum_type", "second_order_momentum_accum_type"),
    ),
}


@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize(
    ("name", "attribute"), [(name, each) for name, attributes in ACCUMULATORS.items() for each in attributes]
)
def test_accumulators_are_half_or_single(poptorch: Any, torch: Any, name: str, attribute: str, kind: str) -> None:
    """Accumulators are held in float16 or float32; any other type raises an AssertionError."""
    assert getattr(optimizer(poptorch, name, **{attribute: getattr(torch, kind)}), attribute) == getattr(torch, kind)
    with pytest.raises(AssertionError, match=r"float32.*float16|float16.*float32"):
        optimizer(poptorch, name, **{attribute: torch.float64})


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("SGD", "lr", -0.1),
        ("SGD", "momentum", -0.1),
        ("SGD", "weight_decay", -0.1),
        ("Adam", "betas", (1.0, 0.9)),
        ("AdamW", "eps", -1.0),
        ("RMSprop", "alpha", -0.5),
        ("LAMB", "betas", (0.9, 1.0)),
        ("LAMB", "lr", -0.1),
    ],
    ids=lambda value: str(value).replace(", ", "-"),
)
def test_impossible_values_are_refused(poptorch: Any, name: str, attribute: str, value: Any) -> None:
    """Values that make no sense raise a ValueError on construction, as torch's do."""
    with pytest.raises(ValueError, match=r".+"):
        optimizer(poptorch, name, **{attribute: value})


def test_nesterov_needs_momentum(poptorch: Any) -> None:
    """Nesterov's momentum without momentum raises a ValueError."""
    with pytest.raises(ValueError, match=r"[Nn]esterov"):
        optimizer(poptorch, "SGD", nesterov=True)


@pytest.mark.parametrize("name", CLASSES)
def test_extra_attributes_can_be_read_and_set(poptorch: Any, name: str) -> None:
    """What PopTorch adds to an optimizer is an attribute of it."""
    scaled = optimizer(poptorch, name, loss_scaling=4.0)
    assert scaled.loss_scaling == 4.0

    scaled.loss_scaling = 8.0

    assert scaled.loss_scaling == 8.0
