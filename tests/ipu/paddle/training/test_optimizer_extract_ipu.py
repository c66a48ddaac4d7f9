"""Optimizers in the compiler: folded into one op, their state aligned, and the forward pass left."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import pytest

from ipu_conformance import check

from ..compiling import Compiling

EXTRACT, ALIGN, FORWARD = "optimizer_extract_pass", "optimizer_state_align_pass", "forward_graph_extract_pass"
FOLDED = "popart_optimizer"

Make = Callable[[Any], Any]


def single(value: float) -> float:
    """The number as Paddle's ops hold it, in 32 bits."""
    return float(np.float32(value))


def trained(paddle: Any, make: Make, **options: Any) -> Compiling:
    """A layer with a loss that is not linear, trained by the optimizer that ``make`` makes."""
    static = paddle.static
    hidden = static.nn.fc(static.data("x", [None, 3], "float32"), 2)
    loss = paddle.mean(paddle.tanh(hidden))
    make(paddle).minimize(loss)
    static.Executor(paddle.CPUPlace()).run(static.default_startup_program())
    return Compiling(paddle, ["x"], [loss.name], **options)


OPTIMIZERS: Dict[str, Make] = {
    "sgd": lambda paddle: paddle.optimizer.SGD(0.1),
    "momentum": lambda paddle: paddle.optimizer.Momentum(0.1, 0.75, weight_decay=0.125),
    "adam": lambda paddle: paddle.optimizer.Adam(0.1, 0.8, 0.95, 1e-5),
    "adamw": lambda paddle: paddle.optimizer.AdamW(0.1, 0.8, 0.95, 1e-5, weight_decay=0.375),
    "adamax": lambda paddle: paddle.optimizer.Adamax(0.1, 0.8, 0.95, 1e-5),
    "lamb": lambda paddle: paddle.optimizer.Lamb(0.1, 0.4375, 0.8, 0.95, 1e-5),
    "adadelta": lambda paddle: paddle.optimizer.Adadelta(0.1, 1e-5, 0.85),
    "adagrad": lambda paddle: paddle.optimizer.Adagrad(0.1, 1e-5),
    "rmsprop": lambda paddle: paddle.optimizer.RMSProp(0.1, 0.85, 1e-5, 0.5),
    "centred": lambda paddle: paddle.optimizer.RMSProp(0.1, 0.85, 1e-5, 0.5, True),
}
MOMENTS = {"type": "adam", "beta1": 0.8, "beta2": 0.95, "eps": 1e-5}
L2, DECOUPLED = {"weight_decay_mode": "l2_regularization"}, {"weight_decay_mode": "decay"}
SQUARES = {"type": "adaptive", "raw_type": "rmsprop", "alpha": 0.85, "eps": 1e-5, "momentum": 0.5, **L2}
SETTINGS: Dict[str, Dict[str, Any]] = {
    "sgd": {"type": "sgd", "raw_type": "sgd", "momentum": 0.0},
    "momentum": {"type": "sgd", "raw_type": "momentum", "momentum": 0.75},
    "adam": {"raw_type": "adam", "adam_mode": "adam", **MOMENTS, **L2},
    "adamw": {"raw_type": "adamw", "adam_mode": "adam", **MOMENTS, **DECOUPLED},
    "adamax": {"raw_type": "adamax", "adam_mode": "adamax", **MOMENTS, **L2},
    "lamb": {"raw_type": "lamb", "adam_mode": "lamb", **MOMENTS, **DECOUPLED},
    "adadelta": {**SQUARES, "raw_type": "adadelta", "adaptive_mode": "adadelta", "momentum": 0.0},
    "adagrad": {**SQUARES, "raw_type": "adagrad", "adaptive_mode": "adagrad", "alpha": 0.99, "momentum": 0.0},
    "rmsprop": {"adaptive_mode": "rmsprop", **SQUARES},
    "centred": {"adaptive_mode": "centered_rmsprop", **SQUARES},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_folded_into_one_op(static: Any, paddle: Any, name: str) -> None:
    """One ``popart_optimizer`` tells what all ops of the update do; no other op is touched yet."""
    compiling = trained(paddle, OPTIMIZERS[name])
    types = [op.type for op in compiling.main.global_block().ops]

    found = compiling.upto(EXTRACT)

    check.equal(actual=sorted(found.types), expected=sorted([*types, FOLDED]), what="the sorted ops of the program")


@pytest.mark.parametrize("name", SETTINGS)
def test_the_rule_of_an_optimizer_is_folded(static: Any, paddle: Any, name: str) -> None:
    """The folded op holds the type of PopART's optimizer, its modes, and its numbers as they were given."""
    attributes = trained(paddle, OPTIMIZERS[name]).upto(EXTRACT).attributes(FOLDED)

    settings = {key: single(value) if isinstance(value, float) else value for key, value in SETTINGS[name].items()}
    check.equal(actual={key: attributes.get(key) for key in settings}, expected=settings, what="the folded settings")


def test_momentum_s_decay_is_folded(static: Any, paddle: Any) -> None:
    """The L2 decay of momentum is an attribute of its op, and of the folded one."""
    found = trained(paddle, OPTIMIZERS["momentum"]).upto(EXTRACT).attributes(FOLDED)

    check.equal(actual=found["weight_decay"], expected=0.125, what="the folded decay")


def test_lamb_s_decay_is_folded_by_parameter(static: Any, paddle: Any) -> None:
    """The folded op names every parameter with its decay; an exempt one has none."""

    def exempting(paddle: Any) -> Any:
        exempt: Callable[[Any], bool] = lambda weight: weight.name.endswith("b_0")  # noqa: E731
        return paddle.optimizer.Lamb(0.1, 0.4375, exclude_from_weight_decay_fn=exempt)

    compiling = trained(paddle, exempting)
    found = compiling.upto(EXTRACT).attributes(FOLDED)

    weights = [weight.name for weight in compiling.main.all_parameters()]
    expected = {name: 0.0 if name.endswith("b_0") else 0.4375 for name in weights}
    decays = dict(zip(found["weight_decay_vars"], found["weight_decay_values"]))
    check.equal(actual=decays, expected=expected, what="the folded decays")


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_other_decay_is_lost(static: Any, paddle: Any, name: str) -> None:
    """AdamW's decay is folded as 0, and so is one whose ops come before the update's; a device may keep them."""
    make = {"sgd": paddle.optimizer.SGD, "adam": paddle.optimizer.Adam, "adamw": paddle.optimizer.AdamW}[name]
    found = trained(paddle, lambda paddle: make(0.1, weight_decay=0.25)).upto(EXTRACT).attributes(FOLDED)

    check.equal(actual=found["weight_decay"], expected=0.0, what="the folded decay")


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_clipping_by_the_global_norm_is_folded(static: Any, paddle: Any, name: str) -> None:
    """The folded op holds the norm that clipping allows, and none where nothing clips."""
    clip = paddle.nn.ClipGradByGlobalNorm(1.75)
    make = {"sgd": paddle.optimizer.SGD, "adam": paddle.optimizer.Adam}[name]

    found = trained(paddle, lambda paddle: make(0.1, grad_clip=clip)).upto(EXTRACT).attributes(FOLDED)

    check.equal(actual=found["clip_norm"], expected=1.75, what="the folded norm")


def test_without_clipping_no_norm_is_folded(static: Any, paddle: Any) -> None:
    """An optimizer that does not clip has no norm."""
    found = trained(paddle, OPTIMIZERS["adam"]).upto(EXTRACT).attributes(FOLDED)

    check.lacks(actual=found, unexpected="clip_norm", what="the folded op")


def test_the_loss_and_the_rate_are_found(static: Any, paddle: Any) -> None:
    """The folded op names the variables of loss and learning rate."""
    compiling = trained(paddle, OPTIMIZERS["sgd"])
    update = next(op for op in compiling.main.global_block().ops if op.type == "sgd")

    found = compiling.upto(EXTRACT).attributes(FOLDED)

    check.equal(actual=found["loss_var"], expected=compiling.fetches[0], what="the name of the loss")
    check.equal(actual=found["lr_var"], expected=update.input("LearningRate")[0], what="the name of the rate")


@pytest.mark.parametrize("name", ["adadelta", "rmsprop"])
def test_some_rates_are_not_folded(static: Any, paddle: Any, name: str) -> None:
    """The device has a rate of its own for adadelta and rmsprop."""
    found = trained(paddle, OPTIMIZERS[name]).upto(EXTRACT).attributes(FOLDED)

    check.lacks(actual=found, unexpected="lr_var", what="the folded op")


def test_an_identity_loss_is_the_loss(static: Any, paddle: Any) -> None:
    """Where ``identity_loss`` marks the loss, it is that."""
    hidden = static.nn.fc(static.data("x", [None, 3], "float32"), 2)
    loss = paddle.incubate.identity_loss(paddle.tanh(hidden), 1)
    paddle.optimizer.SGD(0.1).minimize(loss)

    found = Compiling(paddle, ["x"], [loss.name]).upto(EXTRACT)

    check.equal(actual=found.attributes(FOLDED)["loss_var"], expected=loss.name, what="the name of the loss")


REFUSED: Dict[str, Make] = {
    "ClipGradByValue": lambda paddle: paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByValue(0.5)),
    "ClipGradByNorm": lambda paddle: paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByNorm(0.5)),
    "L1Decay": lambda paddle: paddle.optimizer.SGD(0.1, weight_decay=paddle.regularizer.L1Decay(0.5)),
    "nesterov": lambda paddle: paddle.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "rescale_grad": lambda paddle: paddle.optimizer.Momentum(0.1, 0.9, rescale_grad=0.5),
    "lazy_mode": lambda paddle: paddle.optimizer.Adam(0.1, lazy_mode=True),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_ipu_cannot_train_with_is_refused(static: Any, paddle: Any, what: str) -> None:
    """Other clipping and decay, and modes of single optimizers, are unimplemented, and the error names them."""
    with check.raises(NotImplementedError, match=f"(?s)Unimplemented.*{what}", what=what):
        trained(paddle, REFUSED[what]).upto(EXTRACT)


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
    compiling = trained(paddle, OPTIMIZERS[name])
    for op in compiling.main.global_block().ops:
        if op.type == name:
            op._set_attr(attribute, value)
    again = Compiling(paddle, ["x"], compiling.fetches)

    wanted = value if isinstance(value, str) else attribute
    with check.raises(NotImplementedError, match=f"(?s)Unimplemented.*{wanted}", what=f"{name} with {attribute}"):
        again.upto(EXTRACT)


