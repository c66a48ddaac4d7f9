"""The update rules of the device against torch's optimizers, bit for bit, and against the oracle."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance import check, run
from ipu_conformance.emulator.poptorch.api import Options, optim
from ipu_conformance.emulator.poptorch.optim import update
from ipu_conformance.emulator.poptorch.options import enums
from ipu_conformance.oracle.tolerance import runs
from ipu_conformance.oracle.tolerance.rounding import mantissa, nearest, stochastic
from ipu_conformance.oracle.training import optimizers
from tests.unit.emulator.poptorch.optimizer_strategies import arguments, tensors
from tests.unit.examples import at_most

TORCH = {
    "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop,
}  # fmt: skip
FLOAT32 = mantissa("float32")


def stepped(rule: Any, weights: Mapping[str, torch.Tensor], gradients: List[Dict[str, torch.Tensor]]) -> Any:
    """Copies of the weights after the updates, and the state."""
    moved = {name: value.detach().clone() for name, value in weights.items()}
    state: Dict[str, Dict[str, torch.Tensor]] = {}
    with torch.no_grad():
        for own in gradients:
            rule.step(moved, own, state)
    return moved, state


@pytest.mark.parametrize("kind", TORCH)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
@at_most(20)
def test_updates_are_torchs_bit_for_bit(kind: str, data: st.DataObject, seed: int) -> None:
    """In float32 the device's updates have the bits of torch's, whatever the hyper-parameters of two groups."""
    weights, gradients = tensors(seed, 3)
    first, second = data.draw(arguments(kind)), data.draw(arguments(kind))
    groups = [{"params": [weights["first"]], **first}, {"params": [weights["second"], weights["third"]], **second}]
    optimizer = TORCH[kind](groups, **first)
    moved, _ = stepped(update.rule_for(optimizer, weights, None), weights, gradients)
    for own in gradients:
        for name, weight in weights.items():
            weight.grad = own[name].clone()
        optimizer.step()

    for name, weight in weights.items():
        check.identical(actual=moved[name], expected=weight.detach(), what=name)


ORACLE = {
    "sgd": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1),
            run.optimizer("sgd", momentum=0.9, dampening=0.3, weight_decay=0.1), 0.1),
    "nesterov": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
                 run.optimizer("sgd", momentum=0.9, nesterov=True), 0.1),
    "adam": (lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1), run.optimizer("adam", weight_decay=0.1), 0.01),
    "adamw": (lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1), run.optimizer("adamw", weight_decay=0.1), 0.01),
    "adamw-told-not-to-correct": (lambda p: optim.AdamW(p, lr=0.01, bias_correction=False), run.optimizer("adamw"),
                                  0.01),
    "rmsprop": (lambda p: optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
                run.optimizer("rmsprop", centred=True, momentum=0.5), 0.01),
    "rmsprop-tensorflow": (lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, eps=1e-3, use_tf_variant=True),
                           run.optimizer("rmsprop", momentum=0.5, epsilon=1e-3, epsilon_inside=True,
                                         rate_in_velocity=True), 0.01),
    "lamb": (lambda p: optim.LAMB(p, lr=0.01, eps=1e-6, weight_decay=0.1, max_weight_norm=1.0),
             run.optimizer("lamb", weight_decay=0.1, max_weight_norm=1.0), 0.01),
    "lamb-uncorrected": (lambda p: optim.LAMB(p, lr=0.01, eps=1e-6, weight_decay=0.0, bias_correction=False),
                         run.optimizer("lamb", weight_decay=0.0, bias_correction=False), 0.01),
}  # fmt: skip


@pytest.mark.parametrize("name", ORACLE)
def test_updates_are_the_oracles(name: str) -> None:
    """Five updates land where the oracle's do, within what rounding to float32 explains."""
    make, rule, rate = ORACLE[name]
    weights, gradients = tensors(7, 5)
    moved, _ = stepped(update.rule_for(make(list(weights.values())), weights, None), weights, gradients)

    for weight, value in weights.items():
        path = [own[weight].double().numpy() for own in gradients]
        start = value.detach().double().numpy()
        exact = _oracle(rule, start, path, rate, optimizers.exact)
        noise = [_oracle(rule, start, path, rate, _at_random(seed)) - exact for seed in range(runs.LEAST_RUNS)]
        fixed = _oracle(rule, start, path, rate, lambda x: nearest(x, FLOAT32)) - exact
        allowed = runs.estimate(exact, np.stack(noise), fixed, runs.FALSE_ALARM_RATE, "float32")
        check.close(actual=moved[weight], expected=exact, tolerance=allowed, what=weight)


def _at_random(seed: int) -> Any:
    random = np.random.Generator(np.random.Philox(seed))
    return lambda x: stochastic(x, FLOAT32, random)


def _oracle(rule: run.Rule, weight: Any, gradients: List[Any], rate: float, r: Any) -> Any:
    state = optimizers.begin(rule, weight)
    if rule["epsilon_inside"] if rule.name == "rmsprop" else False:
        state["square"] = np.ones_like(weight)  # TensorFlow's variant starts from squares of one
    for t, gradient in enumerate(gradients, 1):
        weight, state = optimizers.step(rule, weight, gradient, state, rate, t, r)
    return weight


