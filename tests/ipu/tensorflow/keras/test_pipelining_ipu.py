"""Pipelined Keras models: schedules, counts, placement, and that a cut changes nothing in the result."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig, learning_rate

from ...training import cut
from .nets import KINDS, PLAIN, Keras, adam, check_mean_loss, check_outputs, check_trained, mean_losses, momentum

SCHEDULES = ("grouped", "interleaved", "sequential")


def piped(
    stages: int, count: int, *, name: str = "mlp", schedule: str = "grouped", replicas: int = 1, **changes: Any
) -> RunConfig:
    """Two updates of a net in so many stages, each after so many micro-batches."""
    config = PLAIN.with_counts(changes.pop("device_iterations", 2), count, replicas, **changes)
    return cut(name, config, stages, schedule)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", KINDS)
def test_two_stages_train_as_specified(keras: Keras, kind: str, schedule: str) -> None:
    """Every kind of model trains as specified under every schedule."""
    keras.check_fit(piped(2, 4, schedule=schedule), kind)


@pytest.mark.ipus(8)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_four_stages_on_two_replicas_train_as_specified(keras: Keras, schedule: str) -> None:
    """Four stages, two replicas and eight accumulated micro-batches give the oracle's weights."""
    keras.check_fit(piped(4, 8, schedule=schedule, replicas=2))


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", ["convnet", "bn_convnet", "residual"])
def test_other_nets_train_as_specified(keras: Keras, name: str) -> None:
    """Convolutions, statistics of micro-batches, and skips that pass a stage which does not use them."""
    keras.check_fit(piped(3, 6, name=name, device_iterations=1), name=name)


@pytest.mark.ipus(4)
@pytest.mark.parametrize(
    ("name", "stages", "count", "schedule"),
    [("bn_convnet", 3, 6, "grouped"), ("residual", 3, 3, "interleaved"), ("mlp", 4, 5, "sequential")],
)
def test_recomputed_stages_train_as_specified(keras: Keras, name: str, stages: int, count: int, schedule: str) -> None:
    """Stages that go forward once more leave the oracle's weights, and statistics that moved once."""
    config = piped(stages, count, name=name, schedule=schedule, device_iterations=1, recompute=True)

    keras.check_fit(config, name=name)


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("name", "replicas"), [("mlp", 2), ("bn_convnet", 1)])
def test_many_micro_batches_pass_a_pipeline(keras: Keras, name: str, replicas: int) -> None:
    """The number of micro-batches in a run may be large."""
    small = learning_rate(base=2.0**-8)
    keras.check_fit(piped(2, 20, name=name, replicas=replicas, device_iterations=1, learning_rate=small), name=name)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("method", ["sum", "mean", "running_mean"])
def test_micro_batches_are_reduced_as_asked(keras: Keras, method: str) -> None:
    """The three reductions of accumulated gradients work in a pipeline too."""
    keras.check_fit(piped(2, 4, accumulation_reduction=method))


@pytest.mark.ipus(2)
@pytest.mark.parametrize("change", [momentum, adam], ids=["momentum", "adam"])
def test_optimizers_take_one_step_per_run(keras: Keras, change: Any) -> None:
    """Weights and the optimizer's state move once per run of the pipeline, after all micro-batches."""
    config = change(piped(2, 4))
    trained = keras.fit(config)

    check_trained(trained, config)
    check.equal(actual=trained.updates, expected=2, what="the optimizer's count after two runs of the pipeline")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("devices", [(0, 1, 0), (0, 1, 1), (1, 0, 1)], ids=str)
def test_stages_may_share_an_ipu(keras: Keras, devices: Any) -> None:
    """device_mapping places stages; two of them on one IPU train as specified under the grouped schedule."""
    keras.check_fit(replace(piped(3, 6, device_iterations=1), devices=devices))


@pytest.mark.ipus(3)
@pytest.mark.parametrize("devices", [(1, 0), (2, 0, 1)], ids=str)
def test_stages_may_be_placed_in_any_order(keras: Keras, devices: Any) -> None:
    """device_mapping may place a later stage on an earlier IPU: all stages are updated at the end of a run."""
    keras.check_fit(replace(piped(len(devices), 2 * len(devices), device_iterations=1), devices=devices))


@pytest.mark.ipus(2)
def test_the_interleaved_schedule_needs_an_ipu_for_each_stage(keras: Keras) -> None:
    """Two stages on one IPU are not implemented for the interleaved schedule."""
    config = replace(piped(3, 6, schedule="interleaved", device_iterations=1), devices=(0, 1, 0))

    with check.raises(NotImplementedError, match="nterleaved", what="fit with stages 0 and 2 on IPU 0"):
        keras.fit(config)


