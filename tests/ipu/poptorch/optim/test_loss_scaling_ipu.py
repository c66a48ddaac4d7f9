"""Loss scaling cancels out, saves small gradients in half precision, and half accumulators really round."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.regression import WEIGHT
from ipu_conformance.oracle.tolerance.ops import Tolerance

from ..lazily import poptorch, torch
from ..on_device import as_model
from .regression import Make, Problem, assert_same_weights, make, trained

OPTIMIZERS: Mapping[str, Dict[str, Any]] = {
    "SGD": {"momentum": 0.9},
    "Adam": {"eps": 0.1},
    "AdamW": {"eps": 0.1},
    "RMSprop": {"eps": 0.1, "momentum": 0.5},
    "LAMB": {"eps": 0.1},
}
"""A large epsilon, without which an adaptive optimizer would not notice a scale that is left in its gradients."""


@pytest.mark.parametrize("scale", [0.25, 2.0, 1024.0])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_powers_of_two_cancel_exactly(name: str, scale: float) -> None:
    """In float32 a scale that is a power of two leaves the bits of the weights as they are without it."""
    plain = trained(make(name, **OPTIMIZERS[name]), accumulation=3)
    scaled = trained(make(name, loss_scaling=scale, **OPTIMIZERS[name]), accumulation=3)

    assert_same_weights(scaled, plain, because="a power of two only moves exponents")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_loss_comes_back_without_the_scale(name: str) -> None:
    """The scale is the device's own business: the loss that is returned has the bits of one without it."""
    plain, scaled = (Problem(make(name, loss_scaling=scale, **OPTIMIZERS[name])).call(2)[1] for scale in (1.0, 512.0))

    check.identical(actual=scaled, expected=plain, what="the loss")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_scale_can_change_between_calls(name: str) -> None:
    """A scale that was passed is a variable: a new one reaches the device through setOptimizer and cancels too."""
    problem, plain = (
        Problem(
            make(name, **{**settings, **OPTIMIZERS[name]}),
            options=poptorch.Options().anchorTensor("gradient", f"Gradient___{WEIGHT}"),
        )
        for settings in ({"loss_scaling": 2.0}, {})
    )
    problem.call()
    problem.optimizer.loss_scaling = 64.0
    problem.executor.setOptimizer(problem.optimizer)
    problem.call(2)
    plain.call(3)

    scaled, gradient = (each.executor.getAnchoredTensor("gradient") for each in (problem, plain))
    check.identical(actual=scaled, expected=gradient * 64, what="the gradient with the new scale")
    assert_same_weights(problem.weights(), plain.weights())


def _weighted(make: Make, inputs: Sequence[float]) -> Any:
    """The weight, first 0, after one update from the mean of the inputs, which are the gradients; and the optimizer."""

    def forward(model: Any, x: Any) -> Any:
        return poptorch.identity_loss(model.weight * x, reduction="sum")

    model = as_model(forward, weight=torch.nn.Parameter(torch.zeros(1)))
    optimizer = make(model)
    options = poptorch.Options()
    options.Training.gradientAccumulation(len(inputs))
    poptorch.trainingModel(model, options, optimizer)(torch.tensor(inputs).reshape(-1, 1))
    return model.weight.detach().numpy().copy(), optimizer


@pytest.mark.parametrize(
    ("gradients", "settings", "expected"),
    [
        pytest.param([1024.0, 0.25], {}, -512.0, id="too-fine"),
        pytest.param([1024.0, 0.25], {"accum_type": "float32"}, -512.125, id="too-fine-in-float32"),
        pytest.param([0.5] * 2, {"use_combined_accum": True}, -0.5, id="two"),
        pytest.param([0.5] * 3, {"use_combined_accum": True}, -0.5, id="three"),
        pytest.param([2.0**-26] * 2, {"loss_scaling": 1.0}, 0.0, id="tiny"),
        pytest.param([2.0**-26] * 2, {"loss_scaling": 2.0**15}, -(2.0**-26), id="tiny-scaled"),
    ],
)
def test_half_accumulators_keep_what_they_can_hold(gradients: Any, settings: Any, expected: float) -> None:
    """Those of float16 round 512.125 to 512, hold means of equal powers of two, and lose 2^-26 without a scale."""
    kind = getattr(torch, settings.get("accum_type", "float16"))
    weight, _ = _weighted(make("SGD", **{**settings, "lr": 1.0, "accum_type": kind}), gradients)

    check.identical(actual=weight, expected=np.array([expected], np.float32), what="the weight")


def test_a_running_mean_does_not_overflow() -> None:
    """Three gradients of 40000 sum beyond float16; their running mean does not, and is 40000."""
    weight, _ = _weighted(make("SGD", lr=1.0, accum_type=torch.float16), [40000.0] * 3)
    # Every step of the running mean multiplies, divides and adds in float16, where the spacing at 40000 is 32.
    rounded = Tolerance(np.array(2 * 3 * 16.0), "three roundings of float16 in each of two steps", 0.0)

    check.close(actual=weight, expected=np.array([-40000.0]), tolerance=rounded, what="the weight")


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("SGD", "velocity_accum_type"),
        ("Adam", "first_order_momentum_accum_type"),
        ("Adam", "second_order_momentum_accum_type"),
        ("AdamW", "first_order_momentum_accum_type"),
        ("AdamW", "second_order_momentum_accum_type"),
        ("LAMB", "second_order_momentum_accum_type"),
        ("RMSprop", "second_order_momentum_accum_type"),
    ],
)
def test_half_state_is_held_in_half(name: str, attribute: str) -> None:
    """A state of type float16 holds the float16 value nearest to what a float32 one holds."""

    def states(kind: Any) -> Any:
        settings = {"lr": 1.0, attribute: kind, **OPTIMIZERS[name]}
        _, optimizer = _weighted(make(name, **settings), [1.0 + 2.0**-12])
        return {key: value.float().numpy() for key, value in optimizer.state_dict()["ipu_state"].items()}

    half, single = states(torch.float16), states(torch.float32)
    changed = [key for key in single if (half[key] != single[key]).any()]

    check.equal(actual=len(changed), expected=1, what=f"the number of states that {attribute} changes")
    expected = single[changed[0]].astype(np.float16).astype(np.float32)
    check.identical(actual=half[changed[0]], expected=expected, what=changed[0], because="the nearest float16 value")
