"""Saving and loading: files hold what the host holds, which is stale until weights come home."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from ..ops import dyadic

STEPS = 3
WAYS = ["static.save", "save"]
OPTIMIZERS = ["sgd", "momentum", "adam"]


def optimizer(paddle: Any, name: str) -> Any:
    """An optimizer by its name."""
    made: Dict[str, Any] = {
        "sgd": lambda: paddle.optimizer.SGD(dyadic.RATE),
        "momentum": lambda: paddle.optimizer.Momentum(dyadic.RATE, momentum=0.5),
        "adam": lambda: paddle.optimizer.Adam(dyadic.RATE, epsilon=0.0625),
    }
    return made[name]()


def trainer(paddle: Any, rule: str) -> Any:
    """The model with an optimizer, initialised on the host."""
    built = dyadic.build(paddle, optimizer=optimizer(paddle, rule))
    dyadic.start(paddle, built)
    return built


def device_of(paddle: Any, built: Any) -> Any:
    """The model on the device with the weights that the host holds now."""
    return dyadic.compiled(paddle, built.main, built.feeds, [built.loss], is_training=True)


def train(device: Any, first: int, steps: int = STEPS) -> List[float]:
    """Some steps on micro-batches of their own; the losses."""
    losses = []
    for turn in range(first, first + steps):
        (loss,) = device.run(x=dyadic.samples(4, 4 * turn), y=dyadic.targets(4, 4 * turn))
        losses.append(float(loss[0]))
    return losses


def save(paddle: Any, built: Any, path: Path, way: str) -> None:
    """Write what the host holds of a program."""
    if way == "static.save":
        paddle.static.save(built.main, str(path / "model"))
    else:
        paddle.save(built.main.state_dict(), str(path / "model.pdparams"))


def load(paddle: Any, built: Any, path: Path, way: str) -> None:
    """Read it back into the scope."""
    if way == "static.save":
        paddle.static.load(built.main, str(path / "model"))
    else:
        built.main.set_state_dict(paddle.load(str(path / "model.pdparams")))


def lasting(built: Any) -> List[str]:
    """The names of the weights and of the optimizer's state."""
    return sorted(var.name for var in built.main.list_vars() if var.persistable)


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_saved_is_what_the_host_holds(paddle: Any, static: Any, tmp_path: Path, way: str, synced: bool) -> None:
    """Without syncing the weights from before training are saved, after weights_to_host the trained ones."""
    built = trainer(paddle, "sgd")
    device = device_of(paddle, built)
    train(device, 0, steps=1)
    if synced:
        device.weights_to_host()
    save(paddle, built, tmp_path, way)
    static.global_scope().find_var("w").get_tensor().set(np.zeros(2, np.float32), paddle.CPUPlace())
    load(paddle, built, tmp_path, way)
    trained = dyadic.step(dyadic.START, dyadic.samples(4), dyadic.targets(4)).weight

    assert dyadic.held(paddle).tolist() == dyadic.float32(trained if synced else dyadic.START).tolist()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_a_resumed_run_is_the_same_run(paddle: Any, static: Any, tmp_path: Path, rule: str, way: str) -> None:
    """Saved after three steps, loaded and compiled again, training goes on with the same bits, state included."""
    built = trainer(paddle, rule)
    straight = device_of(paddle, built)
    before = train(straight, 0)
    straight.weights_to_host()
    save(paddle, built, tmp_path, way)
    after = train(straight, STEPS)
    straight.weights_to_host()
    ended = {name: dyadic.held(paddle, name) for name in lasting(built)}

    # Compiling brings home what is on the device: let it go first, as the end of a process would.
    paddle.base.core.IpuBackend.get_instance().reset()
    paddle.static.Executor(paddle.CPUPlace()).run(built.startup)
    load(paddle, built, tmp_path, way)
    resumed = device_of(paddle, built)
    again = train(resumed, STEPS)
    resumed.weights_to_host()

    assert before[-1] != after[-1]
    assert again == after
    for name, value in ended.items():
        assert dyadic.held(paddle, name).tolist() == value.tolist(), name


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_loading_does_not_reach_a_compiled_program(paddle: Any, static: Any, tmp_path: Path, rule: str) -> None:
    """What is on the device stays there until the program is compiled again."""
    built = trainer(paddle, rule)
    device = device_of(paddle, built)
    save(paddle, built, tmp_path, "static.save")
    train(device, 0)
    load(paddle, built, tmp_path, "static.save")
    going_on = train(device, STEPS, steps=1)

    paddle.base.core.IpuBackend.get_instance().reset()
    static.Executor(paddle.CPUPlace()).run(built.startup)
    fresh = device_of(paddle, built)
    from_the_start = train(fresh, STEPS, steps=1)
    assert going_on != from_the_start


@pytest.mark.parametrize("rule", ["momentum", "adam"])
def test_state_has_paddles_names(paddle: Any, static: Any, tmp_path: Path, rule: str) -> None:
    """Saved state keeps the suffixes of Paddle's optimizers, and is no longer zero."""
    built = trainer(paddle, rule)
    device = device_of(paddle, built)
    train(device, 0)
    device.weights_to_host()
    save(paddle, built, tmp_path, "static.save")
    saved = paddle.load(str(tmp_path / "model.pdopt"), return_numpy=True)
    suffixes = {"momentum": {"_velocity_0"}, "adam": {"_moment1_0", "_moment2_0", "_beta1_pow_acc_0"}}[rule]

    for suffix in suffixes:
        (name,) = [name for name in saved if name.endswith(suffix)]
        assert name.startswith("w")
        assert np.asarray(saved[name]).any(), name


def test_adams_count_of_steps_is_saved(paddle: Any, static: Any, tmp_path: Path) -> None:
    """After training beta1_pow holds how many steps were taken, and a resumed run counts on."""
    built = trainer(paddle, "adam")
    device = device_of(paddle, built)
    train(device, 0)
    device.weights_to_host()
    save(paddle, built, tmp_path, "static.save")
    paddle.base.core.IpuBackend.get_instance().reset()
    load(paddle, built, tmp_path, "static.save")
    again = device_of(paddle, built)
    train(again, STEPS, steps=2)
    again.weights_to_host()

    assert dyadic.held(paddle, "w_beta1_pow_acc_0").tolist() == [STEPS + 2]


@pytest.mark.parametrize("how", ["weights_to_host", "detach", "reset", "compiling"])
def test_what_brings_weights_home(paddle: Any, static: Any, tmp_path: Path, how: str) -> None:
    """Asking for it, detaching, resetting and compiling again do; running alone does not."""
    built = trainer(paddle, "sgd")
    device = device_of(paddle, built)
    train(device, 0, steps=1)
    assert dyadic.held(paddle).tolist() == dyadic.START.tolist()
    if how == "compiling":
        device_of(paddle, built)
    else:
        getattr(paddle.base.core.IpuBackend.get_instance(), how)()
    trained = dyadic.step(dyadic.START, dyadic.samples(4), dyadic.targets(4)).weight

    assert dyadic.held(paddle).tolist() == dyadic.float32(trained).tolist()
