"""Pipelines of functions: schedules and their counts, updates, outfeeds and options."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import RATE, START, check_trained, counts, samples, trained
from .chain import Chain, counted, drawn, outfed_by, schedule

SCHEDULES = ("Grouped", "Interleaved", "Sequential")


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("stages", "count", "runs", "replicas"), [(2, 4, 2, 1), (3, 6, 1, 2)], ids=["S2", "S3-R2"])
def test_a_run_updates_once(device: Device, name: str, stages: int, count: int, runs: int, replicas: int) -> None:
    """Each run updates once, with the sums over micro-batches and the means over replicas, wherever the net is cut."""
    chain = Chain(device, stages, replicas, pipeline_schedule=schedule(device, name))

    check_trained(chain.train(count, runs, replicas), stages, counts(runs, count, replicas))


def test_grouped_is_the_default(device: Device) -> None:
    """Without a schedule the counts of the grouped one are required."""
    error = device.tf.errors.FailedPreconditionError
    with check.raises(error, match="must be a multiple of 4, but it is 2", what="2 micro-batches without a schedule"):
        Chain(device, 2).train(2, 1)


@pytest.mark.parametrize(
    ("name", "training", "count", "multiple"),
    [("Grouped", True, 6, 4), ("Grouped", False, 3, 2), ("Interleaved", True, 3, 2), ("Interleaved", False, 5, 2)],
)
def test_a_count_that_does_not_fit_fails_when_it_runs(
    device: Device, name: str, training: bool, count: int, multiple: int
) -> None:
    """Such a pipeline can be built; it fails when it runs, and the weights stay."""
    chain = Chain(device, 2, pipeline_schedule=schedule(device, name))
    for stage in (0, 1):
        chain.weight(stage)
    go = device.compile(chain.program(count, 1, device.infeed(samples(8)), device.outfeed(), training))

    error = device.tf.errors.FailedPreconditionError
    sentence = f"The number of iterations of the pipeline must be a multiple of {multiple}, but it is {count}."
    with check.raises(error, match=sentence, what=f"{count} micro-batches in schedule {name}"):
        go()
    check.equal(actual=device.read(chain.names), expected=list(START[:2]), what="the weights after the run failed")


@pytest.mark.parametrize(
    ("name", "training", "count"),
    [("Grouped", False, 2), ("Interleaved", True, 2), ("Interleaved", False, 4), ("Sequential", True, 3)],
)
def test_a_count_that_fits_runs(device: Device, name: str, training: bool, count: int) -> None:
    """Every multiple is accepted: one entry of the outfeed for each micro-batch, in the order of the input."""
    chain = Chain(device, 2, pipeline_schedule=schedule(device, name))
    record, expected = chain.train(count, 1, training=training), trained(2, counts(1, count))

    check.identical(actual=record.losses, expected=expected.losses, what="the outfeed, by micro-batch")
    weights = expected.weights if training else np.asarray(START[:2], np.float32)
    check.identical(actual=record.weights, expected=weights, what="the weights")


@pytest.mark.parametrize(("method", "count", "runs"), [("SUM", 6, 2), ("MEAN", 8, 1), ("RUNNING_MEAN", 2, 2)])
def test_gradients_are_reduced_as_asked(device: Device, method: str, count: int, runs: int) -> None:
    """The gradient of an update is the sum or the mean over its micro-batches."""
    methods = device.ipu.gradient_accumulation.GradientAccumulationReductionMethod
    chain = Chain(device, 2, pipeline_schedule=schedule(device, "Interleaved"))
    record = chain.train(count, runs, reduction_method=methods[method])

    check_trained(record, 2, counts(runs, count, accumulation_reduction=method.lower()))


def test_an_unknown_reduction_is_refused(device: Device) -> None:
    """A reduction is a member of the enumeration or its name."""
    sentence = "Cannot parse .?most.? as one of GradientAccumulationReductionMethod"
    with check.raises(ValueError, match=sentence, what="the reduction_method 'most'"):
        Chain(device, 2).train(4, 1, reduction_method="most")


@pytest.mark.parametrize(("replicas", "dtype"), [(1, None), (1, "float16"), (2, None)])
def test_an_accumulated_outfeed_holds_sums(device: Device, replicas: int, dtype: Optional[str]) -> None:
    """With accumulate_outfeed there is one entry for each run: the sum over its micro-batches, by replica."""
    runs, kind = 1 if dtype else 2, dtype and device.tf.as_dtype(dtype)
    chain = Chain(device, 2, replicas, accumulate_outfeed=True, accumulate_outfeed_dtype=kind)
    record = chain.train(4, runs, replicas)

    losses = trained(2, counts(runs, 4, replicas)).losses
    expected = losses.reshape(runs, 4, *losses.shape[1:]).sum(axis=1).astype(dtype or "float32")
    check.identical(actual=record.losses, expected=expected, what="the accumulated outfeed, by run")


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_last_entry_can_be_kept(device: Device, replicas: int) -> None:
    """In mode LAST the outfeed holds the last micro-batch of the last run."""
    record, expected = Chain(device, 2, replicas).train(4, 2, replicas, last=True), trained(2, counts(2, 4, replicas))

    check.identical(actual=record.losses, expected=expected.losses[-1], what="the outfeed")


FIRST, SAMPLES, THIRD = samples(4) * np.float32(START[0]), samples(4), samples(4) * 3
OUTFED: Dict[str, Tuple[Dict[str, Any], List[np.ndarray]]] = {
    "all": ({}, [FIRST, SAMPLES, THIRD]),
    "loss": ({"outfeed_loss": True}, [2 * FIRST]),
    "masked": ({"outfeed_mask": [True, False, True]}, [SAMPLES]),
    "second-masked": ({"outfeed_mask": [False, True, False]}, [FIRST, THIRD]),
    "accumulated": ({"accumulate_outfeed": True}, [each.sum(keepdims=True) for each in (FIRST, SAMPLES, THIRD)]),
    "last": ({"last": True}, [FIRST[-1], SAMPLES[-1], THIRD[-1]]),
}


@pytest.mark.parametrize("name", OUTFED)
def test_outputs_of_the_last_stage_are_outfed(device: Device, name: str) -> None:
    """The outfeed gets what the last stage returns and the mask leaves, or the optimizer function's loss alone."""
    options, expected = OUTFED[name]
    outfed = device.tf.nest.flatten(outfed_by(device, lambda y, x: (y, x, 3 * x), 2.0, **options))

    check.equal(actual=len(outfed), expected=len(expected), what="the number of outputs that are outfed")
    for place, (output, values) in enumerate(zip(outfed, expected)):
        check.identical(actual=output, expected=values, what=f"output {place} of the outfeed")


