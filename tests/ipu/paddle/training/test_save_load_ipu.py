"""Saving and loading: files hold what the host holds, which is stale until weights come home."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from .. import regression
from ..device import Device, compiled
from ..regression import FEEDS, RATE, START, float32, samples, step, targets

STEPS = 3
TRAINED = step(START, samples(4), targets(4)).weight
"""The weight after one step down the gradient."""
WAYS = ["static.save", "save"]
OPTIMIZERS: Dict[str, Callable[[Any], Any]] = {
    "sgd": lambda optimizers: optimizers.SGD(RATE),
    "momentum": lambda optimizers: optimizers.Momentum(RATE, momentum=0.5),
    "adam": lambda optimizers: optimizers.Adam(RATE, epsilon=0.0625),
    "adamax": lambda optimizers: optimizers.Adamax(RATE, epsilon=0.0625),
    "adagrad": lambda optimizers: optimizers.Adagrad(RATE, epsilon=0.0625),
    "adadelta": lambda optimizers: optimizers.Adadelta(RATE, epsilon=0.0625),
    "rmsprop": lambda optimizers: optimizers.RMSProp(RATE, epsilon=0.0625, momentum=0.5, centered=True),
    "lamb": lambda optimizers: optimizers.Lamb(RATE, epsilon=0.0625),
}


def trainable(paddle: Any, rule: str) -> Tuple[Any, Device]:
    """The model with an optimizer, initialised on the host and compiled."""
    built, device = regression.trainable(paddle, OPTIMIZERS[rule](paddle.optimizer))
    return built.main, device


def compiled_again(paddle: Any, device: Device) -> Device:
    """The model on the device with the weights that the host holds now."""
    return compiled(paddle, device.fetches, feeds=FEEDS, training=True)


def restart(paddle: Any) -> None:
    """Initialise the weights as another process would."""
    paddle.base.core.IpuBackend.get_instance().reset()
    regression.start(paddle)


def train(device: Device, first: int, steps: int = STEPS) -> List[float]:
    """Some steps on micro-batches of their own; the losses."""
    turns = range(4 * first, 4 * (first + steps), 4)
    return [float(device.run(samples(4, turn), targets(4, turn))[0][0]) for turn in turns]


def save(paddle: Any, main: Any, path: Path, way: str) -> None:
    """Write what the host holds of a program."""
    if way == "static.save":
        paddle.static.save(main, str(path / "model"))
    else:
        paddle.save(main.state_dict(), str(path / "model.pdparams"))


def load(paddle: Any, main: Any, path: Path, way: str) -> None:
    """Read it back into the scope."""
    if way == "static.save":
        paddle.static.load(main, str(path / "model"))
    else:
        main.set_state_dict(paddle.load(str(path / "model.pdparams")))


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_saved_is_what_the_host_holds(paddle: Any, static: Any, tmp_path: Path, way: str, synced: bool) -> None:
    """Without syncing the weights from before training are saved, after weights_to_host the trained ones."""
    main, device = trainable(paddle, "sgd")
    train(device, 0, steps=1)
    if synced:
        device.sync()
    save(paddle, main, tmp_path, way)
    static.global_scope().find_var("w").get_tensor().set(np.zeros(2, np.float32), paddle.CPUPlace())
    load(paddle, main, tmp_path, way)

    check.identical(actual=device.value("w"), expected=float32(TRAINED if synced else START), what="the loaded weight")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_a_resumed_run_is_the_same_run(paddle: Any, static: Any, tmp_path: Path, rule: str, way: str) -> None:
    """Saved after three steps, loaded and compiled again, training goes on with the same bits, state included."""
    main, straight = trainable(paddle, rule)
    before = train(straight, 0)
    straight.sync()
    save(paddle, main, tmp_path, way)
    after = train(straight, STEPS)
    straight.sync()
    persistent = [var.name for var in main.list_vars() if var.persistable]
    ended = {name: straight.value(name) for name in persistent}

    restart(paddle)
    load(paddle, main, tmp_path, way)
    resumed = compiled_again(paddle, straight)
    again = train(resumed, STEPS)
    resumed.sync()

    check.differs(actual=after[-1], other=before[-1], what="the last loss")
    check.equal(actual=again, expected=after, what="the losses of the resumed run")
    for name, value in ended.items():
        check.identical(actual=resumed.value(name), expected=value, what=name)


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_loading_does_not_reach_a_compiled_program(paddle: Any, static: Any, tmp_path: Path, rule: str) -> None:
    """What is on the device stays there until the program is compiled again."""
    main, device = trainable(paddle, rule)
    save(paddle, main, tmp_path, "static.save")
    train(device, 0)
    load(paddle, main, tmp_path, "static.save")
    going_on = train(device, STEPS, steps=1)
    restart(paddle)
    from_the_start = train(compiled_again(paddle, device), STEPS, steps=1)

    check.differs(actual=going_on, other=from_the_start, what="the losses after loading")


@pytest.mark.parametrize("rule", ["momentum", "adam"])
def test_state_has_paddles_names(paddle: Any, static: Any, tmp_path: Path, rule: str) -> None:
    """Saved state keeps the suffixes of Paddle's optimizers, and is no longer zero."""
    main, device = trainable(paddle, rule)
    train(device, 0)
    device.sync()
    save(paddle, main, tmp_path, "static.save")
    saved = paddle.load(str(tmp_path / "model.pdopt"), return_numpy=True)
    suffixes = {"momentum": {"_velocity_0"}, "adam": {"_moment1_0", "_moment2_0", "_beta1_pow_acc_0"}}[rule]

    for suffix in suffixes:
        (name,) = [name for name in saved if name.endswith(suffix)]
        check.holds(name.startswith("w"), f"the state {name} does not begin with the name of its weight")
        check.holds(np.asarray(saved[name]).any(), f"{name} is saved as zero")


def test_adams_count_of_steps_is_saved(paddle: Any, static: Any, tmp_path: Path) -> None:
    """After training beta1_pow holds how many steps were taken, and a resumed run counts on."""
    main, device = trainable(paddle, "adam")
    train(device, 0)
    device.sync()
    save(paddle, main, tmp_path, "static.save")
    device.backend.reset()
    load(paddle, main, tmp_path, "static.save")
    again = compiled_again(paddle, device)
    train(again, STEPS, steps=2)
    again.sync()

    check.equal(actual=again.value("w_beta1_pow_acc_0").tolist(), expected=[STEPS + 2], what="the count of steps")


@pytest.mark.parametrize("how", ["weights_to_host", "detach", "reset", "compiling"])
def test_what_brings_weights_home(paddle: Any, static: Any, how: str) -> None:
    """Asking for it does; running, detaching, resetting and compiling again do not."""
    _, device = trainable(paddle, "sgd")
    train(device, 0, steps=1)
    check.identical(actual=device.value("w"), expected=float32(START), what="the weight on the host")
    if how == "compiling":
        compiled_again(paddle, device)
    else:
        getattr(device.backend, how)()

    expected = TRAINED if how == "weights_to_host" else START
    check.identical(actual=device.value("w"), expected=float32(expected), what="the weight on the host afterwards")
