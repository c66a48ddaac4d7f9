"""When the host's weights and optimizer state follow the device's, and when the device's follow the host's."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance
from ipu_conformance.run import RunConfig

from .. import device, exact
from ..device import fresh
from ..exact import Device, counts

Route = Callable[[Any, Any, Any], None]
HOME: Dict[str, Route] = {
    "weights_to_host": lambda paddle, backend, folder: backend.weights_to_host(),
    "the-instance": lambda paddle, backend, folder: paddle.base.core.IpuBackend.get_instance().weights_to_host(),
    "save_model_proto": lambda paddle, backend, folder: backend.save_model_proto(str(folder / "model.onnx")),
}
ELSE: Dict[str, Route] = {
    "nothing": lambda paddle, backend, folder: None,
    "detach": lambda paddle, backend, folder: backend.detach(),
    "reset": lambda paddle, backend, folder: backend.reset(),
    "set_scope": lambda paddle, backend, folder: backend.set_scope(paddle.static.Scope()),
    "set_ipu_strategy": lambda paddle, backend, folder: backend.set_ipu_strategy(
        paddle.static.IpuStrategy()._ipu_strategy
    ),
}
CHANGED = np.array([8.0, 4.0], np.float32)
"""A weight that was changed on the host."""


def trained(paddle: Any, *, optimizer: Any = None, runs: int = 1, config: RunConfig = exact.ONE) -> Device:
    """A chain after some runs."""
    device = Device(paddle, exact.chain(paddle, optimizer=optimizer), exact.strategy(paddle, config))
    for _ in range(runs):
        device.run(exact.samples(config.micro_batches))
    return device


def expected_weight(runs: int = 1) -> np.ndarray:
    """The weight after that many runs of the first sample."""
    return exact.plain_run(np.concatenate([exact.samples(1)] * runs), counts(runs)).weights["w0"]


@pytest.mark.parametrize("route", [*HOME, *ELSE])
@pytest.mark.parametrize("runs", [1, 3])
def test_weights_come_home(paddle: Any, static: Any, tmp_path: Any, route: str, runs: int) -> None:
    """Running, and letting go of the device, its scope or its strategy, leave the host's weights as they were."""
    device = trained(paddle, runs=runs)
    {**HOME, **ELSE}[route](paddle, device.backend, tmp_path)

    expected = expected_weight(runs) if route in HOME else exact.START
    check.identical(actual=device.weights()["w0"], expected=expected, what="the host's weight")


@pytest.mark.parametrize("runs", [1, 2], ids=["twice", "between-runs"])
def test_a_sync_leaves_the_device_as_it_is(paddle: Any, static: Any, runs: int) -> None:
    """What is home already stays, and training goes on after a sync."""
    device = trained(paddle)
    device.sync()
    if runs == 2:
        device.run(exact.samples(1))

    check.identical(actual=device.synced_weights()["w0"], expected=expected_weight(runs), what="the host's weight")


def test_changes_on_the_host_wait_for_a_compilation(paddle: Any, static: Any) -> None:
    """A weight that is changed on the host is sent by the next compilation alone, and overwritten by a sync."""
    device, x = trained(paddle), exact.samples(1)
    device.set("w0", CHANGED)
    before, _ = device.run(x)
    overwritten = device.synced_weights()["w0"]
    device.set("w0", CHANGED)
    after, _ = Device(paddle, device.chain, exact.strategy(paddle)).run(x)

    check.identical(actual=before, expected=x * expected_weight(1), what="the output before a compilation")
    check.identical(actual=overwritten, expected=expected_weight(2), what="the host's weight after a sync")
    check.identical(actual=after, expected=x * CHANGED, what="the output after a compilation")


