"""Pipelines of functions: schedules and their counts, updates, outfeeds and options."""

from __future__ import annotations

import functools
from typing import Any, Optional, Sequence

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import RATE, START, Trained, check_trained, counts, samples, trained

SCHEDULES = ("Grouped", "Interleaved", "Sequential")


class Chain:
    """The chain of products as a pipeline of one weight a stage."""

    def __init__(self, device: Device, number_of_stages: int, replicas: int = 1, **options: Any) -> None:
        device.open((1 << (number_of_stages - 1).bit_length()) * replicas)
        self.device, self.options = device, options
        self.names = [f"w{stage}" for stage in range(number_of_stages)]

    def weight(self, stage: int) -> Any:
        """The weight of one stage."""
        return self.device.variable(self.names[stage], START[stage])

    def stage(self, number: int) -> Any:
        """The function of one stage."""
        return lambda x: x * self.weight(number)

    def optimizer(self) -> Any:
        """The plain optimizer of TensorFlow 1, with means over replicas."""
        ipu, v1 = self.device.ipu, self.device.tf.compat.v1
        return ipu.optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))

    def program(self, count: int, runs: int, queue: Any, out: Any, training: bool = True, **more: Any) -> Any:
        """The pipeline."""
        ops = self.device.ipu.pipelining_ops

        def optimizer_function(loss: Any) -> Any:
            return ops.OptimizerFunctionOutput(self.optimizer(), loss)

        stages = range(len(self.names))
        if self.device.mode == "function":
            for stage in stages:
                self.weight(stage)
        return lambda: ops.pipeline(
            [self.stage(stage) for stage in stages],
            gradient_accumulation_count=count,
            repeat_count=runs,
            infeed_queue=queue,
            outfeed_queue=out,
            optimizer_function=optimizer_function if training else None,
            **{"device_mapping": list(stages), **self.options, **more},
        )

    def train(self, count: int, runs: int, replicas: int = 1, last: bool = False, **more: Any) -> Trained:
        """The weights and the outfeed after training."""
        queue = self.device.infeed(samples(count * runs * replicas))
        out = self.device.outfeed(last)
        self.device.run(self.program(count, runs, queue, out, **more))
        return Trained(np.asarray(self.device.read(self.names), np.float32), self.device.dequeue(out))


def schedule(device: Device, name: str) -> Any:
    """The schedule of that name."""
    return device.ipu.pipelining_ops.PipelineSchedule[name]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_run_updates_once(device: Device, name: str, replicas: int) -> None:
    """Two runs of four micro-batches update twice, with the sums over micro-batches and the means over replicas."""
    chain = Chain(device, 2, replicas, pipeline_schedule=schedule(device, name))
    got = chain.train(4, 2, replicas)

    check_trained(got, 2, counts(2, 4, replicas))


@pytest.mark.parametrize("name", SCHEDULES)
def test_four_stages_compute_what_one_would(device: Device, name: str) -> None:
    """Where a model is cut does not change what it learns."""
    chain = Chain(device, 4, pipeline_schedule=schedule(device, name))
    got = chain.train(8, 1)

    check_trained(got, 4, counts(1, 8))


def test_grouped_is_the_default(device: Device) -> None:
    """Without a schedule the counts of the grouped one are required."""
    with pytest.raises(device.tf.errors.FailedPreconditionError, match="must be a multiple of 4, but it is 2"):
        Chain(device, 2).train(2, 1)


@pytest.mark.parametrize(
    ("name", "training", "count", "multiple"),
    [
        ("Grouped", True, 6, 4),
        ("Grouped", False, 3, 2),
        ("Interleaved", True, 3, 2),
        ("Interleaved", False, 5, 2),
    ],
)
def test_a_count_that_does_not_fit_fails_when_it_runs(
    device: Device, name: str, training: bool, count: int, multiple: int
) -> None:
    """Building the pipeline is no error; running it is, and the weights stay."""
    chain = Chain(device, 2, pipeline_schedule=schedule(device, name))
    queue, out = device.infeed(samples(8)), device.outfeed()
    for stage in range(2):
        chain.weight(stage)
    go = device.compile(chain.program(count, 1, queue, out, training))

    with pytest.raises(
        device.tf.errors.FailedPreconditionError,
        match=f"The number of iterations of the pipeline must be a multiple of {multiple}, but it is {count}.",
    ):
        go()
    assert device.read(chain.names) == list(START[:2])


