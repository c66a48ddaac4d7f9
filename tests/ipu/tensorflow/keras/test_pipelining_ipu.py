"""Pipelined Keras models: schedules, counts, placement, and that a cut changes nothing in the result."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Dict

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig, learning_rate

from ...training import cut
from . import nets
from .nets import KINDS, PLAIN, Fit, Keras, adam, each_fit, momentum, scalars, stages_of

SCHEDULES = ("grouped", "interleaved", "sequential")
MANY: Dict[str, Any] = {"device_iterations": 1, "learning_rate": learning_rate(base=2.0**-8)}


def piped(
    stages: int, count: int, *, name: str = "mlp", schedule: str = "grouped", replicas: int = 1, **changes: Any
) -> RunConfig:
    """Two updates of a net in so many stages, each after so many micro-batches."""
    config = PLAIN.with_counts(changes.pop("device_iterations", 2), count, replicas, **changes)
    return cut(name, config, stages, schedule)


def once(stages: int, count: int, name: str = "mlp", **changes: Any) -> Fit:
    """The fit of a net in stages with one update."""
    devices, settings = changes.pop("devices", ()), {key: changes.pop(key) for key in ("options",) if key in changes}
    config = piped(stages, count, name=name, **{"device_iterations": 1, **changes})
    return Fit(replace(config, devices=devices), name=name, settings=settings)


def offloading(option: str) -> Fit:
    """The fit of a net with an option that says where tensors are kept."""
    return once(2, 4, options=lambda model: model.set_pipelining_options(4, **{option: True}))


def both_options(model: Any) -> None:
    """Set options of gradient accumulation, which are not used by a pipelined model, beside its own."""
    model.set_pipelining_options(4)
    model.set_gradient_accumulation_options(2)


@each_fit({
    **{f"{kind}-{schedule}": Fit(piped(2, 4, schedule=schedule), kind) for kind in KINDS for schedule in SCHEDULES},
    **{f"four-stages-R2-{schedule}": Fit(piped(4, 8, schedule=schedule, replicas=2)) for schedule in SCHEDULES},
    "convnet": once(3, 6, "convnet"),
    "bn_convnet": once(3, 6, "bn_convnet"),  # statistics of micro-batches
    "residual": once(3, 6, "residual"),  # skips pass a stage which does not use them
    "bn_convnet-recomputed": once(3, 6, "bn_convnet", recompute=True),  # statistics move once
    "residual-recomputed": once(3, 3, "residual", schedule="interleaved", recompute=True),
    "mlp-recomputed": once(4, 5, schedule="sequential", recompute=True),
    "mlp-many": once(2, 20, replicas=2, **MANY),
    "bn_convnet-many": once(2, 20, "bn_convnet", **MANY),
    "mean": Fit(piped(2, 4, accumulation_reduction="mean")),
    "running_mean": Fit(piped(2, 4, accumulation_reduction="running_mean")),
    # Weights and the optimizer's state move once per run of the pipeline, after all micro-batches.
    "momentum": Fit(momentum(piped(2, 4))),
    "adam": Fit(adam(piped(2, 4))),
    # Where tensors are kept has no influence on what is computed.
    **{option: offloading(option) for option in (
        "offload_weight_update_variables", "replicated_optimizer_state_sharding", "offload_activations",
        "offload_gradient_accumulation_buffers", "replicated_weight_sharding", "offload_weights")},
    "options-of-accumulation": once(2, 4, options=both_options),
    # Two stages share an IPU.
    "devices-0-1-0": once(3, 6, devices=(0, 1, 0)),
    "devices-0-1-1": once(3, 6, devices=(0, 1, 1)),
    "devices-1-0-1": once(3, 6, devices=(1, 0, 1)),
    # A later stage is on an earlier IPU: all stages are updated at the end of a run.
    "devices-1-0": once(2, 4, devices=(1, 0)),
    "devices-2-0-1": once(3, 6, devices=(2, 0, 1)),
    # The sequential schedule takes any count, the others their multiples.
    "grouped-2-8": once(2, 8),
    "interleaved-2-2": once(2, 2, schedule="interleaved"),
    "interleaved-3-3": once(3, 3, schedule="interleaved"),
    "sequential-2-1": once(2, 1, schedule="sequential"),
    "sequential-3-5": once(3, 5, schedule="sequential"),
})  # fmt: skip
def test_a_pipeline_trains_as_specified(keras: Keras, fit: Fit) -> None:
    """Every net and kind of model, cut and placed in any way, learns the oracle's weights under every schedule."""
    keras.check_fit(fit.config, fit.kind, fit.name, **fit.settings)


