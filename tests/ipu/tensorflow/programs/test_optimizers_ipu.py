"""Optimizers that wrap others: means over replicas, accumulation, mapping, loss scaling."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance

from ..device_programs import Device
from ..exact import RATE, START, check_weight, counts, samples, trained

METHODS = ("SUM", "MEAN", "RUNNING_MEAN")


def train(device: Device, wrap: Callable[[Any], Any], steps: int, replicas: int = 1, momentum: float = 0.0) -> Any:
    """The weight after so many iterations of a loop with a wrapped optimizer of TensorFlow 1."""
    device.open(replicas)
    v1, queue = device.tf.compat.v1, device.infeed(samples(steps * replicas))
    if device.mode == "function":
        device.variable("w0", START[0])

    def body(x: Any) -> Any:
        weight = device.variable("w0", START[0])
        inner = v1.train.MomentumOptimizer(RATE, momentum) if momentum else v1.train.GradientDescentOptimizer(RATE)
        return wrap(inner).minimize(weight * x, var_list=[weight])

    with device.tf.device("/device:CPU:0"):
        device.repeat(steps, body, queue)
    return device.read(["w0"])[0]


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_cross_replica_takes_the_mean(device: Device, replicas: int) -> None:
    """Every replica applies the mean over replicas of the gradients of one iteration."""
    got = train(device, device.ipu.optimizers.CrossReplicaOptimizer, 3, replicas)

    check_weight(got, counts(3, replicas=replicas))


def test_without_it_replicas_go_apart(device: Device) -> None:
    """An optimizer alone applies each replica's own gradients: the host sees replica 0."""
    got = train(device, lambda opt: opt, 3, replicas=2)

    alone = trained(1, counts(3), fed=samples(6)[::2])
    check.identical(actual=got, expected=alone.weights[0], what="the weight of replica 0")


def test_the_wrapped_optimizer_keeps_its_state(device: Device) -> None:
    """Momentum works on the means."""
    if device.mode == "function":
        device = Device(device.tf, device.ipu, device._configure, "graph")
    got = train(device, device.ipu.optimizers.CrossReplicaOptimizer, 3, replicas=2, momentum=0.5)
    device.close()

    check_weight(got, counts(3, replicas=2, momentum=0.5))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 2])
def test_gradients_are_accumulated(device: Device, method: str, count: int) -> None:
    """After every so many mini-batches there is one update, with the sum or the mean of their gradients."""
    methods = device.ipu.gradient_accumulation.GradientAccumulationReductionMethod
    wrapped = device.ipu.optimizers.GradientAccumulationOptimizerV2
    got = train(device, lambda opt: wrapped(opt, count, reduction_method=methods[method]), 3 * count)

    check_weight(got, counts(3, count, accumulation_reduction=method.lower()))


def test_a_running_mean_is_kept_up(device: Device) -> None:
    """Over three mini-batches the running mean is their mean up to rounding: two products and a sum for each."""
    wrapped = device.ipu.optimizers.GradientAccumulationOptimizerV2
    got = train(device, lambda opt: wrapped(opt, 3, reduction_method="running_mean"), 3)

    mean = samples(3).astype(np.float64).mean()
    bound = 3 * 4 * FORMATS["float32"].unit * RATE * samples(3).max() + FORMATS["float32"].unit * START[0]
    check.close(
        actual=got,
        expected=np.float64(START[0] - RATE * mean),
        tolerance=Tolerance(np.array(bound, np.float64), "three steps of four roundings each, and the update's", 0.0),
        what="the weight",
    )


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    "name", ["CrossReplicaGradientAccumulationOptimizerV2", "CrossReplicaGradientAccumulationOptimizer"]
)
def test_accumulation_comes_before_the_mean_over_replicas(device: Device, replicas: int, name: str) -> None:
    """Replicas accumulate alone, meet once for each update, and apply the mean."""
    wrapped = getattr(device.ipu.optimizers, name)
    got = train(device, lambda opt: wrapped(opt, 2), 4, replicas)

    check_weight(got, counts(2, 2, replicas))


