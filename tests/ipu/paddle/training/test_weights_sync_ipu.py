"""When the host's weights and optimizer state follow the device's, and when the device's follow the host's."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import device, exact
from ..exact import Device, counts

ROUTES: Dict[str, Callable[[Any, Any], None]] = {
    "weights_to_host": lambda paddle, backend: backend.weights_to_host(),
    "the-instance": lambda paddle, backend: paddle.base.core.IpuBackend.get_instance().weights_to_host(),
}
ELSE: Dict[str, Callable[[Any, Any], None]] = {
    "detach": lambda paddle, backend: backend.detach(),
    "reset": lambda paddle, backend: backend.reset(),
    "set_scope": lambda paddle, backend: backend.set_scope(paddle.static.Scope()),
    "set_ipu_strategy": lambda paddle, backend: backend.set_ipu_strategy(paddle.static.IpuStrategy()._ipu_strategy),
}
CHANGED = np.array([8.0, 4.0], np.float32)
"""A weight that was changed on the host."""


def trained(
    paddle: Any, *, optimizer: Any = None, runs: int = 1, config: RunConfig = exact.ONE, stages: int = 1
) -> Device:
    """A chain after some runs."""
    chain = exact.chain(paddle, optimizer=optimizer, stages=stages)
    device = Device(paddle, chain, exact.strategy(paddle, config, ipus=stages))
    for _ in range(runs):
        device.run(exact.samples(config.micro_batches))
    return device


def expected_weight(runs: int = 1) -> np.ndarray:
    """The weight after that many runs of the first sample."""
    return exact.plain_run(np.concatenate([exact.samples(1)] * runs), counts(runs)).weights["w0"]


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_host_weights_stay_stale(paddle: Any, static: Any, runs: int) -> None:
    """Training leaves the host's weights as they were when the program was compiled."""
    device = trained(paddle, runs=runs)

    check.identical(actual=device.weights()["w0"], expected=exact.START, what="the host's weight")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("runs", [1, 3])
def test_weights_come_home(paddle: Any, static: Any, route: str, runs: int) -> None:
    """Whoever asks for it has the device's weights on the host."""
    device = trained(paddle, runs=runs)
    ROUTES[route](paddle, device.backend)

    check.identical(actual=device.weights()["w0"], expected=expected_weight(runs), what="the host's weight")


@pytest.mark.parametrize("route", ELSE)
@pytest.mark.parametrize("runs", [1, 3])
def test_nothing_else_brings_weights_home(paddle: Any, static: Any, route: str, runs: int) -> None:
    """Letting go of the device, its scope or its strategy leaves the host's weights as they are."""
    device = trained(paddle, runs=runs)
    scope = paddle.static.global_scope()
    ELSE[route](paddle, device.backend)
    weight = np.array(scope.find_var("w0").get_tensor())

    check.identical(actual=weight, expected=exact.START, what="the host's weight")


@pytest.mark.parametrize("config", [counts(1, 1, 2), counts(1, 4, 2)], ids=counts_id)
@pytest.mark.parametrize("stages", [1, 3])
def test_the_weights_of_all_stages_come_home(paddle: Any, static: Any, config: RunConfig, stages: int) -> None:
    """Every weight of every stage is copied."""
    device = trained(paddle, config=config, stages=stages)
    expected = exact.plain_run(exact.samples(config.micro_batches), config, stages=stages).weights
    weights = device.synced_weights()
    for name, value in expected.items():
        check.identical(actual=weights[name], expected=value, what=name)


def test_saving_the_model_brings_weights_home(paddle: Any, static: Any, tmp_path: Any) -> None:
    """save_model_proto writes what the device holds, and leaves the same on the host."""
    device = trained(paddle)
    device.backend.save_model_proto(str(tmp_path / "model.onnx"))

    check.identical(actual=device.weights()["w0"], expected=expected_weight(), what="the host's weight")
    check.holds((tmp_path / "model.onnx").stat().st_size > 0, "the saved model is an empty file")


@pytest.mark.parametrize("runs", [1, 2], ids=["twice", "between-runs"])
def test_a_sync_leaves_the_device_as_it_is(paddle: Any, static: Any, runs: int) -> None:
    """What is home already stays, and training goes on after a sync."""
    device = trained(paddle)
    device.sync()
    if runs == 2:
        device.run(exact.samples(1))

    check.identical(actual=device.synced_weights()["w0"], expected=expected_weight(runs), what="the host's weight")


def test_changes_on_the_host_wait_for_a_compilation(paddle: Any, static: Any) -> None:
    """A weight that is changed on the host after compiling is not seen by the device, and overwritten by a sync."""
    device = trained(paddle)
    device.set("w0", CHANGED)
    out, _ = device.run(exact.samples(1))

    check.identical(actual=out, expected=exact.samples(1) * expected_weight(1), what="the output")
    check.identical(actual=device.synced_weights()["w0"], expected=expected_weight(2), what="the host's weight")