def test_a_weight_in_no_group_stays() -> None:
    """The optimizer moves the weights that it holds and leaves the others alone."""
    weights, gradients = tensors(1, 2)
    optimizer = torch.optim.Adam([weights["second"]], lr=0.1)
    moved, state = stepped(update.rule_for(optimizer, weights, None), weights, gradients)

    check.identical(actual=moved["first"], expected=weights["first"].detach(), what="first")
    assert list(state) == ["second"]
    assert not torch.equal(moved["second"], weights["second"])


def test_gradients_are_only_read() -> None:
    """An update leaves the gradients as they were."""
    weights, gradients = tensors(2, 1)
    before = {name: value.clone() for name, value in gradients[0].items()}
    optimizer = torch.optim.SGD(weights.values(), lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True, maximize=True)
    stepped(update.rule_for(optimizer, weights, None), weights, gradients)

    for name, value in before.items():
        check.identical(actual=gradients[0][name], expected=value, what=name)


def test_plain_sgd_keeps_no_state() -> None:
    """Without momentum there is nothing to remember."""
    weights, gradients = tensors(3, 1)
    _, state = stepped(update.rule_for(torch.optim.SGD(weights.values(), lr=0.1), weights, None), weights,
                       gradients)  # fmt: skip

    assert state == {}


def test_momentum_that_comes_later_starts_from_the_dampened_gradient() -> None:
    """A velocity begins with zeros, so that the first is the dampened gradient, even after updates without momentum."""
    weights, gradients = tensors(4, 2)
    optimizer = torch.optim.SGD([weights["first"]], lr=0.1)
    moved = {"first": weights["first"].detach().clone()}
    state: Dict[str, Dict[str, torch.Tensor]] = {}
    for own, momentum in zip(gradients, (0.0, 0.9)):
        optimizer.param_groups[0].update(momentum=momentum, dampening=0.5)
        update.rule_for(optimizer, weights, None).step(moved, {"first": own["first"]}, state)

    check.identical(actual=state["first"]["velocity"], expected=gradients[1]["first"] / 2, what="velocity")


@pytest.mark.parametrize("slot", ["first", "second"])
def test_half_state_is_rounded_at_every_update(slot: str) -> None:
    """A moment held in float16 is the float32 one of the rounded moment before, rounded."""
    weights, gradients = tensors(5, 2)
    names = {"first": "first_order_momentum_accum_type", "second": "second_order_momentum_accum_type"}
    optimizer = optim.Adam(weights.values(), lr=0.1, **{names[slot]: torch.float16})
    _, state = stepped(update.rule_for(optimizer, weights, None), weights, gradients)
    held = state["second"][slot]
    g1, g2 = (own["second"] for own in gradients)
    if slot == "first":
        once = torch.zeros(4).lerp(g1, 1 - 0.9).half()
        expected = once.float().lerp(g2, 1 - 0.9).half()
    else:
        once = torch.zeros(4).addcmul(g1, g1, value=1 - 0.999).half()
        expected = once.float().mul(0.999).addcmul(g2, g2, value=1 - 0.999).half()

    check.identical(actual=held, expected=expected, what=slot)


def test_half_weights_are_updated_in_float32_and_rounded_once() -> None:
    """A float16 weight moves by the float32 update, rounded when it is stored."""
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float16))
    gradient = torch.tensor([0.3, 0.001, 700.0], dtype=torch.float16)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    moved, _ = stepped(update.rule_for(optimizer, {"w": weight}, None), {"w": weight}, [{"w": gradient}])

    expected = weight.detach().float().add(gradient.float(), alpha=-0.1).half()
    check.identical(actual=moved["w"], expected=expected, what="w")


@given(seed=st.integers(0, 999), limit=st.floats(0.01, 100.0))
@at_most(30)
def test_clipped_gradients_have_at_most_the_norm_asked_for(seed: int, limit: float) -> None:
    """Clipping shrinks all gradients by one factor, to the limit, and leaves smaller ones alone."""
    weights, (gradients,) = tensors(seed, 1)
    rule = update.rule_for(optim.SGD(weights.values(), lr=0.1, max_grad_norm=limit), weights, None)
    values = np.concatenate([value.double().numpy().ravel() for value in gradients.values()])
    norm = math.sqrt(float(np.sum(values**2)))
    # A norm of n float32 values errs by (n + 2) / 2 roundings: half of the squares' and sums', and the root's.
    relative = (values.size + 2) * 2.0**-24

    factor = rule.clip_factor(gradients)

    assert abs(factor - min(1.0, limit / norm)) <= relative * factor
    assert update.rule_for(torch.optim.SGD(weights.values(), lr=0.1), weights, None).clip_factor(gradients) == 1.0


@pytest.mark.parametrize(
    ("kwargs", "strategy", "running"),
    [
        ({}, None, False),
        ({"accum_type": torch.float16}, None, True),
        ({"accum_type": torch.float16, "use_combined_accum": True}, None, False),
        ({"accum_type": torch.float16}, "Post", False),
        ({}, "Running", True),
    ],
    ids=["float32", "float16", "combined", "post-set", "running-set"],
)
def test_the_mean_runs_for_half_accumulators_unless_set(kwargs: Dict[str, Any], strategy: Any, running: bool) -> None:
    """Float16 accumulators keep a running mean unless combined or the options say otherwise."""
    weight, options = torch.nn.Parameter(torch.zeros(1)), Options()
    if strategy:
        chosen = getattr(enums.MeanReductionStrategy, strategy)
        options.Training.setMeanAccumulationAndReplicationReductionStrategy(chosen)

    assert update.rule_for(optim.SGD([weight], lr=0.1, **kwargs), {"w": weight}, options).running_mean is running
