"""Wrappers of Keras optimizers: they change gradients on their way, in ``fit`` and in functions of a strategy.

The model is one weight whose loss is its product with the input: a gradient is the input, and all values are exact.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from .nets import PLAIN, Keras, scalars

RATE, MOMENTUM, START = 0.125, 0.5, 1.0
STEPS = 4


@pytest.fixture
def optimizers(tf: Any, ipu: Any) -> Any:
    """The module of the wrappers."""
    return importlib.import_module("keras.ipu.optimizers")


def inputs(number: int) -> List[float]:
    """As many different inputs of a few bits."""
    return [(index + 1) / 4 for index in range(number)]


def descent(gradients: Sequence[float]) -> float:
    """The weight after updates with momentum."""
    weight, velocity = START, 0.0
    for gradient in gradients:
        velocity = MOMENTUM * velocity - RATE * gradient
        weight += velocity
    return weight


@pytest.fixture
def fit(keras: Keras, optimizers: Any) -> Callable[..., Any]:
    """Fits the weight with a wrapped optimizer, one step for each of the replicas' inputs; the model."""

    def fitted(
        wrap: Callable[[Any, Any, Any], Any],
        replicas: int = 1,
        stages: Sequence[int] = (),
        legacy: bool = False,
        feed: Sequence[float] = (),
        **settings: Any,
    ) -> Any:
        values = feed or inputs(STEPS * replicas)
        counts = (1, len(values) // replicas) if stages else (len(values) // replicas, 1)
        config = PLAIN.with_counts(*counts, replicas, stages=tuple(stages))
        layers = [keras.scale(START, bias_initializer="ones", **settings)]
        layers += [keras.tf.keras.layers.Lambda(lambda x: x)] if stages else []

        def optimizer() -> Any:
            inner = generation(keras.tf, legacy).SGD(RATE, momentum=MOMENTUM)
            return wrap(keras.tf, optimizers, inner)

        return keras.chained(config, layers, values, optimizer=optimizer)

    return fitted


def generation(tf: Any, legacy: bool) -> Any:
    """Keras' optimizers of a generation."""
    return tf.keras.optimizers.legacy if legacy else tf.keras.optimizers


def check_descent(model: Any, gradients: Sequence[float]) -> None:
    """The weight is that after updates with these gradients, and the optimizer has counted them."""
    __tracebackhide__ = True
    found = scalars(model)[0], int(model.optimizer.iterations)
    expected = descent(gradients), len(gradients)
    check.equal(actual=found, expected=expected, what="the weight and the optimizer's count of updates")


def over_replicas(replicas: int, steps: int = STEPS) -> List[float]:
    """The gradient of every step: fit adds up those of replicas."""
    return [float(sum(step)) for step in np.reshape(inputs(steps * replicas), (steps, replicas))]


class Way(NamedTuple):
    """How an optimizer is wrapped, settings of the fit, and what is applied of gradients."""

    wrap: Callable[[Any, Any, Any], Any]
    settings: Mapping[str, Any] = {}
    applied: Callable[[List[float]], List[float]] = lambda gradients: gradients


def by_keras(tf: Any, optimizers: Any, inner: Any) -> Any:
    """Keras' own scaling of the loss."""
    return tf.keras.mixed_precision.LossScaleOptimizer(inner, dynamic=False, initial_scale=8)


def scaled(tf: Any, optimizers: Any, inner: Any) -> Any:
    """The vendor's scaling of the loss."""
    return optimizers.ALSOptimizer(inner, 64)


def doubled(gradient: Any, variable: Any) -> Any:
    """Twice a gradient, which comes with its variable."""
    return gradient * 2 if tuple(variable.shape) == (1, 1) else gradient * 0


GENERATIONS = {"new": False, "legacy": True}
WAYS = {
    **{f"keras-scales-{word}-{replicas}": Way(by_keras, {"legacy": legacy, "replicas": replicas})
       for word, legacy in GENERATIONS.items() for replicas in (1, 2)},
    **{f"IpuOptimizer-{word}": Way(lambda tf, optimizers, inner: optimizers.IpuOptimizer(inner), {"legacy": legacy})
       for word, legacy in GENERATIONS.items()},
    **{f"tensorflow-1-{replicas}": Way(
        lambda tf, optimizers, inner: tf.compat.v1.train.MomentumOptimizer(RATE, MOMENTUM), {"replicas": replicas})
       for replicas in (1, 2)},
    # The mean over replicas of what fit has added up is the sum.
    **{f"CrossReplicaOptimizer-{word}-{replicas}": Way(
        lambda tf, optimizers, inner: optimizers.CrossReplicaOptimizer(inner),
        {"legacy": GENERATIONS[word], "replicas": replicas})
       for word, replicas in (("new", 1), ("legacy", 1), ("new", 3))},
    "mapped": Way(lambda tf, optimizers, inner: optimizers.MapGradientOptimizer(inner, doubled),
                  applied=lambda gradients: [2 * value for value in gradients]),
    **{f"scaled-{replicas}": Way(scaled, {"replicas": replicas}) for replicas in (1, 2)},
    **{f"scaled-pipelined-{replicas}": Way(scaled, {"replicas": replicas, "stages": (0, 1)},
                                           lambda gradients: [sum(gradients)]) for replicas in (1, 2)},
    # Gradients are those of the scaled loss until the scaling optimizer gets them.
    "mapped-outside-scaled": Way(
        lambda *given: given[1].MapGradientOptimizer(scaled(*given), lambda gradient, _: gradient - 16),
        applied=lambda gradients: [value - 16 / 64 for value in gradients]),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_a_wrapper_leaves_updates_to_its_optimizer(fit: Any, name: str) -> None:
    """A wrapped optimizer of either generation applies what the wrapper makes of gradients, on replicas their sums.

    Scaling the loss by a power of two changes no bit of an update.
    """
    wrap, settings, applied = WAYS[name]

    check_descent(fit(wrap, **settings), applied(over_replicas(settings.get("replicas", 1))))


def test_a_function_takes_the_mean(tf: Any, ipu: Any, strategy_on: Any, optimizers: Any) -> None:
    """In a function of a strategy CrossReplicaOptimizer applies the mean of the replicas' gradients."""
    strategy = strategy_on(4)
    with strategy.scope():
        weight = tf.Variable(START)
        optimizer = optimizers.CrossReplicaOptimizer(tf.keras.optimizers.SGD(RATE))

        @tf.function
        def step() -> None:
            factor = tf.cast(ipu.replication_ops.replication_index(), tf.float32) + 1
            optimizer.apply_gradients([(factor, weight)])

        strategy.run(step)

    check.equal(actual=float(weight), expected=START - RATE * 2.5, what="the weight after gradients of 1, 2, 3 and 4")


def accumulated(tf: Any, optimizers: Any, inner: Any, method: str) -> Any:
    """An optimizer that updates once for four mini-batches."""
    inner = optimizers.CrossReplicaOptimizer(inner)
    return optimizers.GradientAccumulationOptimizer(inner, 4, reduction_method=method)


def scaled_and_accumulated(*given: Any, method: str) -> Any:
    """The same with gradients of the scaled loss, which are applied as those of the loss."""
    return given[1].ALSGradientAccumulationOptimizer(scaled(*given), 4, reduction_method=method)


@pytest.mark.parametrize(("wrap", "method", "replicas"), [
    *((accumulated, method, replicas) for method in ("SUM", "MEAN", "RUNNING_MEAN") for replicas in (1, 2)),
    *((scaled_and_accumulated, method, 3) for method in ("SUM", "MEAN")),
])  # fmt: skip
def test_gradients_are_accumulated(fit: Any, wrap: Any, method: str, replicas: int) -> None:
    """The wrapped optimizer updates once for four mini-batches, with the sum or the mean of their gradients."""
    wrap = functools.partial(wrap, method=method)
    model = fit(wrap, replicas=replicas, feed=inputs(12 * replicas), use_bias=True)

    shares = 1 if method == "SUM" else 4
    reduced = np.reshape(over_replicas(replicas, 12), (3, 4)).sum(1) / shares
    check_descent(model, reduced.tolist())
    # The gradient of the bias is 1 for every mini-batch of every replica.
    check.equal(actual=scalars(model)[1], expected=descent([4 * replicas / shares] * 3), what="the bias")


MADE = {
    "ALSOptimizerAdam": {"learning_rate": 0.25, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.125},
    "ALSOptimizerSGD": {"learning_rate": 0.25, "momentum": 0.5},
    "ALSOptimizerRMSProp": {"learning_rate": 0.25, "rho": 0.5, "momentum": 0.75, "epsilon": 0.125, "centered": True},
}
SCALED = {"initial_loss_scaling_factor": 16, "update_frequency": 3, "increase_factor": 4, "ratio_threshold": 0.25}


@pytest.mark.parametrize("name", MADE)
def test_an_optimizer_may_be_made_with_its_scaling(optimizers: Any, name: str) -> None:
    """The settings of the optimizer and of its scaling arrive where they belong, and in a copy."""
    settings = {**MADE[name], **SCALED, "name": "own"}
    optimizer = getattr(optimizers, name)(**settings)

    for made in (optimizer, type(optimizer).from_config(optimizer.get_config())):
        config = made.get_config()
        check.equal(actual={key: config.get(key) for key in settings}, expected=settings, what=f"settings of {name}")
        check.equal(actual=float(made.decrease_factor), expected=0.25, what="decrease_factor")


@pytest.mark.parametrize(("dtype", "feed", "factor"), [
    ("float32", inputs(STEPS), 8 * 2**STEPS), ("float16", inputs(STEPS), 8 * 2**STEPS), ("float16", [2.0**12] * 3, 1),
], ids=["float32 grows", "small grows", "large shrinks"])  # fmt: skip
def test_the_factor_follows_gradients_in_float16(fit: Any, dtype: str, feed: List[float], factor: float) -> None:
    """With every update the factor is doubled, or halved where gradients in float16 exceed the edge.

    Gradients of 4096 times 8, 4 and 2 reach the edge of 8192: the factor is 1 after three updates, and grows and
    shrinks after that. Where no gradient is in float16 none is too large.
    """
    model = fit(
        lambda tf, optimizers, inner: optimizers.ALSOptimizer(inner, 8, update_frequency=1), dtype=dtype, feed=feed
    )

    found = float(model.optimizer.loss_scaling_factor)
    check.equal(actual=found, expected=factor, what=f"the loss_scaling_factor after {len(feed)} updates")
    model.optimizer.reset()
    check.equal(actual=float(model.optimizer.loss_scaling_factor), expected=8, what="the factor after a reset")


class Scaled:
    """Four weights in float16 whose gradients an optimizer that scales losses is given: three of 1, and a large one."""

    def __init__(self, tf: Any, strategy: Any, optimizers: Any, **settings: Any) -> None:
        with strategy.scope():
            self.small, self.large = tf.Variable(np.ones(3, np.float16)), tf.Variable(np.float16(1.0))
            self.optimizer = optimizers.ALSOptimizer(tf.keras.optimizers.SGD(2.0**-6), **settings)

        @tf.function
        def step(captured: Any) -> None:
            gradients = [tf.ones(3, tf.float16), tf.constant(2.0**14, tf.float16)]
            pairs = zip(gradients, [self.small, self.large])
            self.optimizer.apply_gradients(pairs, captured_grads=captured or None)

        self.run = lambda captured: strategy.run(step, args=(captured,))

    def shown(self) -> List[float]:
        """The factor, the one before, the counted updates, and the elements below and above the edge."""
        shown = self.optimizer
        numbers = (shown.loss_scaling_factor, shown.previous_loss_scaling_factor, shown.update_counter)
        return [float(number) for number in numbers] + np.asarray(shown.histogram).tolist()

    def after(self, updates: int, captured: Any = None) -> List[List[float]]:
        """The same after each of so many updates."""
        seen = []
        for _ in range(updates):
            self.run(captured or {})
            seen.append(self.shown())
        return seen


@pytest.fixture
def scaling(tf: Any, strategy: Any, optimizers: Any) -> Callable[..., Scaled]:
    """Makes the weights and their optimizer with settings."""
    return functools.partial(Scaled, tf, strategy, optimizers)


SHOWN = "the factor, the one before, the updates, and the elements below and above the edge, by update"


def test_what_was_counted_can_be_read_and_reset(scaling: Any) -> None:
    """An optimizer shows what it has counted since its factor may have changed, and a reset forgets that, too.

    Three of four elements stay below the edge, and the factor grows where at most a half reaches it. Gradients of 1
    are divided by the factor of their own update.
    """
    device = scaling(initial_loss_scaling_factor=2, update_frequency=3, increase_factor=4, ratio_threshold=0.5)
    seen = device.after(2)
    shares, moved = np.asarray(device.optimizer.normalized_histogram).tolist(), device.small.numpy().tolist()
    device.optimizer.reset()
    seen.append(device.shown())

    expected = [[2, 2, 1, 3, 1], [2, 2, 2, 6, 2], [2, 2, 0, 0, 0]]
    check.equal(actual=seen, expected=expected, what=f"{SHOWN}, and after a reset")
    check.equal(actual=shares, expected=[0.75, 0.25], what="normalized_histogram after two updates")
    check.equal(actual=moved, expected=[1 - 2.0**-6 * (2 / 2)] * 3, what="the small weights after two updates")


def test_the_factor_changes_after_some_updates(scaling: Any) -> None:
    """With a frequency of three the factor first changes with the fourth update, which counts all of them.

    A quarter of all elements is large, which is a third of the others.
    """
    device = scaling(initial_loss_scaling_factor=2, update_frequency=3, ratio_threshold=0.3)

    expected = [[2, 2, 1, 3, 1], [2, 2, 2, 6, 2], [2, 2, 3, 9, 3], [4, 2, 0, 0, 0], [4, 2, 1, 3, 1]]
    check.equal(actual=device.after(5), expected=expected, what=SHOWN)


BOUNDS = {
    "maximum": ({"max_loss_scaling_factor": 16, "ratio_threshold": 0.5}, [2, 4, 8, 8, 8], [2, 4, 4, 4]),
    "minimum": ({}, [2, 1, 1, 1, 1], [2, 2, 2, 2]),
}
"""The factors at the beginning and by update, and those before."""


@pytest.mark.parametrize("name", BOUNDS)
def test_a_factor_stays_within_its_bounds(scaling: Any, name: str) -> None:
    """A change that would lead to the maximum, or below 1, is left out; the factor before it stays known."""
    settings, factors, before = BOUNDS[name]
    device = scaling(initial_loss_scaling_factor=2, update_frequency=1, **settings)
    seen = device.after(4)

    check.equal(actual=[each[0] for each in seen], expected=factors[1:], what="loss_scaling_factor, by update")
    check.equal(actual=[each[1] for each in seen], expected=before, what="previous_loss_scaling_factor, by update")
    moved = [1 - 2.0**-6 * sum(1 / factor for factor in factors[:-1])] * 3
    check.equal(actual=device.small.numpy().tolist(), expected=moved, what="the weights whose scaled gradient is 1")


COUNTED: Dict[str, Tuple[Dict[str, Any], List[List[float]]]] = {
    "too": ({"captured_grads_only": False}, [[3 + 4, 1 + 2], [6 + 8, 2 + 4]]),
    "only": ({"captured_grads_only": True}, [[4, 2], [8, 4]]),
    "filtered": ({"lpf_alpha": 0.75}, [[0.75, 0.25], [1.5, 0.5], [2.25, 0.75]]),
}
"""Settings, and the elements below and above the edge by update: of four own ones, and of six captured ones."""


@pytest.mark.parametrize("name", COUNTED)
def test_captured_gradients_are_counted(tf: Any, scaling: Any, name: str) -> None:
    """Gradients of activations that an update is given are counted too, or they alone: two of six are large.

    With ``lpf_alpha`` a histogram keeps what it has, and takes the rest of one with the new elements.
    """
    settings, counts = COUNTED[name]
    large = tf.constant([1.0, -(2.0**14), 2.0, 2.0**13], tf.float16)
    captured = {"one": [large], "two": [tf.zeros(2, tf.float16), tf.fill(7, 2.0**20)]}
    seen = scaling(update_frequency=4, **settings).after(len(counts), captured if name in ("too", "only") else None)

    check.equal(actual=[each[3:] for each in seen], expected=counts, what="the elements below and above the edge")


NO_OPTIMIZER = "pass a Keras optimizer"
REFUSED = {
    **{name: ("ALSOptimizer", {name: value}, name) for name, value in (
        ("initial_loss_scaling_factor", 3), ("increase_factor", 6), ("max_loss_scaling_factor", 1000),
        ("update_frequency", 0), ("ratio_threshold", 1.0))},
    # A first factor that would reach the maximum when it is increased.
    "half-the-maximum": ("ALSOptimizer", {"initial_loss_scaling_factor": 16, "max_loss_scaling_factor": 32},
                         "max_loss_scaling_factor"),
    **{f"num_mini_batches-{number}": ("GradientAccumulationOptimizer", {"num_mini_batches": number}, "num_mini_batches")
       for number in (0, -1, True)},
    **{f"{name}-of-a-word": (name, {}, NO_OPTIMIZER) for name in (
        "IpuOptimizer", "CrossReplicaOptimizer", "ALSOptimizer")},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_wrappers_that_cannot_work_are_refused(tf: Any, optimizers: Any, name: str) -> None:
    """Factors are powers of two, numbers of updates and mini-batches positive, and a threshold between 0 and 1.

    What is not a Keras optimizer is not wrapped.
    """
    wrapper, settings, message = REFUSED[name]
    with check.raises(ValueError, match=message, what=f"{wrapper} with {settings} ({name})"):
        getattr(optimizers, wrapper)("sgd" if message == NO_OPTIMIZER else tf.keras.optimizers.SGD(), **settings)


@pytest.mark.parametrize("device", ["function"], indirect=True)
def test_scaled_gradients_are_accumulated_in_a_loop(device: Device, optimizers: Any) -> None:
    """In a loop gradients of the scaled loss are accumulated and applied as those of the loss."""
    device.open(1)
    queue = device.infeed(np.array(inputs(STEPS), np.float32))
    device.variable("w", START)
    optimizer = optimizers.ALSOptimizerGradientAccumulationWrapper(
        optimizers.ALSOptimizer(device.tf.keras.optimizers.SGD(RATE, momentum=MOMENTUM), 64), 2
    )

    def body(x: Any) -> Any:
        weight = device.variable("w", START)
        return optimizer.minimize(weight * x, var_list=[weight])

    device.repeat(STEPS, body, queue)

    pairs = np.reshape(inputs(STEPS), (STEPS // 2, 2)).sum(1)
    check.equal(actual=float(device.read(["w"])[0]), expected=descent(pairs.tolist()), what="the weight")


def test_the_learning_rate_is_that_of_the_wrapped(tf: Any, optimizers: Any) -> None:
    """Who asks a wrapper for its learning rate, or sets it, reaches the wrapped optimizer."""
    inner = tf.keras.optimizers.SGD(RATE)
    outer = optimizers.CrossReplicaOptimizer(optimizers.IpuOptimizer(inner))

    outer.learning_rate = 0.5

    rates = [float(rate) for rate in (inner.learning_rate, outer.learning_rate, outer.lr)]
    check.equal(actual=rates, expected=[0.5] * 3, what="the wrapped optimizer's and the wrapper's learning rates")


WRAPPERS: Dict[str, Dict[str, Any]] = {
    "GradientAccumulationOptimizer": {"num_mini_batches": 3},
    "ALSOptimizer": SCALED,
}


@pytest.mark.parametrize(
    ("name", "legacy"),
    [("GradientAccumulationOptimizer", False), ("GradientAccumulationOptimizer", True), ("ALSOptimizer", True)],
    ids=["new", "legacy", "scaling"],
)
def test_a_wrapper_is_made_again_from_its_configuration(tf: Any, optimizers: Any, name: str, legacy: bool) -> None:
    """A configuration holds the wrapper's name and settings, and the type and settings of the optimizer inside."""
    owner, settings = generation(tf, legacy), {"name": "own", **WRAPPERS[name]}
    outer = getattr(optimizers, name)(owner.Adam(RATE), **settings)

    again = type(outer).from_config(outer.get_config())

    check.equal(actual=type(again), expected=type(outer), what="the type of the copy")
    check.equal(actual=float(again.learning_rate), expected=RATE, what="the learning rate of the copy")
    for what, config in (("the wrapper", outer.get_config()), ("the copy", again.get_config())):
        actual = {key: config.get(key) for key in settings}
        check.equal(actual=actual, expected=settings, what=f"the configuration of {what}")
        check.equal(actual=config.get("inner_optimizer_type"), expected=owner.Adam, what=f"the type in {what}")
        inner = config.get("inner_optimizer_config", {})
        check.equal(actual=inner.get("learning_rate"), expected=RATE, what=f"the learning rate in {what}")


@pytest.mark.parametrize(
    "setting", ["offload_weight_update_variables", "replicated_optimizer_state_sharding", "reduction_method"]
)
def test_a_configuration_tells_how_gradients_are_accumulated(tf: Any, optimizers: Any, setting: str) -> None:
    """Each setting of the accumulation gives another configuration, which a copy keeps."""
    value = "MEAN" if setting == "reduction_method" else True
    wrap = functools.partial(optimizers.GradientAccumulationOptimizer, num_mini_batches=3)
    plain, asked = (wrap(tf.keras.optimizers.legacy.SGD(RATE), **more) for more in ({}, {setting: value}))
    again = type(asked).from_config(asked.get_config())

    told = [wrapper.get_config().get(setting) for wrapper in (plain, asked, again)]
    check.holds(told[0] != told[1], f"a configuration says {told[1]!r} for {setting}, set to {value!r} or not set.")
    check.equal(actual=told[2], expected=told[1], what=f"{setting} in the configuration of a copy")


@pytest.mark.parametrize("name", WRAPPERS)
def test_slots_are_those_of_the_wrapped(tf: Any, strategy: Any, optimizers: Any, name: str) -> None:
    """Who asks a wrapper for a slot of a weight gets the wrapped optimizer's."""
    with strategy.scope():
        weights = [tf.Variable(start, name=f"w{start}") for start in (1.0, 2.0, 3.0)]
        inner = tf.keras.optimizers.legacy.SGD(RATE, momentum=MOMENTUM)
        wrapper = getattr(optimizers, name)(inner, **WRAPPERS[name])
        inner._create_all_weights(weights)

    for weight in weights:
        slot = inner.get_slot(weight, "momentum")
        check.holds(wrapper.get_slot(weight, "momentum") is slot, f"the momentum of {weight.name} is another's.")
    check.equal(actual=wrapper.get_slot_names(), expected=["momentum"], what="the names of the slots")


@pytest.mark.parametrize("narrow", [(), (0, 2), (0, 1, 2, 3)], ids=["own", "by-variable", "float16"])
def test_every_weight_has_an_accumulator_of_its_type(tf: Any, strategy: Any, optimizers: Any, narrow: Any) -> None:
    """The accumulators of four weights have the type that was asked for, and begin again after every update.

    In float16 2048 and 1 add up to 2048.
    """
    with strategy.scope():
        weights = [tf.Variable(0.0, name=f"w{number}") for number in range(4)]
        types = {f"w{number}:0": tf.float16 if number in narrow else tf.float32 for number in range(4)}
        dtype = {0: None, 2: lambda weight: types[weight.name], 4: tf.float16}[len(narrow)]
        optimizer = optimizers.GradientAccumulationOptimizer(tf.keras.optimizers.SGD(1.0), 2, dtype=dtype)

        @tf.function
        def step(gradient: Any) -> None:
            optimizer.apply_gradients([(gradient, weight) for weight in weights])

        for gradient in (2048.0, 1.0, 2048.0, 1.0, 2048.0, 1.0):
            strategy.run(step, args=(tf.constant(gradient),))

    expected = [-3 * 2048.0 if number in narrow else -3 * 2049.0 for number in range(4)]
    check.equal(actual=[float(weight) for weight in weights], expected=expected, what="the weights after three updates")