def test_a_compilation_takes_the_weights_of_the_host(paddle: Any, static: Any) -> None:
    """Compiling sends the host's weights of the moment to the device."""
    chosen = exact.strategy(paddle, training=False)
    device = Device(paddle, exact.chain(paddle, training=False), chosen)
    device.set("w0", CHANGED)
    out, _ = Device(paddle, device.chain, chosen).run(exact.samples(1))

    check.identical(actual=out, expected=exact.samples(1) * CHANGED, what="the output")


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


STATES: List[Tuple[str, Callable[[Any], Any], Tuple[str, ...]]] = [
    ("momentum", lambda o: o.Momentum(exact.RATE, 0.5), ("velocity_0",)),
    ("adam", lambda o: o.Adam(exact.RATE), ("moment1_0", "moment2_0", "beta1_pow_acc_0")),
    ("adamw", lambda o: o.AdamW(exact.RATE), ("moment1_0", "moment2_0", "beta1_pow_acc_0")),
    ("adamax", lambda o: o.Adamax(exact.RATE), ("moment_0", "beta1_pow_acc_0")),
    ("lamb", lambda o: o.Lamb(exact.RATE), ("moment1_0", "moment2_0", "beta1_pow_acc_0")),
    ("adagrad", lambda o: o.Adagrad(exact.RATE), ("moment_0",)),
    ("adadelta", lambda o: o.Adadelta(exact.RATE), ("_avg_squared_grad_0", "_avg_squared_update_0")),
    ("rmsprop", lambda o: o.RMSProp(exact.RATE), ("mean_square_0",)),
]


@pytest.mark.parametrize(("make", "suffixes"), [row[1:] for row in STATES], ids=[row[0] for row in STATES])
def test_optimizer_state_keeps_the_names_of_paddle(
    paddle: Any, static: Any, make: Callable[[Any], Any], suffixes: Tuple[str, ...]
) -> None:
    """State comes home under the parameter's name and Paddle's suffix, and training has moved it."""
    device = trained(paddle, optimizer=make(paddle.optimizer), runs=0)
    before = {suffix: device.value(f"w0_{suffix}") for suffix in suffixes}
    device.run(exact.samples(1))
    stale = {suffix: device.value(f"w0_{suffix}") for suffix in suffixes}
    device.sync()
    for suffix in suffixes:
        check.identical(actual=stale[suffix], expected=before[suffix], what=f"{suffix} before the sync")

        check.differs(actual=device.value(f"w0_{suffix}"), other=before[suffix], what=f"{suffix} after the sync")


def stepped(paddle: Any, kind: str, rate: float) -> np.ndarray:
    """The weight after two steps of an optimizer with this rate, in a program of its own."""
    static = paddle.static
    programs = static.program_guard(static.Program(), static.Program())
    with programs, static.scope_guard(static.Scope()), paddle.utils.unique_name.guard():
        weight: np.ndarray = trained(paddle, optimizer=getattr(paddle.optimizer, kind)(rate), runs=2).synced_weights()[
            "w0"
        ]
        return weight


@pytest.mark.emulator
@pytest.mark.parametrize("kind", ["Adadelta", "RMSProp"])
def test_the_rate_of_some_optimizers_is_the_device_s(paddle: Any, static: Any, kind: str) -> None:
    """Adadelta and RMSProp step with 0.01, whatever rate the program has."""
    weight = stepped(paddle, kind, 0.0625)

    check.identical(actual=weight, expected=stepped(paddle, kind, 0.01), what="the weight")
    check.differs(actual=weight, other=exact.START, what="the weight after two steps")


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
    "adadelta": (
        lambda o: o.Adadelta(exact.RATE, rho=0.75),
        {"_avg_squared_grad_0": averaged(GRADIENT**2, 0.75)},
    ),
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
    trained.sync()
    return trained


@pytest.mark.parametrize("name", EVERY)
def test_every_update_counts_in_the_state(paddle: Any, static: Any, name: str) -> None:
    """After nine equal gradients the state is that of nine updates."""
    make, states = EVERY[name]
    trained = many_updates(paddle, make(paddle.optimizer))
    for suffix, expected in states.items():
        check.identical(actual=trained.value(f"w0_{suffix}"), expected=expected, what=suffix)


@pytest.mark.parametrize("name", ["adam", "adamw", "adamax"])
def test_every_update_moves_the_weight_as_far(paddle: Any, static: Any, name: str) -> None:
    """Equal gradients have the averages of one: whatever the count of updates is, bias correction cancels it."""
    trained = many_updates(paddle, EVERY[name][0](paddle.optimizer))
    step = exact.RATE * GRADIENT / (np.abs(GRADIENT) + BETAS["epsilon"])
    expected = exact.START - UPDATES * step
    roundings = 12 * UPDATES * np.maximum(np.abs(exact.START), np.abs(expected)) * FORMATS["float32"].unit
    allowed = Tolerance(roundings, "twelve roundings in each of nine updates", 0.0)

    check.close(actual=trained.value("w0"), expected=expected, tolerance=allowed, what="the weight")
