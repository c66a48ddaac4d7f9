"""Four groups of weights, each with settings of its own: every group follows the oracle's rule for its settings."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.rounding import mantissa, nearest, stochastic
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, from_runs
from ipu_conformance.oracle.training import optimizers
from ipu_conformance.run import optimizer

from ..on_device import as_model
from .test_optim_ipu import KEYS

SHAPES: Tuple[Tuple[int, ...], ...] = ((2, 3), (3,), (4, 1, 2), (5,))
"""The shape of the weight of each group: matrices and vectors, which no rule may tell apart."""
CALLS = 5
_random = np.random.Generator(np.random.Philox(1961))
SCALES = (1.0, 16.0, 1.0, 0.0)
"""What a weight begins with: the second has a large norm, the last one none, by which LAMB cannot scale its step."""
STARTS = [(scale * _random.standard_normal(shape)).astype(np.float32) for shape, scale in zip(SHAPES, SCALES)]
GRADIENTS = [[_random.standard_normal(shape).astype(np.float32) for shape in SHAPES] for _ in range(CALLS)]

_RATES = ({"lr": 0.1}, {"lr": 0.05}, {"lr": 0.2}, {"lr": 0.15})
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
    "LAMB": tuple({**each, "max_weight_norm": limit} for each, limit in zip(_ADAM, (0.5, 2.0, 64.0, 1.0))),
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
    weights = {}
    for group, (start, settings, rate) in enumerate(zip(STARTS, SETTINGS[name], _RATES)):
        given = {KEYS.get(key, key): value for key, value in settings.items() if key != "betas"}
        if "betas" in settings:
            given["beta1"], given["beta2"] = settings["betas"]
        rule = optimizer(name.lower(), **given, **({"centred": True} if whole.get("centered") else {}))
        weight = start.astype(np.float64)
        state = optimizers.begin(rule, weight)
        for call in range(CALLS):
            gradient = sign * GRADIENTS[call][group].astype(np.float64)
            weight, state = optimizers.step(rule, weight, gradient, state, rate["lr"], call + 1, rounding)
        weights[f"weights.{group}"] = weight
    return weights


def _rounded(name: str, whole: Mapping[str, Any], seed: int) -> Dict[str, np.ndarray]:
    form, random = mantissa("float32"), np.random.Generator(np.random.Philox(seed))
    return _expected(name, whole, lambda x: stochastic(np.asarray(x), form, random))


def _flat(arrays: List[np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays])


@pytest.mark.parametrize(
    ("package", "name", "common"),
    [
        ("torch", "SGD", ""),
        ("poptorch", "SGD", ""),
        ("poptorch", "SGD", "maximize"),
        ("torch", "Adam", ""),
        ("poptorch", "Adam", ""),
        ("torch", "AdamW", "maximize"),
        ("poptorch", "AdamW", ""),
        ("poptorch", "AdamW", "scaled"),
        ("poptorch", "LAMB", ""),
        ("torch", "RMSprop", "centered"),
        ("poptorch", "RMSprop", ""),
    ],
)
def test_every_group_follows_its_settings(poptorch: Any, torch: Any, package: str, name: str, common: str) -> None:
    """Five updates leave the weights of four groups where the oracle's rules with their settings do."""
    whole = WHOLE.get(common, {})
    weights = torch.nn.ParameterList(torch.nn.Parameter(torch.tensor(start)) for start in STARTS)

    def forward(model: Any, x: Any) -> Any:
        product = torch.cat([weight.flatten() for weight in model.weights]) * x[0]
        return poptorch.identity_loss(product.sum(), reduction="none")

    model = as_model(forward, weights=weights)
    groups = [
        {"params": [weight], **rate, **settings} for weight, rate, settings in zip(weights, _RATES, SETTINGS[name])
    ]
    made = getattr(torch.optim if package == "torch" else poptorch.optim, name)(groups, lr=0.1, **whole)
    trainer = poptorch.trainingModel(model, poptorch.Options(), made)
    for gradients in GRADIENTS:
        trainer(torch.tensor(_flat(gradients))[None])

    exact = _expected(name, whole, optimizers.exact)
    form = mantissa("float32")
    runs = [_rounded(name, whole, seed) for seed in range(LEAST_RUNS)]
    how = f"float32, {LEAST_RUNS} oracle runs with random rounding"
    tolerances = from_runs(exact, runs, _expected(name, whole, lambda x: nearest(x, form)), how)
    for key, value in model.state_dict().items():
        check.close(actual=value.numpy(), expected=exact[key], tolerance=tolerances[key], what=key, dtype=np.float32)
