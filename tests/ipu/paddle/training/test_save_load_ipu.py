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
WAYS: Dict[str, Tuple[Callable[[Any, Any, str], None], Callable[[Any, Any, str], None]]] = {
    "static.save": (
        lambda paddle, main, path: paddle.static.save(main, path),
        lambda paddle, main, path: paddle.static.load(main, path),
    ),
    "save": (
        lambda paddle, main, path: paddle.save(main.state_dict(), path),
        lambda paddle, main, path: main.set_state_dict(paddle.load(path)),
    ),
}
"""How what the host holds of a program is written, and read back into the scope."""
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


def restarted(paddle: Any, device: Device, load: Callable[[], None] = lambda: None) -> Device:
    """The model as another process has it: initialised, loaded and compiled."""
    device.backend.reset()
    regression.start(paddle)
    load()
    return compiled(paddle, device.fetches, feeds=FEEDS, training=True)


def train(device: Device, first: int, steps: int = STEPS) -> List[float]:
    """Some steps on micro-batches of their own; the losses."""
    turns = range(4 * first, 4 * (first + steps), 4)
    return [float(device.run(samples(4, turn), targets(4, turn))[0][0]) for turn in turns]


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_saved_is_what_the_host_holds(paddle: Any, static: Any, tmp_path: Path, way: str, synced: bool) -> None:
    """Without syncing the weights from before training are saved, after weights_to_host the trained ones."""
    save, load = WAYS[way]
    main, device = trainable(paddle, "sgd")
    train(device, 0, steps=1)
    if synced:
        device.sync()
    save(paddle, main, str(tmp_path / "model"))
    static.global_scope().find_var("w").get_tensor().set(np.zeros(2, np.float32), paddle.CPUPlace())
    load(paddle, main, str(tmp_path / "model"))

    check.identical(actual=device.value("w"), expected=float32(TRAINED if synced else START), what="the loaded weight")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_a_resumed_run_is_the_same_run(paddle: Any, static: Any, tmp_path: Path, rule: str, way: str) -> None:
    """Saved after three steps, loaded and compiled again, training goes on with the same bits, state included."""
    save, load = WAYS[way]
    main, straight = trainable(paddle, rule)
    before = train(straight, 0)
    straight.sync()
    save(paddle, main, str(tmp_path / "model"))
    after = train(straight, STEPS)
    straight.sync()
    persistent = [var.name for var in main.list_vars() if var.persistable]
    ended = {name: straight.value(name) for name in persistent}

    resumed = restarted(paddle, straight, lambda: load(paddle, main, str(tmp_path / "model")))
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
    static.save(main, str(tmp_path / "model"))
    train(device, 0)
    static.load(main, str(tmp_path / "model"))
    going_on = train(device, STEPS, steps=1)
    from_the_start = train(restarted(paddle, device), STEPS, steps=1)

    check.differs(actual=going_on, other=from_the_start, what="the losses after loading")


def test_replicas_count_a_step_once(paddle: Any, static: Any) -> None:
    """beta1_pow holds the number of steps, however many replicas took them together."""
    replicated: Dict[str, Any] = {"num_ipus": 4, "enable_replicated_graphs": True, "replicated_graph_count": 4}
    _, device = regression.trainable(paddle, OPTIMIZERS["adam"](paddle.optimizer), **replicated)
    for turn in range(STEPS):
        device.run(samples(16, 16 * turn), targets(16, 16 * turn))
    device.sync()

    check.equal(actual=device.value("w_beta1_pow_acc_0").tolist(), expected=[STEPS], what="the count of steps")
