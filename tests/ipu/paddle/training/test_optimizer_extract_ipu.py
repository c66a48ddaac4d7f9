"""Optimizers in the compiler: folded into one op, their state aligned, and the forward pass left."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..compiling import Compiling
from ..device import held, started

EXTRACT, ALIGN, FORWARD = "optimizer_extract_pass", "optimizer_state_align_pass", "forward_graph_extract_pass"
FOLDED = "popart_optimizer"

Make = Callable[[Any, Any], Any]


def single(value: float) -> float:
    """The number as Paddle's ops hold it, in 32 bits."""
    return float(np.float32(value))


def trained(paddle: Any, make: Make) -> Compiling:
    """A layer with a loss that is not linear, trained by the optimizer that ``make`` makes."""
    hidden = paddle.static.nn.fc(paddle.static.data("x", [None, 3], "float32"), 2)
    loss = paddle.mean(paddle.tanh(hidden))
    make(paddle.optimizer, paddle).minimize(loss)
    started(paddle)
    return Compiling(paddle, ["x"], [loss.name])


def update(compiling: Compiling, name: str) -> Any:
    """The first op of the main program that updates by this rule."""
    return next(op for op in compiling.main.global_block().ops if op.type == name)


L2, DECOUPLED = {"weight_decay_mode": "l2_regularization"}, {"weight_decay_mode": "decay"}
MOMENTS = {"type": "adam", "raw_type": "adam", "adam_mode": "adam", "beta1": 0.8, "beta2": 0.95, "eps": 1e-5, **L2}
SQUARES = {"type": "adaptive", "raw_type": "rmsprop", "alpha": 0.85, "eps": 1e-5, "momentum": 0.5, **L2}
DELTA = {**SQUARES, "raw_type": "adadelta", "adaptive_mode": "adadelta", "momentum": 0.0}
GRAD = {**SQUARES, "raw_type": "adagrad", "adaptive_mode": "adagrad", "alpha": 0.99, "momentum": 0.0}
OPTIMIZERS: Dict[str, Tuple[Make, Dict[str, Any]]] = {
    "sgd": (lambda o, _: o.SGD(0.1), {"type": "sgd", "raw_type": "sgd", "momentum": 0.0}),
    "momentum": (
        lambda o, _: o.Momentum(0.1, 0.75, weight_decay=0.125),
        {"type": "sgd", "raw_type": "momentum", "momentum": 0.75, "weight_decay": 0.125},
    ),
    "adam": (lambda o, _: o.Adam(0.1, 0.8, 0.95, 1e-5), {**MOMENTS, "clip_norm": None}),
    "adamw": (
        lambda o, _: o.AdamW(0.1, 0.8, 0.95, 1e-5, weight_decay=0.375), {**MOMENTS, "raw_type": "adamw", **DECOUPLED},
    ),
    "adamax": (
        lambda o, _: o.Adamax(0.1, 0.8, 0.95, 1e-5), {**MOMENTS, "raw_type": "adamax", "adam_mode": "adamax"},
    ),
    "lamb": (
        lambda o, _: o.Lamb(0.1, 0.4375, 0.8, 0.95, 1e-5),
        {**MOMENTS, "raw_type": "lamb", "adam_mode": "lamb", **DECOUPLED},
    ),
    "adadelta": (lambda o, _: o.Adadelta(0.1, 1e-5, 0.85), {**DELTA, "lr_var": None}),
    "adagrad": (lambda o, _: o.Adagrad(0.1, 1e-5), GRAD),
    "rmsprop": (
        lambda o, _: o.RMSProp(0.1, 0.85, 1e-5, 0.5), {**SQUARES, "adaptive_mode": "rmsprop", "lr_var": None},
    ),
    "centred": (
        lambda o, _: o.RMSProp(0.1, 0.85, 1e-5, 0.5, True), {**SQUARES, "adaptive_mode": "centered_rmsprop"},
    ),
    "sgd-clipped": (lambda o, paddle: o.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.75)), {"clip_norm": 1.75}),
    "adam-clipped": (
        lambda o, paddle: o.Adam(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.75)), {"clip_norm": 1.75},
    ),
}  # fmt: skip
"""Optimizers, and what the folded op holds of each; None where it holds nothing."""
FOLDS = [
    *(pytest.param(*row, id=name) for name, row in OPTIMIZERS.items()),
    # AdamW's decay is folded as 0, and so is one whose ops come before the update's; a device may keep them.
    *(
        pytest.param(
            lambda o, _, kind=kind: getattr(o, kind)(0.1, weight_decay=0.25),
            {"weight_decay": 0.0}, id=f"{kind}-decay", marks=pytest.mark.emulator,
        )
        for kind in ("SGD", "Adam", "AdamW")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "settings"), FOLDS)
def test_the_rule_of_an_optimizer_is_folded(static: Any, paddle: Any, make: Make, settings: Dict[str, Any]) -> None:
    """One op holds the type of PopART's optimizer, its modes, and its numbers as given; no other op is touched yet."""
    compiling = trained(paddle, make)
    types = [op.type for op in compiling.main.global_block().ops]
    attributes = compiling.upto(EXTRACT).attributes(FOLDED)

    expected = {key: single(value) if isinstance(value, float) else value for key, value in settings.items()}
    check.equal(actual=sorted(compiling.types), expected=sorted([*types, FOLDED]), what="the sorted ops of the program")
    check.equal(actual={key: attributes.get(key) for key in expected}, expected=expected, what="the folded settings")