REFUSED = {
    "grouped-2-2": ("grouped", 2, 2, 4),
    "grouped-2-6": ("grouped", 2, 6, 4),
    "grouped-3-9": ("grouped", 3, 9, 6),
    "interleaved-2-3": ("interleaved", 2, 3, 2),
    "interleaved-3-4": ("interleaved", 3, 4, 3),
}


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("schedule", "stages", "count", "multiple"), REFUSED.values(), ids=list(REFUSED))
def test_a_count_that_the_schedule_cannot_repeat_is_refused(
    keras: Keras, tf: Any, schedule: str, stages: int, count: int, multiple: int
) -> None:
    """Training needs a multiple of twice the stages when grouped, and of the stages when interleaved."""
    message = f"must be a multiple of {multiple}, but it is {count}"

    with check.raises(tf.errors.FailedPreconditionError, match=message, what=f"fit of {stages} {schedule} stages"):
        keras.fit(piped(stages, count, schedule=schedule))


@pytest.mark.ipus(4)
@pytest.mark.parametrize(
    ("schedule", "stages", "count"),
    [("grouped", 2, 8), ("interleaved", 2, 2), ("interleaved", 3, 3), ("sequential", 2, 1), ("sequential", 3, 5)],
)
def test_a_count_that_the_schedule_repeats_is_accepted(keras: Keras, schedule: str, stages: int, count: int) -> None:
    """The sequential schedule takes any count, the others their multiples."""
    keras.check_fit(piped(stages, count, schedule=schedule, device_iterations=1))


@pytest.mark.ipus(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pipeline_predicts_as_specified(keras: Keras, schedule: str) -> None:
    """Predictions of a pipelined model are the oracle's, in the order of the data."""
    keras.check_predictions(piped(2, 4, schedule=schedule))


@pytest.mark.ipus(2)
@pytest.mark.parametrize(("schedule", "execution", "accepted"), [
    ("grouped", 3, False), ("grouped", 2, True), ("interleaved", 3, False), ("sequential", 3, True),
])  # fmt: skip
def test_an_inference_run_fills_the_pipeline(
    keras: Keras, tf: Any, schedule: str, execution: int, accepted: bool
) -> None:
    """In inference steps_per_execution is a multiple of the stages, or anything in the sequential schedule."""
    config = piped(2, 4, schedule=schedule)
    feed = replace(config, device_iterations=execution, gradient_accumulation=1)
    refused = check.raises(
        tf.errors.FailedPreconditionError, match="must be a multiple of 2, but it is 3", what=f"{schedule} inference"
    )
    with keras.ready(config, steps_per_execution=execution) as model, nullcontext() if accepted else refused:
        check_outputs(model.predict(keras.dataset(feed), verbose=0), feed)


@pytest.mark.ipus(2)
def test_a_pipeline_needs_a_count_to_train(keras: Keras) -> None:
    """A pipelined model without gradient_accumulation_steps_per_replica cannot be trained."""
    config = piped(2, 4)
    message, errors = "gradient_accumulation_steps_per_replica", (RuntimeError, ValueError)
    with check.raises(errors, match=message, what="fit of a pipeline without a count"):
        keras.fit(config, options=lambda model: None)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("option", [
    "offload_weight_update_variables", "replicated_optimizer_state_sharding", "offload_activations",
    "offload_gradient_accumulation_buffers", "replicated_weight_sharding", "offload_weights",
])  # fmt: skip
def test_offloading_changes_no_bit(keras: Keras, option: str) -> None:
    """Where tensors are kept has no influence on what is computed."""
    chosen = {option: True}
    keras.check_fit(piped(2, 4, device_iterations=1), options=lambda model: model.set_pipelining_options(4, **chosen))


@pytest.mark.ipus(2)
@pytest.mark.parametrize("key", [
    "gradient_accumulation_count", "infeed_queue", "outfeed_queue", "optimizer_function", "computational_stages",
    "repeat_count", "inputs",
])  # fmt: skip
def test_reserved_options_are_refused(keras: Keras, key: str) -> None:
    """What Keras sets itself cannot be passed on to the pipeline."""
    with keras.scope(PLAIN), check.raises(ValueError, match=f"Found `{key}` key in", what=f"the option {key}"):
        keras.build("sequential").set_pipelining_options(4, **{key: 1})


@pytest.mark.ipus(2)
def test_an_accumulated_outfeed_returns_the_mean_of_a_run(keras: Keras) -> None:
    """With accumulate_outfeed a run reports the mean over its micro-batches, not a mean of running means."""
    config = piped(2, 4, device_iterations=1)
    with keras.ready(
        config,
        options=lambda model: model.set_pipelining_options(4, accumulate_outfeed=True),
        metrics=[keras.twice_the_loss],
    ) as model:
        history = model.fit(keras.dataset(config), verbose=0).history
    means, bounds = (each[-1] for each in mean_losses(config))
    # A mean of four float32 is rounded at most once for each of them.
    bounds = bounds + 4 * np.finfo(np.float32).eps * np.abs(means)

    for times, name in enumerate(("loss", "twice_the_loss"), 1):
        check_mean_loss(history[name], times * means, times * bounds, f"{name} of the run")


@pytest.mark.ipus(2)
@pytest.mark.parametrize(("dtype", "expected"), [("float32", 65.03125), ("float16", 65.0)])
def test_an_accumulated_outfeed_has_the_type_that_was_asked_for(
    keras: Keras, tf: Any, dtype: str, expected: float
) -> None:
    """The mean of a run leaves the device in accumulate_outfeed_dtype: float16 has no 65.03125."""
    with keras.scope(piped(2, 4)):
        dense = functools.partial(tf.keras.layers.Dense, 1, use_bias=False, kernel_initializer="ones")
        model = tf.keras.Sequential([dense(), dense()])
        model.build((1, 1))
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(4, accumulate_outfeed=True, accumulate_outfeed_dtype=tf.as_dtype(dtype))
        model.compile("sgd", lambda y, predicted: predicted, steps_per_execution=4)
        fed = np.asarray([[1.0], [2.0], [4.0], [253.125]], np.float32)
        history = model.fit(fed, fed, batch_size=1, shuffle=False, verbose=0).history

    check.equal(actual=history["loss"], expected=[expected], what=f"the mean loss of the run in {dtype}")


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "stages"), [(1, 2), (2, 3), (2, 4)])
def test_a_device_holds_a_replica(keras: Keras, strategy_on: Any, ipus: int, stages: int) -> None:
    """Fewer IPUs than the pipeline has stages are an error."""
    needed = 1 << (stages - 1).bit_length()
    config = piped(stages, 2 * stages)
    with strategy_on(ipus).scope():
        model = keras.build("functional", config.stages)
        keras.compile(model, config)
        keras.options(model, config)

        message = f"device has {ipus} IPUs attached, however the current model requires a multiple of {needed}"
        with check.raises(ValueError, match=message, what=f"fit of {stages} stages on {ipus} IPUs"):
            model.fit(keras.dataset(config), verbose=0)