def test_an_unknown_optimizer_is_refused(static: Any, paddle: Any) -> None:
    """An op that no optimizer of an IPU build has is an invalid argument, by name."""
    with check.raises(ValueError, match="(?s)InvalidArgument.*lars_momentum", what="lars_momentum"):
        trained(paddle, lambda paddle: paddle.incubate.optimizer.LarsMomentumOptimizer(0.1, 0.9)).upto(EXTRACT)


def test_training_needs_an_optimizer(static: Any, paddle: Any) -> None:
    """A program that is to be trained and has no optimizer is refused."""
    hidden = static.nn.fc(static.data("x", [None, 3], "float32"), 2)
    loss = paddle.mean(paddle.tanh(hidden))
    static.append_backward(loss)

    with check.raises(RuntimeError, match="No optimizer found", what="training without an optimizer"):
        Compiling(paddle, ["x"], [loss.name]).upto(EXTRACT)


@pytest.mark.parametrize("name", ["adam", "adamw", "adamax", "lamb"])
def test_the_power_of_beta1_becomes_the_step(static: Any, paddle: Any, name: str) -> None:
    """Before the first step the host's ``beta1_pow`` holds 0 steps once a program is compiled."""
    compiling = trained(paddle, OPTIMIZERS[name])
    update = next(op for op in compiling.main.global_block().ops if op.type == name)
    held = static.global_scope().find_var(update.input("Beta1Pow")[0]).get_tensor()
    before = np.array(held)

    compiling.upto(ALIGN)

    check.identical(actual=before, expected=np.full(before.shape, 0.8, np.float32), what="the power before")
    check.identical(actual=np.array(held), expected=np.zeros_like(before), what="the power once it is compiled")


