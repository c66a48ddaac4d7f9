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
    "sgd": lambda paddle: paddle.optimizer.SGD(0.1, weight_decay=0.25),
    "momentum": lambda paddle: paddle.optimizer.Momentum(0.1, 0.75, weight_decay=0.125),
    "adam": lambda paddle: paddle.optimizer.Adam(0.1, 0.8, 0.95, 1e-5, weight_decay=0.0625),
    "adamw": lambda paddle: paddle.optimizer.AdamW(0.1, 0.8, 0.95, 1e-5, weight_decay=0.375),
    "adamax": lambda paddle: paddle.optimizer.Adamax(0.1, 0.8, 0.95, 1e-5),
    "lamb": lambda paddle: paddle.optimizer.Lamb(0.1, 0.4375, 0.8, 0.95, 1e-5),
    "adadelta": lambda paddle: paddle.optimizer.Adadelta(0.1, 1e-5, 0.85),
    "adagrad": lambda paddle: paddle.optimizer.Adagrad(0.1, 1e-5),
    "rmsprop": lambda paddle: paddle.optimizer.RMSProp(0.1, 0.85, 1e-5, 0.5, True),
}
DECAYS = {"sgd": 0.25, "momentum": 0.125, "adam": 0.0625, "adamw": 0.375, "lamb": 0.4375}
SETTINGS: Dict[str, Dict[str, Any]] = {
    "momentum": {"mu": 0.75},
    **{name: {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-5} for name in ("adam", "adamw", "adamax", "lamb")},
    "adadelta": {"rho": 0.85, "epsilon": 1e-5},
    "adagrad": {"epsilon": 1e-5},
    "rmsprop": {"decay": 0.85, "epsilon": 1e-5, "momentum": 0.5, "centered": True},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_folded_into_one_op(static: Any, paddle: Any, name: str) -> None:
    """One ``popart_optimizer`` stands for all ops of the update; the forward and the backward pass are untouched."""
    compiling = trained(paddle, OPTIMIZERS[name])
    kept = [op.type for op in compiling.main.global_block().ops if op.attr("op_role") in (0, 1, 256, 257)]

    found = compiling.upto(EXTRACT)

    check.equal(actual=found.types, expected=[*kept, FOLDED], what="the ops of the program")
    check.equal(actual=found.attributes(FOLDED)["type"], expected=name, what="the type of the folded op")


@pytest.mark.parametrize("name", SETTINGS)
def test_the_settings_of_an_optimizer_are_folded(static: Any, paddle: Any, name: str) -> None:
    """The folded op holds momentum, betas, epsilon and so on as the optimizer was given them."""
    attributes = trained(paddle, OPTIMIZERS[name]).upto(EXTRACT).attributes(FOLDED)

    settings = {key: value if isinstance(value, bool) else single(value) for key, value in SETTINGS[name].items()}
    check.equal(actual={key: attributes[key] for key in settings}, expected=settings, what="the folded settings")


@pytest.mark.parametrize("name", DECAYS)
def test_weight_decay_is_folded(static: Any, paddle: Any, name: str) -> None:
    """The folded op holds the decay, whichever ops the optimizer writes it in."""
    found = trained(paddle, OPTIMIZERS[name]).upto(EXTRACT).attributes(FOLDED)

    check.equal(actual=found["weight_decay"], expected=DECAYS[name], what="the folded decay")


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


def test_an_identity_loss_is_the_loss(static: Any, paddle: Any) -> None:
    """Where ``identity_loss`` marks the loss, it is that."""
    hidden = static.nn.fc(static.data("x", [None, 3], "float32"), 2)
    loss = paddle.incubate.identity_loss(paddle.tanh(hidden), 1)
    paddle.optimizer.SGD(0.1).minimize(loss)

    found = Compiling(paddle, ["x"], [loss.name]).upto(EXTRACT)

    check.equal(actual=found.attributes(FOLDED)["loss_var"], expected=loss.name, what="the name of the loss")


REFUSED: Dict[str, Make] = {
    "clipping by value": lambda paddle: paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByValue(0.5)),
    "clipping by norm": lambda paddle: paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByNorm(0.5)),
    "L1Decay": lambda paddle: paddle.optimizer.SGD(0.1, weight_decay=paddle.regularizer.L1Decay(0.5)),
    "nesterov": lambda paddle: paddle.optimizer.Momentum(0.1, 0.9, use_nesterov=True),
    "lars_momentum": lambda paddle: paddle.incubate.optimizer.LarsMomentumOptimizer(0.1, 0.9),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_ipu_cannot_train_with_is_refused(static: Any, paddle: Any, what: str) -> None:
    """The rest of Paddle's optimizers, clipping and decay is unimplemented, and the error names it."""
    with check.raises(NotImplementedError, match=f"Unimplemented.*{what}", what=what):
        trained(paddle, REFUSED[what]).upto(EXTRACT)


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
