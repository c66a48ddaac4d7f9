"""Optimizers that wrap others: means over replicas, accumulation, mapping, loss scaling."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance
from ipu_conformance.run import RunConfig

from ..device_programs import Device
from ..exact import RATE, START, check_weight, counts, samples, trained

NAMES = ("w0", "w1", "w2")
"""The weights; the gradient of each is another multiple of the sample."""
SCALES = np.arange(1, len(NAMES) + 1, dtype=np.float32)


def train(
    device: Device, wrap: Callable[[Any], Any], steps: int, replicas: int = 1, rate: float = RATE, fed: Any = None
) -> List[np.ndarray]:
    """The weights after a loop of ``steps`` iterations with a wrapped optimizer of TensorFlow 1."""
    queue = device.open(replicas).infeed(samples(steps * replicas) if fed is None else fed)
    device.declare(**dict(zip(NAMES, START)))

    def body(x: Any) -> Any:
        weights = [device.variable(name, start) for name, start in zip(NAMES, START)]
        inner = device.tf.compat.v1.train.GradientDescentOptimizer(rate)
        loss = sum(float(scale) * weight * x for scale, weight in zip(SCALES, weights))
        return wrap(inner).minimize(loss, var_list=weights)

    device.repeat(steps, body, queue)
    return device.read(NAMES)


def check_weights(actual: List[np.ndarray], config: RunConfig, fed: Optional[np.ndarray] = None) -> None:
    """Each weight is what the oracle's training leaves, bit by bit."""
    __tracebackhide__ = True
    fed = samples(config.micro_batches) if fed is None else fed
    for name, start, scale, weight in zip(NAMES, START, SCALES, actual):
        expected = trained(1, config, (start,), fed=scale * fed).weights[0]
        check.identical(actual=weight, expected=expected, what=f"the weight {name}")


WRAPPED: Dict[str, Tuple[str, Tuple[int, int, int], str]] = {
    **{f"mean-{replicas}": ("CrossReplicaOptimizer", (3, 1, replicas), "SUM") for replicas in (1, 4, 8)},
    **{f"{method}-{count}": ("GradientAccumulationOptimizerV2", (3, count, 1), method)
       for method, count in (("SUM", 1), ("SUM", 5), ("MEAN", 4), ("MEAN", 8), ("RUNNING_MEAN", 2))},
    "V2-1": ("CrossReplicaGradientAccumulationOptimizerV2", (2, 3, 1), "SUM"),
    "V2-4": ("CrossReplicaGradientAccumulationOptimizerV2", (2, 3, 4), "SUM"),
    "V1-4": ("CrossReplicaGradientAccumulationOptimizer", (2, 3, 4), "SUM"),
    "IpuOptimizer": ("IpuOptimizer", (3, 1, 1), "SUM"),
    "ShardedOptimizer": ("ShardedOptimizer", (3, 1, 1), "SUM"),
}  # fmt: skip
"""A wrapper; updates, mini-batches of each, and replicas; and how mini-batches are reduced."""


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_optimizers_update_as_specified(device: Device, name: str) -> None:
    """Replicas apply the mean of what each has accumulated, alone, over its mini-batches; some wrappers do nothing."""
    kind, (updates, count, replicas), method = WRAPPED[name]
    settings: Dict[str, Any] = {"num_mini_batches": count} if "Accumulation" in kind else {}
    if kind == "GradientAccumulationOptimizerV2":
        methods = device.ipu.gradient_accumulation.GradientAccumulationReductionMethod
        settings["reduction_method"] = methods[method]
    wrapper = getattr(device.ipu.optimizers, kind)
    weights = train(device, lambda opt: wrapper(opt, **settings), updates * count, replicas)

    check_weights(weights, counts(updates, count, replicas, accumulation_reduction=method.lower()))


def test_without_it_replicas_go_apart(device: Device) -> None:
    """An optimizer alone applies each replica's own gradients: the host sees replica 0."""
    weights = train(device, lambda opt: opt, 3, replicas=4)

    check_weights(weights, counts(3), fed=samples(12)[::4])