@pytest.mark.parametrize("steps", [1, 4])
def test_the_step_counts_what_was_trained_before(static: Any, paddle: Any, steps: int) -> None:
    """After steps on the host ``beta1_pow`` is their number, and compiling again changes nothing."""
    compiling = trained(paddle, OPTIMIZERS["adam"])
    update = next(op for op in compiling.main.global_block().ops if op.type == "adam")
    batch = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    for _ in range(steps):
        static.Executor(paddle.CPUPlace()).run(compiling.main, feed={"x": batch})
    held = static.global_scope().find_var(update.input("Beta1Pow")[0]).get_tensor()

    compiling.upto(ALIGN)
    first = np.array(held)
    Compiling(paddle, ["x"], compiling.fetches).upto(ALIGN)

    check.identical(actual=first, expected=np.full(first.shape, steps, first.dtype), what="the count of steps")
    check.identical(actual=np.array(held), expected=first, what="the count after compiling again")


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_only_the_forward_pass_is_kept(static: Any, paddle: Any, name: str) -> None:
    """Forward ops, the loss and the folded optimizer stay; gradients go."""
    compiling = trained(paddle, OPTIMIZERS[name])
    forward = [op.type for op in compiling.main.global_block().ops if op.attr("op_role") in (0, 256)]

    check.equal(actual=compiling.upto(FORWARD).types, expected=[*forward, FOLDED], what="the ops that stay")
