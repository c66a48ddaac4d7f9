"""Four groups of weights, each with settings of its own: every group follows the oracle's rule for its settings."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Mapping, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.rounding import mantissa, nearest, stochastic
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, from_runs
from ipu_conformance.oracle.training import optimizers

from ..lazily import poptorch, torch
from ..on_device import as_model
from .regression import optimizer_class, rule

SHAPES: Tuple[Tuple[int, ...], ...] = ((2, 3), (3,), (4, 1, 2), (5,))
"""The shape of the weight of each group: matrices and vectors, which no rule may tell apart."""
CALLS = 5
_random = np.random.Generator(np.random.Philox(1961))
SCALES = (1.0, 16.0, 1.0, 0.0)
"""What a weight begins with: the second has a large norm, the last one none, by which LAMB cannot scale its step."""
STARTS = [(scale * _random.standard_normal(shape)).astype(np.float32) for shape, scale in zip(SHAPES, SCALES)]
GRADIENTS = [[_random.standard_normal(shape).astype(np.float32) for shape in SHAPES] for _ in range(CALLS)]

RATES = (0.1, 0.05, 0.2, 0.15)
"""The rate of each group; the first is that of the optimizer."""
_ADAM = (
    {"betas": (0.5, 0.75), "eps": 0.01, "weight_decay": 0.1},
    {"betas": (0.9, 0.5), "eps": 0.1, "weight_decay": 0.3},
    {"betas": (0.25, 0.9), "eps": 0.03, "weight_decay": 0.0},
    {"betas": (0.75, 0.25), "eps": 0.3, "weight_decay": 0.2},
)
SETTINGS: Mapping[str, Tuple[Mapping[str, Any], ...]] = {
    "SGD": (
        {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1},
        {"momentum": 0.5, "dampening": 0.25, "weight_decay": 0.3},
        {"momentum": 0.7, "dampening": 0.5, "weight_decay": 0.0},
        {"momentum": 0.3, "dampening": 0.75, "weight_decay": 0.2},
    ),
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "LAMB": tuple({**each, "max_weight_norm": limit} for each, limit in zip(_ADAM, (0.5, 64.0, 2.0, 1.0))),
    "RMSprop": (
        {"alpha": 0.9, "eps": 0.01, "momentum": 0.5, "weight_decay": 0.1},
        {"alpha": 0.5, "eps": 0.1, "momentum": 0.25, "weight_decay": 0.3},
        {"alpha": 0.75, "eps": 0.03, "momentum": 0.75, "weight_decay": 0.0},
        {"alpha": 0.25, "eps": 0.3, "momentum": 0.9, "weight_decay": 0.2},
    ),
}
"""The settings of each group, beside its learning rate."""
WHOLE: Mapping[str, Mapping[str, Any]] = {
    "centered": {"centered": True},
    "maximize": {"maximize": True},
    "scaled": {"loss_scaling": 8.0},
}
"""What all groups have in common."""


def _expected(name: str, whole: Mapping[str, Any], rounding: Any) -> Dict[str, np.ndarray]:
    """The weights after all calls, by the oracle."""
    sign = -1.0 if whole.get("maximize") else 1.0
    shared = {key: value for key, value in whole.items() if key == "centered"}
    weights = {}
    for group, (start, settings, rate) in enumerate(zip(STARTS, SETTINGS[name], RATES)):
        update, weight = rule(name, {**settings, **shared}), start.astype(np.float64)
        state = optimizers.begin(update, weight)
        for call in range(CALLS):
            gradient = sign * GRADIENTS[call][group].astype(np.float64)
            weight, state = optimizers.step(update, weight, gradient, state, rate, call + 1, rounding)
        weights[f"weights.{group}"] = weight
    return weights


CASES = [
    *itertools.product(("torch", "poptorch"), ("SGD", "Adam", "AdamW", "RMSprop"), ("", "maximize")),
    ("torch", "RMSprop", "centered"),
    ("poptorch", "SGD", "scaled"),
    ("poptorch", "AdamW", "scaled"),
    ("poptorch", "LAMB", ""),
]


@pytest.mark.parametrize(("package", "name", "common"), CASES)
def test_every_group_follows_its_settings(package: str, name: str, common: str) -> None:
    """Five updates leave the weights of four groups where the oracle's rules with their settings do."""
    whole = WHOLE.get(common, {})
    weights = torch.nn.ParameterList(torch.nn.Parameter(torch.tensor(start)) for start in STARTS)

    def forward(model: Any, x: Any) -> Any:
        product = torch.cat([weight.flatten() for weight in model.weights]) * x[0]
        return poptorch.identity_loss(product.sum(), reduction="none")

    model = as_model(forward, weights=weights)
    groups: Any = [{"params": [weight], **settings} for weight, settings in zip(weights, SETTINGS[name])]
    for group, rate in zip(groups[1:], RATES[1:]):
        group["lr"] = rate
    optimizer = optimizer_class(name, package)(groups, lr=RATES[0], **whole)
    trainer = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    for gradients in GRADIENTS:
        trainer(torch.tensor(np.concatenate([gradient.ravel() for gradient in gradients]))[None])

    exact = _expected(name, whole, optimizers.exact)
    form = mantissa("float32")
    random = [np.random.Generator(np.random.Philox(seed)) for seed in range(LEAST_RUNS)]
    runs = [_expected(name, whole, lambda x, r=each: stochastic(np.asarray(x), form, r)) for each in random]
    how = f"float32, {LEAST_RUNS} oracle runs with random rounding"
    tolerances = from_runs(exact, runs, _expected(name, whole, lambda x: nearest(x, form)), how)
    for key, value in model.state_dict().items():
        check.close(actual=value.numpy(), expected=exact[key], tolerance=tolerances[key], what=key, dtype=np.float32)