@pytest.mark.ipus(2)
@pytest.mark.parametrize(("schedule", "execution", "accepted"), [
    *((schedule, 8, True) for schedule in SCHEDULES), ("grouped", 3, False), ("grouped", 2, True),
    ("interleaved", 3, False), ("sequential", 3, True),
])  # fmt: skip
def test_an_inference_run_fills_the_pipeline(
    keras: Keras, tf: Any, schedule: str, execution: int, accepted: bool
) -> None:
    """Predictions are the oracle's where an execution has a multiple of the stages, or any number if sequential."""
    config = piped(2, 4, schedule=schedule)
    feed = replace(config, device_iterations=execution, gradient_accumulation=1)
    refused = check.raises(
        tf.errors.FailedPreconditionError, match="must be a multiple of 2, but it is 3", what=f"{schedule} inference"
    )
    with keras.ready(config, steps_per_execution=execution) as model, nullcontext() if accepted else refused:
        nets.check_outputs(model.predict(keras.dataset(feed), verbose=0), feed)


@pytest.mark.ipus(2)
def test_an_accumulated_outfeed_returns_the_mean_of_a_run(keras: Keras) -> None:
    """With accumulate_outfeed a run reports the mean over its micro-batches, not a mean of running means."""
    config = piped(2, 4, device_iterations=1)
    with keras.ready(
        config,
        options=lambda model: keras.options(model, config, accumulate_outfeed=True),
        metrics=[keras.twice_the_loss],
    ) as model:
        history = model.fit(keras.dataset(config), verbose=0).history
    means, bounds = (each[-1] for each in nets.mean_losses(config))
    # A mean of four float32 is rounded at most once for each of them.
    bounds = bounds + 4 * np.finfo(np.float32).eps * np.abs(means)

    for times, name in enumerate(("loss", "twice_the_loss"), 1):
        nets.check_mean_loss(history[name], times * means, times * bounds, f"{name} of the run")


@pytest.mark.ipus(2)
@pytest.mark.parametrize(("dtype", "expected"), [("float32", 65.03125), ("float16", 65.0)])
def test_an_accumulated_outfeed_has_the_type_that_was_asked_for(
    keras: Keras, tf: Any, dtype: str, expected: float
) -> None:
    """The mean of a run leaves the device in accumulate_outfeed_dtype: float16 has no 65.03125."""
    options = {"accumulate_outfeed": True, "accumulate_outfeed_dtype": tf.as_dtype(dtype)}
    config = PLAIN.with_counts(1, 4, stages=(0, 1))
    model = keras.chained(config, [keras.scale(), keras.scale()], [1.0, 2.0, 4.0, 253.125], options=options)

    check.equal(actual=model.history.history["loss"], expected=[expected], what=f"the mean loss of the run in {dtype}")


@pytest.mark.ipus(4)
@pytest.mark.parametrize(("ipus", "stages", "needed"), [
    (1, 2, 2), (2, 3, 4), (2, 4, 4), *(pytest.param(*row, 0, marks=pytest.mark.emulator) for row in ((3, 2), (6, 4))),
], ids=["1-2", "2-3", "2-4", "3-2", "6-4"])  # fmt: skip
def test_a_device_holds_a_replica(keras: Keras, strategy_on: Any, ipus: int, stages: int, needed: int) -> None:
    """Fewer IPUs than the pipeline has stages are an error; those that make no whole replica are idle.

    Real devices have powers of two.
    """
    config = piped(stages, 2 * stages)
    message = f"device has {ipus} IPUs attached, however the current model requires a multiple of {needed}"
    refused = check.raises(ValueError, match=message, what=f"fit of {stages} stages on {ipus} IPUs")
    with strategy_on(ipus).scope():
        model = keras.build("functional", config.stages)
        keras.compile(model, config)
        keras.options(model, config)
        with refused if needed else nullcontext():
            model.fit(keras.dataset(config), verbose=0)

    if not needed:
        keras.check_trained(model, config)


@pytest.mark.ipus(2)
@pytest.mark.parametrize("built", [False, True], ids=["unbuilt", "built"])
def test_a_subclassed_model_may_be_built_by_its_data(keras: Keras, tf: Any, built: bool) -> None:
    """Stages that a subclassed model enters when it is called count, also when it is first called by fit."""

    class Own(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [keras.scale(), keras.scale()]

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
    check.equal(actual=scalars(model), expected=[0.0, 0.0], what="the weights of both stages")
    check.equal(actual=stages_of(model), expected=[0, 1], what="the stages of both layers")
