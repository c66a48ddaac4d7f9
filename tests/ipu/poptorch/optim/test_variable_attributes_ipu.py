"""Which attributes of poptorch.optim's optimizers are variables of the program, and which values are refused."""

from __future__ import annotations

from typing import Any, Dict, Mapping

import pytest

from ipu_conformance import check

from ..lazily import poptorch, torch

CLASSES = ("SGD", "Adam", "AdamW", "RMSprop", "LAMB")
VALUES: Dict[str, Any] = {
    "lr": 0.5, "momentum": 0.5, "dampening": 0.5, "weight_decay": 0.5, "betas": (0.5, 0.5), "eps": 0.5, "alpha": 0.5,
    "loss_scaling": 1.0, "velocity_scaling": 2.0, "max_weight_norm": 2.0,
}  # fmt: skip
"""Values to pass; that of loss_scaling is the default, for it counts that a value is passed, not that it differs."""
VARIABLE: Mapping[str, Any] = {
    "SGD": ("lr", "momentum", "dampening", "weight_decay", "loss_scaling", "velocity_scaling"),
    "Adam": ("lr", "betas", "eps", "weight_decay", "loss_scaling"),
    "AdamW": ("lr", "betas", "eps", "weight_decay", "loss_scaling"),
    "RMSprop": ("lr", "alpha", "eps", "weight_decay", "momentum", "loss_scaling"),
    "LAMB": ("lr", "betas", "eps", "weight_decay", "loss_scaling", "max_weight_norm"),
}
PAIRS = [(name, attribute) for name, attributes in VARIABLE.items() for attribute in attributes]


def optimizer(name: str, **arguments: Any) -> Any:
    """An optimizer for one weight."""
    if name == "SGD":
        arguments.setdefault("lr", 0.1)
    return getattr(poptorch.optim, name)([torch.nn.Parameter(torch.ones(2))], **arguments)


def assert_constant(optimizer: Any, **expected: bool) -> None:
    """Each of these attributes is a constant of the program, or a variable."""
    __tracebackhide__ = True
    actual = {attribute: optimizer.variable_attrs.isConstant(attribute) for attribute in expected}
    check.equal(actual=actual, expected=expected, what="isConstant() by attribute")


@pytest.mark.parametrize(("name", "attribute"), PAIRS, ids=[f"{name}-{attribute}" for name, attribute in PAIRS])
def test_what_is_passed_is_variable(name: str, attribute: str) -> None:
    """An argument that is passed is a variable until it is marked as constant; one that is left out is a constant."""
    passed = optimizer(name, **{attribute: VALUES[attribute]})
    assert_constant(passed, **{attribute: False})
    if (name, attribute) != ("SGD", "lr"):
        assert_constant(optimizer(name), **{attribute: True})

    passed.variable_attrs.markAsConstant(attribute)

    assert_constant(passed, **{attribute: True})


@pytest.mark.parametrize("name", CLASSES)
def test_what_was_marked_stays_marked(name: str) -> None:
    """Marking as variable and as constant undo each other, however often, and touch no other attribute."""
    marked = optimizer(name, lr=0.1)
    for attribute in ("weight_decay", "weight_decay", "lr"):
        marked.variable_attrs.markAsVariable(attribute)
    assert_constant(marked, lr=False, weight_decay=False, loss_scaling=True)

    for attribute in ("weight_decay", "loss_scaling"):
        marked.variable_attrs.markAsConstant(attribute)

    assert_constant(marked, lr=False, weight_decay=True, loss_scaling=True)


@pytest.mark.parametrize("mark", ["markAsVariable", "markAsConstant"])
@pytest.mark.parametrize("name", CLASSES)
def test_unknown_attributes_cannot_be_marked(name: str, mark: str) -> None:
    """Marking an attribute that the optimizer does not have raises an AssertionError that names it."""
    with check.raises(AssertionError, match="colour", what=f"{mark} of an attribute that {name} does not have"):
        getattr(optimizer(name).variable_attrs, mark)("colour")


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
def test_accumulators_are_half_or_single(name: str, attribute: str, kind: str) -> None:
    """Accumulators are held in float16 or float32; any other type raises an AssertionError."""
    expected = getattr(torch, kind)
    actual = getattr(optimizer(name, **{attribute: expected}), attribute)
    check.equal(actual=actual, expected=expected, what=f"{name}.{attribute}")
    with check.raises(AssertionError, match=r"float32.*float16|float16.*float32", what=f"{attribute} of float64"):
        optimizer(name, **{attribute: torch.float64})


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("SGD", "lr", -0.1),
        ("SGD", "momentum", -0.1),
        ("SGD", "weight_decay", -0.1),
        ("SGD", "nesterov", True),  # without momentum
        ("Adam", "betas", (1.0, 0.9)),
        ("AdamW", "eps", -1.0),
        ("RMSprop", "alpha", -0.5),
        ("LAMB", "betas", (0.9, 1.0)),
        ("LAMB", "lr", -0.1),
    ],
    ids=lambda value: str(value).replace(", ", "-"),
)
def test_impossible_values_are_refused(name: str, attribute: str, value: Any) -> None:
    """Values that make no sense raise a ValueError on construction, as torch's do."""
    match = "[Nn]esterov" if attribute == "nesterov" else ".+"
    with check.raises(ValueError, match=match, what=f"{name} with {attribute}={value}"):
        optimizer(name, **{attribute: value})


@pytest.mark.parametrize(
    ("name", "attribute", "arguments"),
    [("SGD", "velocity_scaling", {"use_combined_accum": True}), ("LAMB", "max_weight_norm", {})],
)
def test_an_added_attribute_can_differ_between_groups(name: str, attribute: str, arguments: Mapping[str, Any]) -> None:
    """What PopTorch adds for groups is in each of them: its own value, else that of the optimizer."""
    groups = [{"params": [torch.nn.Parameter(torch.ones(2))], **each} for each in ({}, {attribute: 4.0}, {})]
    grouped = getattr(poptorch.optim, name)(groups, lr=0.1, **{attribute: 2.0}, **arguments)

    actual = [group[attribute] for group in grouped.param_groups]
    check.equal(actual=actual, expected=[2.0, 4.0, 2.0], what=f"{attribute} by group")
    check.equal(actual=grouped.defaults[attribute], expected=2.0, what=f"{attribute} of a new group")


@pytest.mark.parametrize("name", CLASSES)
def test_extra_attributes_can_be_read_and_set(name: str) -> None:
    """What PopTorch adds to an optimizer is an attribute of it."""
    scaled = optimizer(name, loss_scaling=4.0)
    passed = scaled.loss_scaling
    scaled.loss_scaling = 8.0

    check.equal(actual=(passed, scaled.loss_scaling), expected=(4.0, 8.0), what="loss_scaling as passed and as set")