def test_lamb_s_decay_is_folded_by_parameter(static: Any, paddle: Any) -> None:
    """The folded op names every parameter with its decay; an exempt one has none."""
    exempting = {"exclude_from_weight_decay_fn": lambda weight: weight.name.endswith("b_0")}
    compiling = trained(paddle, lambda o, _: o.Lamb(0.1, 0.4375, **exempting))
    found = compiling.upto(EXTRACT).attributes(FOLDED)

    weights = [weight.name for weight in compiling.main.all_parameters()]
    expected = {name: 0.0 if name.endswith("b_0") else 0.4375 for name in weights}
    decays = dict(zip(found["weight_decay_vars"], found["weight_decay_values"]))
    check.equal(actual=decays, expected=expected, what="the folded decays")


def test_the_loss_and_the_rate_are_found(static: Any, paddle: Any) -> None:
    """The folded op names the variables of loss and learning rate."""
    compiling = trained(paddle, OPTIMIZERS["sgd"][0])
    rate = update(compiling, "sgd").input("LearningRate")[0]

    found = compiling.upto(EXTRACT).attributes(FOLDED)

    check.equal(actual=found["loss_var"], expected=compiling.fetches[0], what="the name of the loss")
    check.equal(actual=found["lr_var"], expected=rate, what="the name of the rate")


def test_an_identity_loss_is_the_loss(static: Any, paddle: Any) -> None:
    """Where ``identity_loss`` marks the loss, it is that."""
    hidden = static.nn.fc(static.data("x", [None, 3], "float32"), 2)
    loss = paddle.incubate.identity_loss(paddle.tanh(hidden), 1)
    paddle.optimizer.SGD(0.1).minimize(loss)

    found = Compiling(paddle, ["x"], [loss.name]).upto(EXTRACT)

    check.equal(actual=found.attributes(FOLDED)["loss_var"], expected=loss.name, what="the name of the loss")


UNIMPLEMENTED, INVALID = (NotImplementedError, "Unimplemented"), (ValueError, "InvalidArgument")
REFUSED: Dict[str, Tuple[Tuple[Any, str], Make]] = {
    "ClipGradByValue": (UNIMPLEMENTED, lambda o, paddle: o.SGD(0.1, grad_clip=paddle.nn.ClipGradByValue(0.5))),
    "ClipGradByNorm": (UNIMPLEMENTED, lambda o, paddle: o.SGD(0.1, grad_clip=paddle.nn.ClipGradByNorm(0.5))),
    "L1Decay": (UNIMPLEMENTED, lambda o, paddle: o.SGD(0.1, weight_decay=paddle.regularizer.L1Decay(0.5))),
    "nesterov": (UNIMPLEMENTED, lambda o, _: o.Momentum(0.1, 0.9, use_nesterov=True)),
    "rescale_grad": (UNIMPLEMENTED, lambda o, _: o.Momentum(0.1, 0.9, rescale_grad=0.5)),
    "lazy_mode": (UNIMPLEMENTED, lambda o, _: o.Adam(0.1, lazy_mode=True)),
    "lars_momentum": (INVALID, lambda o, paddle: paddle.incubate.optimizer.LarsMomentumOptimizer(0.1, 0.9)),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_ipu_cannot_train_with_is_refused(static: Any, paddle: Any, what: str) -> None:
    """Other clipping and decay, modes of single optimizers, and other optimizers are errors that name them."""
    (kind, word), make = REFUSED[what]
    with check.raises(kind, match=f"(?s){word}.*{what}", what=what):
        trained(paddle, make).upto(EXTRACT)


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("adam", "multi_precision", True),
        ("adamw", "multi_precision", True),
        ("momentum", "multi_precision", True),
        ("momentum", "regularization_method", "l1_decay"),
    ],
)
def test_a_mode_of_an_update_is_refused(static: Any, paddle: Any, name: str, attribute: str, value: Any) -> None:
    """Modes that an optimizer writes on its ops by itself are unimplemented too."""
    compiling = trained(paddle, OPTIMIZERS[name][0])
    for op in compiling.main.global_block().ops:
        if op.type == name:
            op._set_attr(attribute, value)
    again = Compiling(paddle, ["x"], compiling.fetches)

    wanted = value if isinstance(value, str) else attribute
    with check.raises(NotImplementedError, match=f"(?s)Unimplemented.*{wanted}", what=f"{name} with {attribute}"):
        again.upto(EXTRACT)


@pytest.mark.parametrize(
    ("name", "steps"), [("adam", 0), ("adamw", 0), ("adamax", 0), ("lamb", 0), ("adam", 1), ("adam", 4)]
)
def test_the_power_of_beta1_becomes_the_step(static: Any, paddle: Any, name: str, steps: int) -> None:
    """``beta1_pow`` holds the number of steps on the host once a program is compiled, and compiled again."""
    compiling = trained(paddle, OPTIMIZERS[name][0])
    batch = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    for _ in range(steps):
        static.Executor(paddle.CPUPlace()).run(compiling.main, feed={"x": batch})
    power = update(compiling, name).input("Beta1Pow")[0]
    before = held(paddle, power)
    counted = []
    for each in (compiling, Compiling(paddle, ["x"], compiling.fetches)):
        each.upto(ALIGN)
        counted.append(held(paddle, power).tolist())

    if steps == 0:
        check.identical(actual=before, expected=np.full(before.shape, 0.8, np.float32), what="the power before")
    check.equal(actual=counted, expected=[[steps], [steps]], what="the count of steps after each compilation")


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_only_the_forward_pass_is_kept(static: Any, paddle: Any, name: str) -> None:
    """Forward ops, the loss and the folded optimizer stay; gradients go."""
    compiling = trained(paddle, OPTIMIZERS[name][0])
    forward = [op.type for op in compiling.main.global_block().ops if op.attr("op_role") in (0, 256)]

    check.equal(actual=compiling.upto(FORWARD).types, expected=[*forward, FOLDED], what="the ops that stay")