@pytest.mark.parametrize("synced", [True, False], ids=["synced", "stale"])
def test_compiling_again_begins_with_the_weights_of_the_host(paddle: Any, static: Any, synced: bool) -> None:
    """Compiling another program copies nothing home: what was trained and not asked for is lost."""
    first = trained(paddle)
    if synced:
        first.sync()
    again = Device(paddle, first.chain, exact.strategy(paddle))
    again.run(exact.samples(1))

    weight = again.synced_weights()["w0"]
    check.identical(actual=weight, expected=expected_weight(1 + synced), what="the host's weight")


def test_inference_brings_nothing_home(paddle: Any, static: Any) -> None:
    """A program that does not train leaves the host's weights alone, also when they are newer."""
    device = Device(paddle, exact.chain(paddle, training=False), exact.strategy(paddle, training=False))
    device.run(exact.samples(1))
    device.set("w0", CHANGED)

    check.identical(actual=device.synced_weights()["w0"], expected=CHANGED, what="the host's weight")


@pytest.mark.emulator
@pytest.mark.parametrize("kind", ["Adadelta", "RMSProp"])
def test_the_rate_of_some_optimizers_is_the_device_s(paddle: Any, static: Any, kind: str) -> None:
    """Adadelta and RMSProp step with 0.01, whatever rate the program has."""
    weights = []
    for rate in (0.0625, 0.01):
        with fresh(paddle):
            device = trained(paddle, optimizer=getattr(paddle.optimizer, kind)(rate), runs=2)
            weights.append(device.synced_weights()["w0"])

    check.identical(actual=weights[0], expected=weights[1], what="the weight")
    check.differs(actual=weights[0], other=exact.START, what="the weight after two steps")


@pytest.mark.emulator
def test_momentum_comes_home_as_it_is(paddle: Any, static: Any) -> None:
    """The velocity on the host is that of the last step; PopART's is multiplied for the next one already."""
    device = trained(paddle, optimizer=paddle.optimizer.Momentum(exact.RATE, 0.5), runs=2)
    device.sync()
    x = exact.samples(1)[0]
    # Both steps have the gradient of the first: the weights move too little to change a sign.
    gradient = np.sign(x * exact.START - 1) * x

    check.identical(actual=device.value("w0_velocity_0"), expected=gradient * np.float32(1.5), what="the velocity")


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "Adamax", "Lamb"])
def test_the_power_of_beta1_counts_steps(paddle: Any, static: Any, kind: str) -> None:
    """Compiling puts the number of steps where Paddle keeps a power of beta1, and a sync the number of all steps."""
    device = trained(paddle, optimizer=getattr(paddle.optimizer, kind)(exact.RATE), runs=0, config=counts(3))
    powers = [device.value("w0_beta1_pow_acc_0").reshape(-1)]
    for _ in range(2):
        device.run(exact.samples(3))
        device.sync()
        powers.append(device.value("w0_beta1_pow_acc_0").reshape(-1))

    counted = [count.tolist() for count in powers]
    check.equal(actual=counted, expected=[[0.0], [3.0], [6.0]], what="the counts of steps")


@pytest.mark.parametrize("kind", ["Adam", "Adamax"])
def test_compiling_again_goes_on_with_the_state(paddle: Any, static: Any, kind: str) -> None:
    """Two steps with a compilation between them are two steps without one."""
    first = trained(paddle, optimizer=getattr(paddle.optimizer, kind)(exact.RATE), runs=2)
    expected = first.synced_weights()["w0"]
    first.backend.reset()
    first.executor.run(first.chain.startup)
    for _ in range(2):
        again = Device(paddle, first.chain, exact.strategy(paddle))
        again.run(exact.samples(1))
        weight = again.synced_weights()["w0"]

    check.identical(actual=weight, expected=expected, what="the weight")


UPDATES = 9
"""The updates of three runs of three batches each."""
GRADIENT = np.array([2.0, -3.0])
"""The gradient of every update."""
BETAS = {"beta1": 0.5, "beta2": 0.75, "epsilon": 2.0**-4}