def test_inputs_come_before_what_is_fed(device: Device) -> None:
    """The first stage gets the inputs of the pipeline and then an element of the infeed; a dictionary by name."""
    stages, scale = [lambda scale, x: scale - x, lambda y: y + 1], device.open(2).tf.constant(4.0)
    (outfed,) = device.tf.nest.flatten(device.pipe(stages, 4, {"x": samples(4)}, inputs=[scale]))

    check.identical(actual=outfed, expected=4 - samples(4) + 1, what="4 - x + 1, by micro-batch")


NAMED = {"second": 3 * SAMPLES, "first": SAMPLES}
STRUCTURES: Dict[str, Tuple[Any, Dict[str, Any], Any]] = {
    "training-one": (lambda y, x: y, {}, [FIRST]),
    "training-tuple": (lambda y, x: (y, x), {}, [FIRST, SAMPLES]),
    "training-accumulated": (lambda y, x: y, {"accumulate_outfeed": True}, [FIRST.sum(keepdims=True)]),
    "training-masked": (lambda y, x: (y, x), {"outfeed_mask": [True, False]}, [SAMPLES]),
    "training-loss": (lambda y, x: (y, x), {"outfeed_loss": True}, FIRST),
    "training-dict": (lambda y, x: (y, {"second": 3 * x, "first": x}), {"outfeed_mask": [True, False]}, [NAMED]),
    "inference-one": (lambda y, x: y, {"optimizer_function": None}, FIRST),
    "inference-list-of-one": (lambda y, x: [y], {"optimizer_function": None}, [FIRST]),
    "inference-dict": (lambda y, x: {"second": 3 * x, "first": x}, {"optimizer_function": None}, NAMED),
    "inference-tuple": (lambda y, x: (y, x), {"optimizer_function": None}, [FIRST, SAMPLES]),
    "inference-accumulated": (
        lambda y, x: y, {"optimizer_function": None, "accumulate_outfeed": True}, [FIRST.sum(keepdims=True)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURES)
def test_an_outfeed_keeps_the_structure_of_the_outputs(device: Device, name: str) -> None:
    """Training outfeeds a list, of one output too, or the loss alone; inference what the last stage returned."""
    last_stage, options, expected = STRUCTURES[name]
    outfed = outfed_by(device, last_stage, 1.0, **options)

    structure = lambda value: device.tf.nest.map_structure(lambda leaf: "tensor", value)  # noqa: E731
    check.equal(actual=structure(outfed), expected=structure(expected), what="the structure of what is dequeued")
    pairs = zip(*(device.tf.nest.flatten(each) for each in (outfed, expected)))
    for place, (output, values) in enumerate(pairs):
        check.identical(actual=output, expected=values, what=f"output {place} of the outfeed")


def test_a_dictionary_passes_between_stages(device: Device) -> None:
    """The next stage is called with the dictionary that a stage returns."""
    stages = [lambda x: {"twice": 2 * x, "own": x}, lambda held: held["twice"] - 3 * held["own"]]
    (outfed,) = device.tf.nest.flatten(device.open(2).pipe(stages, 4, SAMPLES))

    check.identical(actual=outfed, expected=-SAMPLES, what="2x - 3x, by micro-batch")


def test_a_mask_speaks_of_every_output(device: Device) -> None:
    """A mask has as many entries as the last stage has outputs."""
    with check.raises(ValueError, match="outfeed_mask", what="a mask of two for one output"):
        Chain(device, 2).train(4, 1, outfeed_mask=[False, True])


@pytest.mark.parametrize("how", ["pipeline", "loop"])
def test_an_optimizer_gets_gradients_as_they_were_accumulated(tf: Any, ipu: Any, configure: Any, how: str) -> None:
    """Gradients of a float16 weight that are accumulated in float32 reach the optimizer in float32."""
    device, seen = Device(tf, ipu, configure, "function").open(2 if how == "pipeline" else 1), []

    class Casting(tf.compat.v1.train.GradientDescentOptimizer):
        """Scales gradients down and casts them by itself."""

        def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
            pairs = list(grads_and_vars)
            seen.extend(gradient.dtype.name for gradient, _ in pairs)
            small = [(tf.cast(gradient / 2**17, variable.dtype), variable) for gradient, variable in pairs]
            return super().apply_gradients(small, global_step, name)

    with device.strategy.scope():
        weight = tf.Variable(tf.cast(2.0, tf.float16), name="half")
    fed = np.full(4, 49152, np.float16)

    def optimizer_function(loss: Any) -> Any:
        return ipu.pipelining_ops.OptimizerFunctionOutput(Casting(1.0), loss)

    def body(x: Any) -> Any:
        wrap = ipu.optimizers.GradientAccumulationOptimizerV2
        return wrap(Casting(1.0), 4, dtype=tf.float32).minimize(weight * x, var_list=[weight])

    if how == "loop":
        device.repeat(4, body, device.infeed(fed))
    else:
        settings = {"gradient_accumulation_dtype": tf.float32, "optimizer_function": optimizer_function}
        device.pipe([lambda x: x * weight, lambda y: y * 1], 4, fed, **settings)

    check.equal(actual=set(seen), expected={"float32"}, what="the dtype of the gradients that the optimizer is given")
    # The sum of four is larger than every float16; the optimizer makes 1.5 of it.
    check.equal(actual=float(weight.numpy()), expected=0.5, what="the weight after a step of 4 · 49152 / 2^17 from 2")


def test_stages_may_share_a_device(device: Device) -> None:
    """The grouped and the sequential schedule take two stages on one IPU: three then leave two replicas."""
    chain = Chain(device, 3, pipeline_schedule=schedule(device, "Sequential"), device_mapping=[0, 1, 0])

    check_trained(chain.train(3, 1, replicas=2), 3, counts(1, 3, 2))


@pytest.mark.parametrize("name", SCHEDULES)
def test_stages_stand_on_any_devices(device: Device, name: str) -> None:
    """A later stage may be on an earlier IPU, and all weights are updated."""
    chain = Chain(device, 2, pipeline_schedule=schedule(device, name), device_mapping=[1, 0])

    check_trained(chain.train(4, 1), 2, counts(1, 4))


def test_a_variable_of_two_stages_gets_both_gradients(device: Device) -> None:
    """A weight that two stages use is updated with the sum of its gradients."""
    chain = Chain(device, 2)
    chain.names = ["w0", "w0"]
    chain.weight = lambda stage: device.variable("w0", START[1])  # type: ignore[method-assign]
    weight = chain.train(4, 1).weights[0]

    expected = np.float32(START[1] - RATE * (2 * START[1] * samples(4)).sum())
    check.identical(actual=weight, expected=expected, what="the weight of both stages")


def test_every_tensor_that_is_handed_on_has_a_gradient(device: Device) -> None:
    """A stage gets back the gradients of all three tensors that it handed on."""
    chain = Chain(device, 2)
    stages = [
        lambda x: (x * chain.weight(0), 2 * x * chain.weight(0), 4 * x * chain.weight(0)),
        lambda first, second, third: (first + 4 * second - 8 * third) * chain.weight(1),
    ]
    chain.stage = lambda number: stages[number]  # type: ignore[method-assign]
    weights = chain.train(4, 1).weights

    slope = (1 + 8 - 32) * samples(4).sum()
    expected = np.array([START[0] - RATE * slope * START[1], START[1] - RATE * slope * START[0]], np.float32)
    check.identical(actual=weights, expected=expected, what="the weights of both stages")


def test_gradients_can_be_mapped(device: Device) -> None:
    """An optimizer that changes gradients changes those of every micro-batch before they are accumulated."""
    seen: Set[str] = set()
    chain = Chain(device, 2)
    train, mapping = device.tf.compat.v1.train, device.ipu.optimizers.MapGradientOptimizer

    def clipped(gradient: Any, variable: Any) -> Any:
        seen.add(variable.name.split(":")[0])
        return device.tf.clip_by_value(gradient, -2.0, 2.0)

    chain.optimizer = lambda: mapping(train.GradientDescentOptimizer(RATE), clipped)  # type: ignore[method-assign]
    weights = chain.train(4, 1).weights

    start = np.asarray(START[:2], np.float32)
    gradients = np.clip(samples(4)[:, None] * start[::-1], -2, 2).sum(axis=0)
    check.identical(actual=weights, expected=start - np.float32(RATE) * gradients, what="the weights")
    check.equal(actual=sorted(seen), expected=["w0", "w1"], what="the variables whose gradients are mapped")


def test_keras_optimizers_train(device: Device) -> None:
    """A Keras optimizer can train a pipeline."""
    chain = Chain(device, 2)

    @functools.lru_cache(maxsize=None)
    def optimizer() -> Any:
        with device.tf.init_scope():
            return device.tf.keras.optimizers.legacy.SGD(RATE, momentum=0.5)

    chain.optimizer = optimizer  # type: ignore[method-assign]
    chain.chosen = lambda: {"variables": [chain.weight(0), chain.weight(1)]}  # type: ignore[method-assign]

    check_trained(chain.train(4, 2), 2, counts(2, 4, momentum=0.5))


def test_a_keras_optimizer_needs_variables(device: Device) -> None:
    """With a Keras optimizer the optimizer function names the variables, or the tape that has watched them."""
    chain = Chain(device, 2)
    chain.optimizer = lambda: device.tf.keras.optimizers.legacy.SGD(RATE)  # type: ignore[method-assign]

    with check.raises(RuntimeError, match="No variables", what="a Keras optimizer without variables"):
        chain.train(4, 1)


@pytest.mark.parametrize(
    ("mode", "name", "stages", "count", "replicas"),
    [
        ("Auto", "Grouped", 2, 4, 1),
        ("RecomputeThenBackpropagate", "Interleaved", 3, 6, 2),
        ("RecomputeAndBackpropagateInterleaved", "Sequential", 4, 5, 1),
    ],
    ids=["Auto", "RecomputeThenBackpropagate", "RecomputeAndBackpropagateInterleaved"],
)
def test_recomputation_changes_nothing(
    device: Device, mode: str, name: str, stages: int, count: int, replicas: int
) -> None:
    """Recomputed activations give the same weights and losses."""
    chain = Chain(device, stages, replicas, recompute=True, pipeline_schedule=schedule(device, name))
    modes = device.ipu.pipelining_ops.RecomputationMode
    record = chain.train(count, 1, replicas, recomputation_mode=modes[mode])

    check_trained(record, stages, counts(1, count, replicas))


WIDTH = 32


@pytest.mark.parametrize("change", [drawn, counted])
@pytest.mark.parametrize("recompute", [True, False], ids=["recomputed", "kept"])
def test_what_a_stage_draws_or_counts_happens_once(device: Device, recompute: bool, change: Any) -> None:
    """The backward pass of a stage has the random numbers and the state of its forward pass, recomputed or not.

    The last stage returns the sum of what it is handed, which is in proportion to each weight. All weights begin at 1,
    so the gradient of each is what is handed on to the last stage.
    """
    ops, count, names = device.open(4, allow_recompute=recompute).ipu.pipelining_ops, 6, ["w0", "w1"]
    values = samples(count)[:, None] * np.float32(2.0) ** (np.arange(WIDTH, dtype=np.float32) % 3)
    device.declare(**{name: np.ones(WIDTH) for name in names}, **({"n0": 1.0, "n1": 1.0} if change is counted else {}))

    def stage(place: int) -> Any:
        return lambda x: change(device, place, x * device.variable(names[place], np.ones(WIDTH)))

    def optimizer_function(handed: Any) -> Any:
        descent = device.tf.compat.v1.train.GradientDescentOptimizer(RATE)
        variables = [device.variable(name, np.ones(WIDTH)) for name in names]
        chosen = {"var_list": variables}
        return ops.OptimizerFunctionOutput(descent, device.tf.reduce_sum(handed), compute_gradients_kwargs=chosen)

    stages = [stage(0), stage(1), lambda x: x]
    (handed,) = device.tf.nest.flatten(device.pipe(stages, count, values, optimizer_function=optimizer_function))

    expected = (1 - RATE * handed.astype(np.float64).sum(axis=0)).astype(np.float32)
    for name, weight in zip(names, device.read(names)):
        check.identical(actual=weight, expected=expected, what=f"{name} after one update")
    if change is counted:
        numbers = np.arange(1, count + 1, dtype=np.float32)[:, None]
        check.identical(actual=handed, expected=values * numbers**2, what="what the last stage is handed")
        check.equal(actual=device.read(["n0", "n1"]), expected=[count + 1.0] * 2, what="the counts of both stages")


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (ValueError, "gradient_accumulation_count", {"gradient_accumulation_count": None}),
        (ValueError, "must be", {"gradient_accumulation_count": -1}),
        pytest.param(ValueError, "greater than 0", {"gradient_accumulation_count": 0}, marks=pytest.mark.emulator),
        (ValueError, "at least two", {"computational_stages": [lambda x: x], "device_mapping": None}),
        (ValueError, "Each stage must be mapped", {"device_mapping": [0]}),
        (TypeError, "device_mapping", {"device_mapping": range(2)}),
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
    """A wrong option is refused when the pipeline is built."""
    device = Device(tf, ipu, configure, "function").open(2)
    queues = {"infeed_queue": device.infeed(samples(8)), "outfeed_queue": device.outfeed()}
    stages = [lambda x: x, lambda x: x + 1]
    settings = {"computational_stages": stages, "gradient_accumulation_count": 4, **queues, **options}

    with check.raises(error, match=text, what=f"a pipeline with {options}"):
        device.run(lambda: ipu.pipelining_ops.pipeline(**settings))


def test_offloading_changes_nothing(tf: Any, ipu: Any, configure: Any) -> None:
    """Where tensors are kept has no influence on what is computed."""
    places = [
        "offload_weight_update_variables", "replicated_optimizer_state_sharding", "offload_activations",
        "offload_gradient_accumulation_buffers", "replicated_weight_sharding", "offload_weights",
    ]  # fmt: skip
    chain = Chain(Device(tf, ipu, configure, "function"), 2, **dict.fromkeys(places, True))

    check_trained(chain.train(4, 2), 2, counts(2, 4))


def test_an_accumulated_outfeed_needs_mode_all(tf: Any, ipu: Any, configure: Any) -> None:
    """An outfeed that accumulates has mode ALL."""
    with check.raises(ValueError, match="IPUOutfeedMode.ALL", what="accumulate_outfeed in mode LAST"):
        Chain(Device(tf, ipu, configure, "function"), 2).train(4, 1, last=True, accumulate_outfeed=True)


def test_interleaved_stages_have_devices_of_their_own(tf: Any, ipu: Any, configure: Any) -> None:
    """Two stages on one IPU cannot be interleaved."""
    device = Device(tf, ipu, configure, "function")
    options = {"pipeline_schedule": schedule(device, "Interleaved"), "device_mapping": [0, 0]}

    with check.raises(NotImplementedError, match="stages on", what="interleaved stages on one IPU"):
        Chain(device, 2, **options).train(4, 1)


@pytest.mark.parametrize("options", [{"opt": 3}, {"loss": "loss"}], ids=["opt", "loss"])
def test_an_optimizer_function_returns_an_optimizer_and_a_loss(tf: Any, ipu: Any, options: Any) -> None:
    """What is not an optimizer, or not a tensor, is refused."""
    settings = {"opt": tf.compat.v1.train.GradientDescentOptimizer(1.0), "loss": tf.constant(1.0), **options}

    with check.raises(TypeError, match=next(iter(options)), what=f"an OptimizerFunctionOutput with {options}"):
        ipu.pipelining_ops.OptimizerFunctionOutput(**settings)


MISUSED: Dict[str, Tuple[Any, bool, Dict[str, Any]]] = {
    "compute_gradients_args": (TypeError, False, {"compute_gradients_args": ["w"]}),
    "compute_gradients_kwargs": (TypeError, False, {"compute_gradients_kwargs": [("var_list", "w")]}),
    "apply_gradients_args": (TypeError, False, {"apply_gradients_args": ["step"]}),
    "apply_gradients_kwargs": (TypeError, True, {"apply_gradients_kwargs": ("name", "step")}),
    "variables": (TypeError, True, {"variables": {"w": 1}}),
    "tape": (TypeError, True, {"tape": "tape"}),
    "compute_gradients_args of Keras": (ValueError, True, {"compute_gradients_args": ("w",)}),
    "compute_gradients_kwargs of Keras": (ValueError, True, {"compute_gradients_kwargs": {"var_list": "w"}}),
    "variables of TensorFlow": (ValueError, False, {"variables": ["w"]}),
}


@pytest.mark.parametrize("what", MISUSED)
def test_an_optimizer_function_says_what_fits_its_optimizer(tf: Any, ipu: Any, what: str) -> None:
    """Arguments have their types, and variables are for Keras' optimizers as arguments of gradients are for others."""
    error, keras, settings = MISUSED[what]
    kind = tf.keras.optimizers.legacy.SGD if keras else tf.compat.v1.train.GradientDescentOptimizer

    with check.raises(error, match=what.split(" ")[0], what=f"an OptimizerFunctionOutput with {settings}"):
        ipu.pipelining_ops.OptimizerFunctionOutput(kind(1.0), tf.constant(1.0), **settings)


def test_variables_or_a_tape_are_named(tf: Any, ipu: Any) -> None:
    """A tape that has watched variables comes without a list of them."""
    with tf.GradientTape() as tape, check.raises(ValueError, match="tape", what="variables beside a tape"):
        ipu.pipelining_ops.OptimizerFunctionOutput(
            tf.keras.optimizers.legacy.SGD(1.0), tf.constant(1.0), variables=[tf.Variable(1.0)], tape=tape
        )


def test_options_of_stages_are_dictionaries(ipu: Any) -> None:
    """Options for the compiler are names with values."""
    kind, options = ipu.pipelining_ops.PipelineStageOptions, {"availableMemoryProportion": "0.3"}

    check.equal(actual=kind(matmul_options=options).matmul_options, expected=options, what="matmul_options")
    with check.raises(TypeError, match="convolution_options", what="a text of convolution_options"):
        kind(convolution_options="none")


def test_a_pipeline_takes_gradients_of_the_scaled_loss(device: Device) -> None:
    """An optimizer of Keras that scales its loss by powers of two leaves the weights that it leaves without scaling."""
    chain = Chain(device, 2)

    @functools.lru_cache(maxsize=None)
    def optimizer() -> Any:
        scaling = importlib.import_module("keras.ipu.optimizers").ALSOptimizer
        with device.tf.init_scope():
            return scaling(device.tf.keras.optimizers.legacy.SGD(RATE, momentum=0.5), 64)

    chain.optimizer = optimizer  # type: ignore[method-assign]
    chain.chosen = lambda: {"variables": [chain.weight(0), chain.weight(1)]}  # type: ignore[method-assign]

    check_trained(chain.train(4, 2), 2, counts(2, 4, momentum=0.5))