@pytest.mark.emulator
@pytest.mark.parametrize(("ipus", "stages"), [(3, 2), (6, 4)])
def test_ipus_beside_whole_replicas_are_idle(keras: Keras, strategy_on: Any, ipus: int, stages: int) -> None:
    """A device with IPUs that make no whole replica trains on the others; real devices have powers of two."""
    config = piped(stages, 2 * stages)
    with strategy_on(ipus).scope():
        model = keras.build("functional", config.stages)
        keras.compile(model, config)
        keras.options(model, config)
        model.fit(keras.dataset(config), verbose=0)

    check_trained(keras.trained(model), config)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("built", [False, True], ids=["unbuilt", "built"])
def test_a_subclassed_model_may_be_built_by_its_data(keras: Keras, tf: Any, built: bool) -> None:
    """Stages that a subclassed model enters when it is called count, also when it is first called by fit."""
    layers = [tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name=f"dense{n}") for n in range(2)]

    class Own(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.parts = layers

        def call(self, inputs: Any) -> Any:
            with keras.stage(0):
                value = self.parts[0](inputs)
            with keras.stage(1):
                return self.parts[1](value)

    config = replace(PLAIN, stages=(0, 1))
    with keras.scope(config):
        model = Own()
        if built:
            model.build((1, 1))
        model.compile(tf.keras.optimizers.SGD(0.125), "mse", steps_per_execution=4)
        model.set_pipelining_options(4)
        model.fit(np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32), batch_size=1, verbose=0)

    # Four times the gradient 2 * w1 * w2 * w2 = 2 at weights of 1, times the rate: exactly 1.
    weights = [weight.item() for weight in model.get_weights()]
    check.equal(actual=weights, expected=[0.0, 0.0], what="the weights of both stages")
    stages = [one.pipeline_stage for one in model.get_pipeline_stage_assignment()]
    check.equal(actual=stages, expected=[0, 1], what="the stages of both layers")


@pytest.mark.ipus(2)
def test_a_pipeline_accumulates_by_its_own_options(keras: Keras) -> None:
    """The options of gradient accumulation are not used by a pipelined model."""
    config = piped(2, 4, device_iterations=1)

    def both(model: Any) -> None:
        keras.options(model, config)
        model.set_gradient_accumulation_options(2)

    keras.check_fit(config, options=both)