@pytest.mark.parametrize(
    ("name", "training", "count"),
    [("Grouped", False, 2), ("Interleaved", True, 2), ("Interleaved", False, 4), ("Sequential", True, 3)],
)
def test_a_count_that_fits_runs(device: Device, name: str, training: bool, count: int) -> None:
    """Every multiple is accepted: one entry of the outfeed for each micro-batch, in the order of the input."""
    chain = Chain(device, 2, pipeline_schedule=schedule(device, name))
    got = chain.train(count, 1, training=training)

    expected = trained(2, counts(1, count))
    check.identical(actual=got.losses, expected=expected.losses, what="the outfeed")
    check.identical(
        actual=got.weights,
        expected=expected.weights if training else np.asarray(START[:2], np.float32),
        what="the weights",
    )


@pytest.mark.parametrize("method", ["SUM", "MEAN", "RUNNING_MEAN"])
def test_gradients_are_reduced_as_asked(device: Device, method: str) -> None:
    """The gradient of an update is the sum or the mean over its micro-batches."""
    methods = device.ipu.gradient_accumulation.GradientAccumulationReductionMethod
    chain = Chain(device, 2, pipeline_schedule=schedule(device, "Interleaved"))
    got = chain.train(2, 2, reduction_method=methods[method])

    expected = trained(2, counts(2, 2, accumulation_reduction=method.lower()))
    check.identical(actual=got.weights, expected=expected.weights, what="the weights")


def test_an_unknown_reduction_is_refused(device: Device) -> None:
    """A reduction is a member of the enumeration or its name."""
    with pytest.raises(ValueError, match="Cannot parse 'most' as one of GradientAccumulationReductionMethod"):
        Chain(device, 2).train(4, 1, reduction_method="most")


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_accumulated_outfeed_holds_sums(device: Device, replicas: int) -> None:
    """With accumulate_outfeed there is one entry for each run: the sum over its micro-batches, by replica."""
    got = Chain(device, 2, replicas).train(4, 2, replicas, accumulate_outfeed=True)

    losses = trained(2, counts(2, 4, replicas)).losses
    check.identical(actual=got.losses, expected=losses.reshape(2, 4, *losses.shape[1:]).sum(axis=1), what="the outfeed")


def test_an_accumulated_outfeed_has_a_type(device: Device) -> None:
    """The sums of an outfeed can be held in another type."""
    got = Chain(device, 2).train(4, 1, accumulate_outfeed=True, accumulate_outfeed_dtype=device.tf.float16)

    losses = trained(2, counts(1, 4)).losses
    check.identical(actual=got.losses, expected=losses.sum(keepdims=True).astype(np.float16), what="the outfeed")


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_last_entry_can_be_kept(device: Device, replicas: int) -> None:
    """In mode LAST the outfeed holds the last micro-batch of the last run."""
    got = Chain(device, 2, replicas).train(4, 2, replicas, last=True)

    losses = trained(2, counts(2, 4, replicas)).losses
    check.identical(actual=got.losses, expected=losses[-1], what="the outfeed")


def two_outputs(device: Device, loss_only: bool = False, mask: Optional[Sequence[bool]] = None) -> Any:
    """What is outfed by a pipeline whose last stage returns the loss and the sample."""
    device.open(2)
    ops, queue, out = device.ipu.pipelining_ops, device.infeed(samples(4)), device.outfeed()
    v1 = device.tf.compat.v1

    def optimizer_function(loss: Any, sample: Any) -> Any:
        return ops.OptimizerFunctionOutput(v1.train.GradientDescentOptimizer(RATE), 2 * loss)

    device.variable("w0", START[0])
    device.run(
        lambda: ops.pipeline(
            [lambda x: (x * device.variable("w0", START[0]), x), lambda y, x: (y, x)],
            gradient_accumulation_count=4,
            infeed_queue=queue,
            outfeed_queue=out,
            optimizer_function=optimizer_function,
            outfeed_loss=loss_only,
            outfeed_mask=mask,
        )
    )
    return device.dequeue(out)


def test_all_outputs_of_the_last_stage_are_outfed(device: Device) -> None:
    """The outfeed gets what the last stage returns."""
    loss, sample = two_outputs(device)

    check.identical(actual=loss, expected=samples(4) * np.float32(START[0]), what="the first output")
    check.identical(actual=sample, expected=samples(4), what="the second output")