@pytest.mark.parametrize("count", [3, 5])
def test_a_running_mean_is_kept_up(device: Device, count: int) -> None:
    """The running mean is the mean up to rounding: two products and a sum for each mini-batch."""
    wrapped = device.ipu.optimizers.GradientAccumulationOptimizerV2
    weights = train(device, lambda opt: wrapped(opt, count, reduction_method="running_mean"), count)

    unit, fed = FORMATS["float32"].unit, samples(count).astype(np.float64)
    for name, start, scale, weight in zip(NAMES, START, SCALES.tolist(), weights):
        expected = np.float64(start - RATE * scale * fed.mean())
        bound = count * 4 * unit * RATE * scale * fed.max() + unit * np.maximum(abs(start), abs(expected))
        tolerance = Tolerance(np.array(bound, np.float64), "four roundings a mini-batch, and the update's", 0.0)
        check.close(actual=weight, expected=expected, tolerance=tolerance, what=f"the weight {name}")


def test_every_optimizer_of_a_loop_updates(device: Device) -> None:
    """Optimizers that accumulate in one loop, each for a weight of its own, all update when it is time."""
    queue, wrapped = device.open().infeed(samples(6)), device.ipu.optimizers.GradientAccumulationOptimizerV2
    device.declare(**dict(zip(NAMES, START)))

    def body(x: Any) -> Any:
        weights = [device.variable(name, start) for name, start in zip(NAMES, START)]
        make = device.tf.compat.v1.train.GradientDescentOptimizer
        optimizers = [wrapped(make(RATE * scale), 3) for scale in SCALES.tolist()]
        return [opt.minimize(weight * x, var_list=[weight]) for opt, weight in zip(optimizers, weights)]

    device.repeat(6, body, queue)

    steps = RATE * SCALES.astype(np.float64) * samples(6).astype(np.float64).sum()
    for name, start, step, weight in zip(NAMES, START, steps, device.read(NAMES)):
        check.identical(actual=weight, expected=np.float32(start - step), what=f"the weight {name} after two updates")


@pytest.mark.parametrize("steps", [4, 5, 7])
def test_a_loop_holds_whole_accumulations(device: Device, steps: int) -> None:
    """A loop with a part of an accumulation left over fails when it runs, without an update."""
    wrapped, error = device.ipu.optimizers.GradientAccumulationOptimizerV2, device.tf.errors.FailedPreconditionError

    sentence = f"3 mini-batches in a loop of {steps} iter"
    with check.raises(error, match=sentence, what=f"an accumulation of 3 in {steps} iterations"):
        train(device, lambda opt: wrapped(opt, 3), steps)
    check.equal(actual=device.read(["w0"]), expected=[START[0]], what="the weight after the loop failed")


TYPES: Dict[str, Tuple[Any, List[str]]] = {
    "own": (lambda tf: None, ["float32"] * 3),
    "float16": (lambda tf: tf.float16, ["float16"] * 3),
    "by-variable": (
        lambda tf: lambda variable: tf.float16 if variable.name.startswith("w1") else tf.float32,
        ["float32", "float16", "float32"],
    ),
}


@pytest.mark.parametrize("name", TYPES)
def test_accumulation_may_use_another_type(device: Device, name: str) -> None:
    """Gradients are accumulated in their own or the given type: 2048 + 1 is 2048 in float16."""
    make, types = TYPES[name]
    wrapped, fed = device.ipu.optimizers.GradientAccumulationOptimizerV2, np.asarray([2048, 1], np.float32)
    weights = train(device, lambda opt: wrapped(opt, 2, dtype=make(device.tf)), 2, rate=1.0, fed=fed)

    for weight, start, scale, held in zip(weights, START, SCALES, types):
        expected = np.float32(start) - np.float32((scale * fed).astype(held).sum(dtype=held))
        check.identical(actual=weight, expected=expected, what=f"the weight whose gradient is held in {held}")