@pytest.mark.parametrize("steps", [4, 5, 7])
def test_a_loop_holds_whole_accumulations(device: Device, steps: int) -> None:
    """A number of iterations that the mini-batches do not divide fails when it runs, without an update."""
    wrapped = device.ipu.optimizers.GradientAccumulationOptimizerV2

    with pytest.raises(device.tf.errors.FailedPreconditionError, match=f"3 mini-batches in a loop of {steps} iter"):
        train(device, lambda opt: wrapped(opt, 3), steps)
    assert device.read(["w0"]) == [START[0]]


def test_accumulation_needs_a_loop(device: Device) -> None:
    """Outside of loops there are no mini-batches to count."""
    device.open()
    wrapped = device.ipu.optimizers.GradientAccumulationOptimizerV2
    v1 = device.tf.compat.v1
    device.variable("w0", START[0])

    def program() -> Any:
        weight = device.variable("w0", START[0])
        return wrapped(v1.train.GradientDescentOptimizer(RATE), 2).minimize(3 * weight, var_list=[weight])

    with pytest.raises(ValueError, match="outside of a loop"):
        device.run(program)


def test_accumulation_may_use_another_type(device: Device) -> None:
    """Gradients are accumulated in the type that is asked for: float16 forgets what is too small."""
    wrapped = device.ipu.optimizers.GradientAccumulationOptimizerV2
    device.open()
    v1, queue = device.tf.compat.v1, device.infeed(np.asarray([2048.0, 1.0], np.float32))
    if device.mode == "function":
        device.variable("w0", START[0])

    def body(x: Any) -> Any:
        weight = device.variable("w0", START[0])
        opt = wrapped(v1.train.GradientDescentOptimizer(1.0), 2, dtype=device.tf.float16)
        return opt.minimize(weight * x, var_list=[weight])

    device.repeat(2, body, queue)

    assert device.read(["w0"]) == [START[0] - float(np.float16(2048.0) + np.float16(1.0))]


@pytest.mark.parametrize("number", [0, -1, 1.5, True])
def test_a_number_of_mini_batches_is_positive(tf: Any, ipu: Any, number: Any) -> None:
    """At least one mini-batch is accumulated."""
    with pytest.raises(ValueError, match="num_mini_batches"):
        ipu.optimizers.GradientAccumulationOptimizerV2(tf.compat.v1.train.GradientDescentOptimizer(1.0), number)


@pytest.mark.parametrize("method", ["most", 7])
def test_an_unknown_reduction_is_refused(tf: Any, ipu: Any, method: Any) -> None:
    """A reduction is a member of the enumeration or its name."""
    with pytest.raises(ValueError, match=r"Cannot parse .* as one of GradientAccumulationReductionMethod"):
        ipu.optimizers.GradientAccumulationOptimizerV2(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), 2, reduction_method=method
        )


def test_the_first_version_is_for_linear_optimizers(tf: Any, ipu: Any) -> None:
    """The older optimizer checks what it wraps unless it is told not to."""
    adam = tf.compat.v1.train.AdamOptimizer(1.0)
    wrapped = ipu.optimizers.GradientAccumulationOptimizer

    with pytest.raises(ValueError, match="AdamOptimizer"):
        wrapped(adam, 2)
    assert wrapped(adam, 2, verify_usage=False)
    assert wrapped(tf.compat.v1.train.MomentumOptimizer(1.0, 0.5), 2)


@pytest.mark.parametrize("name", ["MapGradientOptimizer", "MapGradientOptimizerInvertedChaining"])
def test_gradients_are_mapped(device: Device, name: str) -> None:
    """The function of a gradient and its variable replaces the gradient."""
    wrapped = getattr(device.ipu.optimizers, name)
    got = train(device, lambda opt: wrapped(opt, lambda gradient, weight: gradient - 2 * weight), 1)

    check.identical(
        actual=got, expected=np.float32(START[0] - RATE * (samples(1)[0] - 2 * START[0])), what="the weight"
    )