def test_the_loss_alone_is_outfed(device: Device) -> None:
    """With outfeed_loss the outfeed gets the loss that the optimizer function names."""
    check.identical(
        actual=two_outputs(device, loss_only=True), expected=2 * samples(4) * np.float32(START[0]), what="the loss"
    )


def test_outputs_can_be_masked(device: Device) -> None:
    """What the mask marks is not outfed."""
    check.identical(actual=two_outputs(device, mask=[True, False]), expected=samples(4), what="the outfeed")


def test_inputs_come_before_what_is_fed(device: Device) -> None:
    """The first stage gets the inputs of the pipeline and then an element of the infeed; a dictionary by name."""
    device.open(2)
    queue, out = device.infeed({"x": samples(2)}), device.outfeed()
    device.run(
        lambda: device.ipu.pipelining_ops.pipeline(
            [lambda scale, x: scale * x, lambda y: y + 1],
            gradient_accumulation_count=2,
            inputs=[device.tf.constant(4.0)],
            infeed_queue=queue,
            outfeed_queue=out,
        )
    )

    check.identical(actual=device.dequeue(out), expected=4 * samples(2) + 1, what="the outfeed")


def test_stages_may_share_a_device(device: Device) -> None:
    """The grouped and the sequential schedule take two stages on one IPU: three then leave two replicas."""
    chain = Chain(device, 3, pipeline_schedule=schedule(device, "Sequential"), device_mapping=[0, 1, 0])
    got = chain.train(2, 1, replicas=2)

    check_trained(got, 3, counts(1, 2, 2))


@pytest.mark.parametrize("name", ["Grouped", "Interleaved", "Sequential"])
def test_stages_stand_on_any_devices(device: Device, name: str) -> None:
    """A later stage may stand on an earlier IPU: all weights are updated all the same."""
    chain = Chain(device, 2, pipeline_schedule=schedule(device, name), device_mapping=[1, 0])
    got = chain.train(4, 1)

    check_trained(got, 2, counts(1, 4))


def test_a_variable_of_two_stages_gets_both_gradients(device: Device) -> None:
    """A weight that two stages use is updated with the sum of its gradients."""
    device.open(2)
    ops, v1 = device.ipu.pipelining_ops, device.tf.compat.v1
    queue, out = device.infeed(samples(4)), device.outfeed()
    device.variable("w0", -2.0)

    def optimizer_function(loss: Any) -> Any:
        return ops.OptimizerFunctionOutput(v1.train.GradientDescentOptimizer(RATE), loss)

    stage = lambda x: x * device.variable("w0", -2.0)  # noqa: E731
    device.run(
        lambda: ops.pipeline(
            [stage, stage], 4, infeed_queue=queue, outfeed_queue=out, optimizer_function=optimizer_function
        )
    )

    expected = np.float32(-2.0 - RATE * (2 * -2.0 * samples(4)).sum())
    check.identical(actual=device.read(["w0"])[0], expected=expected, what="the weight")


def test_gradients_can_be_mapped(device: Device) -> None:
    """An optimizer that changes gradients changes those of every micro-batch before they are accumulated."""
    chain = Chain(device, 2)
    train, mapping = device.tf.compat.v1.train, device.ipu.optimizers.MapGradientOptimizer
    seen = []

    def clipped(gradient: Any, variable: Any) -> Any:
        seen.append(variable.name)
        return device.tf.clip_by_value(gradient, -2.0, 2.0)

    chain.optimizer = lambda: mapping(train.GradientDescentOptimizer(RATE), clipped)  # type: ignore[method-assign]
    got = chain.train(4, 1)
    gradients = np.clip(samples(4)[:, None] * np.asarray([START[1], START[0]], np.float32), -2, 2).sum(axis=0)

    check.identical(
        actual=got.weights, expected=np.asarray(START[:2], np.float32) - np.float32(RATE) * gradients, what="weights"
    )
    assert {name.split(":")[0] for name in seen} == {"w0", "w1"}