def test_the_first_version_is_for_linear_optimizers(tf: Any, ipu: Any) -> None:
    """The older optimizer refuses to wrap Adam unless it is told not to check."""
    optimizers, wrapped = tf.compat.v1.train, ipu.optimizers.GradientAccumulationOptimizer

    with check.raises(ValueError, match="AdamOptimizer", what="the accumulation of Adam"):
        wrapped(optimizers.AdamOptimizer(1.0), 2)
    wrapped(optimizers.AdamOptimizer(1.0), 2, verify_usage=False)
    wrapped(optimizers.MomentumOptimizer(1.0, 0.5), 2)


@pytest.mark.parametrize("name", ["MapGradientOptimizer", "MapGradientOptimizerInvertedChaining"])
def test_gradients_are_mapped(device: Device, name: str) -> None:
    """The function of a gradient and its variable replaces the gradient."""
    wrapped = getattr(device.ipu.optimizers, name)
    weights = train(device, lambda opt: wrapped(opt, lambda gradient, weight: gradient - 2 * weight), 3)

    for place, (expected, scale) in enumerate(zip(START, SCALES.tolist())):
        for x in samples(3).tolist():
            expected -= RATE * (scale * x - 2 * expected)
        check.identical(actual=weights[place], expected=np.float32(expected), what=f"the weight {NAMES[place]}")