def test_wrappers_can_be_wrapped(device: Device) -> None:
    """Mapping inside of accumulation maps every mini-batch's gradient."""
    optimizers = device.ipu.optimizers

    def wrap(opt: Any) -> Any:
        mapped = optimizers.MapGradientOptimizer(opt, lambda gradient, _: device.tf.minimum(gradient, 2.0))
        return optimizers.CrossReplicaGradientAccumulationOptimizerV2(mapped, 2)

    got = train(device, wrap, 2)

    assert float(got) == START[0] - RATE * float(np.minimum(samples(2), 2.0).sum())


def test_the_plain_wrapper_changes_nothing(device: Device) -> None:
    """IpuOptimizer and ShardedOptimizer leave gradients as they are."""
    optimizers = device.ipu.optimizers
    got = train(device, lambda opt: optimizers.ShardedOptimizer(optimizers.IpuOptimizer(opt)), 3)

    check_weight(got, counts(3))


def test_what_is_wrapped_is_an_optimizer(ipu: Any) -> None:
    """Something else is refused."""
    with pytest.raises(ValueError, match="optimizer"):
        ipu.optimizers.CrossReplicaOptimizer(3)


@pytest.mark.parametrize("replicas", [1, 2])
def test_keras_optimizers_can_be_wrapped(tf: Any, ipu: Any, configure: Any, replicas: int) -> None:
    """In a function a gradient tape and an optimizer of Keras do the same."""
    device = Device(tf, ipu, configure, "function").open(replicas)
    queue, weight = device.infeed(samples(4 * replicas)), device.variable("w0", START[0])
    with device.strategy.scope():
        inner = tf.keras.optimizers.SGD(RATE, momentum=0.5)
        inner.build([weight])
    opt = ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(inner, 2)

    def body(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = weight * x
        return opt.apply_gradients([(tape.gradient(loss, weight), weight)])

    device.run(lambda: ipu.loops.repeat(4, body, [], queue))

    check_weight(weight.numpy(), counts(2, 2, replicas, momentum=0.5))


@pytest.mark.parametrize("factor", [1.0, 8.0])
def test_a_scaled_loss_trains_alike(tf: Any, ipu: Any, strategy: Any, factor: float) -> None:
    """Gradients of the scaled loss are scaled back before they are applied."""
    with strategy.scope():
        weight = tf.Variable(START[0])
        opt = ipu.optimizers.AutomaticLossScalingOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(RATE), initial_loss_scaling_factor=factor
        )
    seen = []

    @tf.function
    def step() -> Any:
        pairs = opt.compute_gradients(3.0 * weight, var_list=[weight])
        seen.append(pairs[0][0])
        opt.apply_gradients(pairs)
        return pairs[0][0]

    assert float(strategy.run(step)) == 3.0 * factor
    assert float(weight) == START[0] - RATE * 3.0


def test_the_scale_follows_gradients_in_float16(tf: Any, ipu: Any, strategy: Any) -> None:
    """Every two updates the factor doubles, until gradients come near the largest float16: then it halves."""
    with strategy.scope():
        weight = tf.Variable(np.float16(1.0))
        opt = ipu.optimizers.AutomaticLossScalingOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(0.0), initial_loss_scaling_factor=2, update_frequency=2
        )

    @tf.function
    def step() -> Any:
        opt.apply_gradients(opt.compute_gradients(np.float16(4096.0) * weight, var_list=[weight]))
        return opt.loss_scaling_factor

    assert [float(strategy.run(step)) for _ in range(8)] == [2.0, 4.0, 4.0, 8.0, 8.0, 4.0, 4.0, 8.0]


@pytest.mark.parametrize(
    "setting",
    [
        {"initial_loss_scaling_factor": 0},
        {"update_frequency": 0},
        {"increment_factor": 1},
        {"max_loss_scaling_factor": 0.5},
        {"ratio_threshold": 2},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_wrong_scales_are_refused(tf: Any, ipu: Any, setting: Any) -> None:
    """A setting of loss scaling that cannot work is refused by its name."""
    with pytest.raises(ValueError, match=next(iter(setting))):
        ipu.optimizers.AutomaticLossScalingOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0), **setting)