def test_keras_optimizers_train(device: Device) -> None:
    """An optimizer of Keras can be the optimizer of a pipeline."""
    chain = Chain(device, 2)

    @functools.lru_cache(maxsize=None)
    def optimizer() -> Any:
        with device.tf.init_scope():
            return device.tf.keras.optimizers.legacy.SGD(RATE, momentum=0.5)

    chain.optimizer = optimizer  # type: ignore[method-assign]
    got = chain.train(4, 2)

    expected = trained(2, counts(2, 4, momentum=0.5))
    check.identical(actual=got.weights, expected=expected.weights, what="the weights")


@pytest.mark.parametrize("mode", ["Auto", "RecomputeThenBackpropagate", "RecomputeAndBackpropagateInterleaved"])
def test_recomputation_changes_nothing(device: Device, mode: str) -> None:
    """What is recomputed is the same."""
    ops = device.ipu.pipelining_ops
    got = Chain(device, 2).train(4, 1, recomputation_mode=ops.RecomputationMode[mode])

    check.identical(actual=got.weights, expected=trained(2, counts(1, 4)).weights, what="the weights")


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (ValueError, "gradient_accumulation_count", {"gradient_accumulation_count": None}),
        (ValueError, "greater than 0", {"gradient_accumulation_count": 0}),
        (ValueError, "at least two", {"computational_stages": [lambda x: x], "device_mapping": None}),
        (ValueError, "Each stage must be mapped", {"device_mapping": [0]}),
        (ValueError, "device_mapping", {"device_mapping": "01"}),
        (TypeError, "pipeline_schedule", {"pipeline_schedule": "Grouped"}),
        (TypeError, "recomputation_mode", {"recomputation_mode": 1}),
        (TypeError, "PipelineStageOptions", {"forward_propagation_stages_poplar_options": [{}, {}]}),
        (ValueError, "outfeed_loss", {"outfeed_loss": True}),
        (ValueError, "accumulate_outfeed", {"accumulate_outfeed": True, "outfeed_queue": None}),
        (ValueError, "outfeed_mask", {"outfeed_mask": [True]}),
        (ValueError, "no outfeed_queue", {"outfeed_queue": None}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_wrong_options_are_refused(tf: Any, ipu: Any, configure: Any, error: Any, text: str, options: Any) -> None:
    """An option that makes no pipeline is refused when it is built."""
    device = Device(tf, ipu, configure, "function").open(2)
    settings = {
        "computational_stages": [lambda x: x, lambda x: x + 1],
        "gradient_accumulation_count": 4,
        "infeed_queue": device.infeed(samples(8)),
        "outfeed_queue": device.outfeed(),
        **options,
    }

    with pytest.raises(error, match=text):
        device.run(lambda: ipu.pipelining_ops.pipeline(**settings))


def test_an_accumulated_outfeed_needs_mode_all(tf: Any, ipu: Any, configure: Any) -> None:
    """Sums cannot be the last entry only."""
    with pytest.raises(ValueError, match=r"IPUOutfeedMode\.ALL"):
        Chain(Device(tf, ipu, configure, "function"), 2).train(4, 1, last=True, accumulate_outfeed=True)


def test_interleaved_stages_have_devices_of_their_own(tf: Any, ipu: Any, configure: Any) -> None:
    """Two stages on one IPU cannot be interleaved."""
    device = Device(tf, ipu, configure, "function")
    options = {"pipeline_schedule": schedule(device, "Interleaved"), "device_mapping": [0, 0]}

    with pytest.raises(NotImplementedError, match="two stages on one device"):
        Chain(device, 2, **options).train(4, 1)


@pytest.mark.parametrize("options", [{"opt": 3}, {"loss": "loss"}], ids=["opt", "loss"])
def test_an_optimizer_function_returns_an_optimizer_and_a_loss(tf: Any, ipu: Any, options: Any) -> None:
    """What is no optimizer, or no tensor, is refused."""
    settings = {"opt": tf.compat.v1.train.GradientDescentOptimizer(1.0), "loss": tf.constant(1.0), **options}

    with pytest.raises(TypeError, match=next(iter(options))):
        ipu.pipelining_ops.OptimizerFunctionOutput(**settings)


def test_options_of_stages_are_dictionaries(ipu: Any) -> None:
    """Options for the compiler are names with values."""
    options = ipu.pipelining_ops.PipelineStageOptions

    assert options(matmul_options={"availableMemoryProportion": "0.3"}).matmul_options
    with pytest.raises(TypeError, match="convolution_options"):
        options(convolution_options="none")