def test_wrappers_can_be_wrapped(device: Device) -> None:
    """Mapping inside of accumulation maps every mini-batch's gradient."""
    optimizers = device.ipu.optimizers

    def wrap(opt: Any) -> Any:
        mapped = optimizers.MapGradientOptimizer(opt, lambda gradient, _: device.tf.minimum(gradient, 2.0))
        return optimizers.CrossReplicaGradientAccumulationOptimizerV2(mapped, 3)

    for name, start, scale, weight in zip(NAMES, START, SCALES, train(device, wrap, 3)):
        expected = np.float32(start - RATE * np.minimum(scale * samples(3), 2.0).sum())
        check.identical(actual=weight, expected=expected, what=f"the weight {name}")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("CrossReplicaOptimizer", ()), ("GradientAccumulationOptimizerV2", (3,)), ("MapGradientOptimizer", (max,))],
    ids=["mean", "accumulation", "mapping"],
)
def test_wrappers_show_the_state_of_what_they_wrap(tf: Any, ipu: Any, name: str, settings: Any) -> None:
    """Slots, their names and all variables are those of the wrapped optimizer."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        weights = [v1.get_variable(weight, initializer=start, use_resource=True) for weight, start in zip(NAMES, START)]
        inner = v1.train.AdamOptimizer(RATE)
        inner.apply_gradients([(tf.ones([]), weight) for weight in weights])
        wrapper = getattr(ipu.optimizers, name)(inner, *settings)

        check.equal(actual=sorted(wrapper.get_slot_names()), expected=["m", "v"], what="the names of the slots")
        found = [wrapper.get_slot(weight, slot).name for weight in weights for slot in ("m", "v")]
        expected = [f"{weight}/Adam{slot}:0" for weight in NAMES for slot in ("", "_1")]
        check.equal(actual=found, expected=expected, what="the slots")
        powers = ["beta1_power:0", "beta2_power:0"]
        actual = sorted(variable.name for variable in wrapper.variables())
        check.equal(actual=actual, expected=sorted([*expected, *powers]), what="the variables")


@pytest.mark.parametrize("replicas", [1, 4])
def test_keras_optimizers_can_be_wrapped(tf: Any, ipu: Any, eager: Device, replicas: int) -> None:
    """In a function a gradient tape and a Keras optimizer train as a TensorFlow 1 optimizer does."""
    device = eager.open(replicas)
    queue, weight = device.infeed(samples(6 * replicas)), device.variable("w0", START[0])
    with device.strategy.scope():
        inner = tf.keras.optimizers.SGD(RATE, momentum=0.5)
        inner.build([weight])
    opt = ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(inner, 3)

    def body(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = weight * x
        return opt.apply_gradients([(tape.gradient(loss, weight), weight)])

    device.repeat(6, body, queue)

    check_weight(weight.numpy(), counts(2, 3, replicas, momentum=0.5))


def scaling(tf: Any, ipu: Any, **settings: Any) -> Any:
    """Plain gradient descent with a loss that is scaled."""
    return ipu.optimizers.AutomaticLossScalingOptimizer(tf.compat.v1.train.GradientDescentOptimizer(RATE), **settings)


@pytest.mark.parametrize("factor", [1.0, 8.0])
def test_a_scaled_loss_trains_alike(tf: Any, ipu: Any, strategy: Any, factor: float) -> None:
    """Gradients are computed of the scaled loss, and scaled back."""
    with strategy.scope():
        weight, opt = tf.Variable(START[0]), scaling(tf, ipu, initial_loss_scaling_factor=factor)

    @tf.function
    def step() -> Any:
        pairs = opt.compute_gradients(3.0 * weight, var_list=[weight])
        opt.apply_gradients(pairs)
        return pairs[0][0]

    results = {"gradient": float(strategy.run(step)), "weight": float(weight)}
    expected = {"gradient": 3.0, "weight": START[0] - RATE * 3}
    check.equal(actual=results, expected=expected, what="the gradient of the loss itself, and the weight")


STEADY, EVERY_OTHER = [16384] * 8, [49152, 1] * 4
FACTORS: Dict[str, Tuple[Dict[str, Any], Sequence[float], List[float]]] = {
    "default": ({}, STEADY, [2, 4, 4, 2, 2, 4, 4, 2]),
    "increase": ({"increase_factor": 4.0}, [4096] * 8, [2, 8, 8, 32, 32, 16, 16, 8]),
    "decrease": ({"decrease_factor": 0.25}, STEADY, [2, 4, 4, 1, 1, 2, 2, 4]),
    "maximum": ({"max_loss_scaling_factor": 8}, [1] * 8, [2, 4, 4, 4, 4, 4, 4, 4]),
    "minimum": ({"initial_loss_scaling_factor": 1.0}, [np.inf] * 8, [1] * 8),
    "threshold": ({"ratio_threshold": 0.5}, STEADY, [2, 4, 4, 8, 8, 16, 16, 32]),
    "infinite": ({"initial_loss_scaling_factor": 8.0}, [1, np.inf, 1, 1, 1, 1, np.inf, 1], [8, 4, 4, 8, 8, 16, 16, 8]),
    "all updates": ({}, EVERY_OTHER, [2, 1, 1, 2, 2, 1, 1, 2]),
    "last update": ({"accumulate_statistics_over_update_period": False}, EVERY_OTHER, [2, 4, 4, 8, 8, 16, 16, 32]),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTORS)
def test_the_scale_follows_gradients_in_float16(tf: Any, ipu: Any, strategy: Any, name: str) -> None:
    """Every two updates the factor grows, unless gradients overflowed float16: then it shrinks.

    The second weight's gradient overflows from a loss on that is scaled above 65504; it has one of the four elements.
    A factor stays from 1 on and below its maximum: a change that would lead there is left out.
    """
    settings, gradients, expected = FACTORS[name]
    settings = {"initial_loss_scaling_factor": 2.0, "update_frequency": 2, **settings}
    with strategy.scope():
        small, large = tf.Variable(np.ones(3, np.float16)), tf.Variable(np.float16(1.0))
        opt = scaling(tf, ipu, **settings)

    @tf.function
    def step(gradient: Any) -> Any:
        loss = tf.reduce_sum(small) + gradient * large
        opt.apply_gradients(opt.compute_gradients(loss, var_list=[small, large]))
        return opt.loss_scaling_factor

    factors = [float(strategy.run(step, args=(tf.constant(each, tf.float16),))) for each in gradients]
    check.equal(actual=factors, expected=expected, what="loss_scaling_factor, by update")
    moved = [1 - RATE * len(gradients)] * 3
    check.equal(actual=small.numpy().tolist(), expected=moved, what="the weights whose gradient is 1")