def averaged(value: np.ndarray, share: float) -> np.ndarray:
    """A moving average of one value that begins at zero and keeps a share of what it was; float32 holds it exactly."""
    return np.asarray((1 - share**UPDATES) * value, np.float32)


AVERAGES = {"moment1_0": averaged(GRADIENT, 0.5), "moment2_0": averaged(GRADIENT**2, 0.75)}
EVERY: Dict[str, Tuple[Callable[[Any], Any], Dict[str, np.ndarray]]] = {
    "momentum": (lambda o: o.Momentum(exact.RATE, 0.5), {"velocity_0": 2 * averaged(GRADIENT, 0.5)}),
    "adam": (lambda o: o.Adam(exact.RATE, **BETAS), AVERAGES),
    "adamw": (lambda o: o.AdamW(exact.RATE, weight_decay=0.0, **BETAS), AVERAGES),
    "lamb": (lambda o: o.Lamb(exact.RATE, lamb_weight_decay=0.0, **BETAS), AVERAGES),
    "adamax": (lambda o: o.Adamax(exact.RATE, **BETAS), {"moment_0": averaged(GRADIENT, 0.5)}),
    "adagrad": (lambda o: o.Adagrad(exact.RATE), {"moment_0": np.asarray(UPDATES * GRADIENT**2, np.float32)}),
    "adadelta": (lambda o: o.Adadelta(exact.RATE, rho=0.75), {"_avg_squared_grad_0": averaged(GRADIENT**2, 0.75)}),
    "rmsprop": (
        lambda o: o.RMSProp(exact.RATE, rho=0.75, momentum=0.5, centered=True),
        {"mean_square_0": averaged(GRADIENT**2, 0.75), "mean_grad_0": averaged(GRADIENT, 0.75)},
    ),
}  # fmt: skip


def many_updates(paddle: Any, optimizer: Any) -> device.Device:
    """A weight whose gradient is always the same, after three runs of three batches."""
    config = counts(3)
    x = paddle.static.data("x", [None, 2], "float32")
    start = paddle.nn.initializer.Assign(exact.START)
    loss = paddle.sum(x * paddle.static.create_parameter([2], "float32", name="w0", default_initializer=start))
    optimizer.minimize(loss)
    device.started(paddle)
    trained = device.Device(paddle, [loss], exact.strategy(paddle, config))
    for _ in range(UPDATES // config.device_iterations):
        trained.run(np.full((config.device_iterations, 2), GRADIENT, np.float32))
    return trained


@pytest.mark.parametrize("name", EVERY)
def test_every_update_counts_in_the_state(paddle: Any, static: Any, name: str) -> None:
    """After nine equal gradients the state under Paddle's names is that of nine updates, once it is asked for."""
    make, states = EVERY[name]
    trained = many_updates(paddle, make(paddle.optimizer))
    stale = {suffix: trained.value(f"w0_{suffix}") for suffix in states}
    trained.sync()

    for suffix, expected in states.items():
        check.identical(actual=stale[suffix], expected=np.zeros_like(expected), what=f"{suffix} before the sync")
        check.identical(actual=trained.value(f"w0_{suffix}"), expected=expected, what=f"{suffix} after the sync")


@pytest.mark.parametrize("name", ["adam", "adamw", "adamax"])
def test_every_update_moves_the_weight_as_far(paddle: Any, static: Any, name: str) -> None:
    """Equal gradients have the averages of one: whatever the count of updates is, bias correction cancels it."""
    trained = many_updates(paddle, EVERY[name][0](paddle.optimizer))
    trained.sync()
    step = exact.RATE * GRADIENT / (np.abs(GRADIENT) + BETAS["epsilon"])
    expected = exact.START - UPDATES * step
    roundings = 12 * UPDATES * np.maximum(np.abs(exact.START), np.abs(expected)) * FORMATS["float32"].unit
    allowed = Tolerance(roundings, "twelve roundings in each of nine updates", 0.0)

    check.close(actual=trained.value("w0"), expected=expected, tolerance=allowed, what="the weight")
