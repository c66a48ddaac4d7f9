"""Pipelines of functions: schedules and their counts, updates, outfeeds, options, and stages of several functions."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Dict, List, Optional, Set, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device
from ..exact import RATE, START, check_trained, counts, samples, trained
from .chain import Chain, counted, drawn, outfed_by

SCHEDULES = ("Grouped", "Interleaved", "Sequential")
PLACES = (
    "offload_weight_update_variables", "replicated_optimizer_state_sharding", "offload_activations",
    "offload_gradient_accumulation_buffers", "replicated_weight_sharding", "offload_weights",
)  # fmt: skip
CHAINS: Dict[str, Tuple[Tuple[int, int, int, int], Dict[str, Any]]] = {
    **{f"S2-{name}": ((2, 4, 2, 1), {"pipeline_schedule": name}) for name in SCHEDULES},
    **{f"S3-R2-{name}": ((3, 6, 1, 2), {"pipeline_schedule": name}) for name in SCHEDULES},
    "the fewest, interleaved": ((2, 2, 1, 1), {"pipeline_schedule": "Interleaved"}),
    "any number, sequential": ((2, 3, 1, 1), {"pipeline_schedule": "Sequential"}),
    "SUM": ((2, 6, 2, 1), {"pipeline_schedule": "Interleaved", "reduction_method": "SUM"}),
    "MEAN": ((2, 8, 1, 1), {"pipeline_schedule": "Interleaved", "reduction_method": "MEAN"}),
    "RUNNING_MEAN": ((2, 2, 2, 1), {"pipeline_schedule": "Interleaved", "reduction_method": "RUNNING_MEAN"}),
    "a shared device": ((3, 3, 1, 2), {"pipeline_schedule": "Sequential", "device_mapping": [0, 1, 0]}),
    **{f"on 1-0-{name}": ((2, 4, 1, 1), {"pipeline_schedule": name, "device_mapping": [1, 0]}) for name in SCHEDULES},
    "Auto": ((2, 4, 1, 1), {"pipeline_schedule": "Grouped", "recomputation_mode": "Auto"}),
    "RecomputeThenBackpropagate": (
        (3, 6, 1, 2), {"pipeline_schedule": "Interleaved", "recomputation_mode": "RecomputeThenBackpropagate"},
    ),
    "RecomputeAndBackpropagateInterleaved": (
        (4, 5, 1, 1), {"pipeline_schedule": "Sequential", "recomputation_mode": "RecomputeAndBackpropagateInterleaved"},
    ),
    "tensors off the IPU": ((2, 4, 2, 1), dict.fromkeys(PLACES, True)),
}  # fmt: skip
"""Stages, micro-batches, runs and replicas of a chain, and its options."""


@pytest.mark.parametrize("name", CHAINS)
def test_a_run_updates_once(device: Device, name: str) -> None:
    """Each run updates once, with the gradients of its micro-batches reduced as asked and the means over replicas.

    Where a net is cut, where its stages are and what they recompute changes nothing.
    """
    (stages, count, runs, replicas), options = CHAINS[name]
    reduction = options.get("reduction_method", "SUM").lower()
    record = Chain(device, stages, replicas, **options).train(count, runs, replicas)

    check_trained(record, stages, counts(runs, count, replicas, accumulation_reduction=reduction))


@pytest.mark.parametrize(
    ("name", "training", "count", "multiple"),
    [("Grouped", True, 6, 4), ("Grouped", False, 3, 2), ("Interleaved", True, 3, 2), ("Interleaved", False, 5, 2)],
)
def test_a_count_that_does_not_fit_fails_when_it_runs(
    device: Device, name: str, training: bool, count: int, multiple: int
) -> None:
    """Such a pipeline can be built; it fails when it runs, and the weights stay."""
    chain = Chain(device, 2, pipeline_schedule=name)
    for stage in (0, 1):
        chain.weight(stage)
    go = device.compile(chain.program(count, 1, device.infeed(samples(8)), device.outfeed(), training))

    error = device.tf.errors.FailedPreconditionError
    sentence = f"The number of iterations of the pipeline must be a multiple of {multiple}, but it is {count}."
    with check.raises(error, match=sentence, what=f"{count} micro-batches in schedule {name}"):
        go()
    check.equal(actual=device.read(chain.names), expected=list(START[:2]), what="the weights after the run failed")


@pytest.mark.parametrize(("name", "count"), [("Grouped", 2), ("Interleaved", 4)])
def test_an_inference_gives_one_entry_for_each_micro_batch(device: Device, name: str, count: int) -> None:
    """Every multiple is accepted: the outfeed is in the order of the input, and the weights stay."""
    record = Chain(device, 2, pipeline_schedule=name).train(count, 1, training=False)

    losses = trained(2, counts(1, count)).losses
    check.identical(actual=record.losses, expected=losses, what="the outfeed, by micro-batch")
    check.identical(actual=record.weights, expected=np.asarray(START[:2], np.float32), what="the weights")


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


def test_inputs_come_before_what_is_fed(device: Device) -> None:
    """The first stage gets the inputs of the pipeline and then an element of the infeed; a dictionary by name."""
    stages, scale = [lambda scale, x: scale - x, lambda y: y + 1], device.open(2).tf.constant(4.0)
    (outfed,) = device.tf.nest.flatten(device.pipe(stages, 4, {"x": samples(4)}, inputs=[scale]))

    check.identical(actual=outfed, expected=4 - samples(4) + 1, what="4 - x + 1, by micro-batch")


NAMED = {"second": 3 * SAMPLES, "first": SAMPLES}
SUMS = [each.sum(keepdims=True) for each in (FIRST, SAMPLES, THIRD)]
OUTFED: Dict[str, Tuple[Any, Dict[str, Any], Any]] = {
    "one": (lambda y, x: y, {}, [FIRST]),
    "all": (lambda y, x: (y, x, 3 * x), {}, [FIRST, SAMPLES, THIRD]),
    "loss": (lambda y, x: (y, x, 3 * x), {"outfeed_loss": True}, 2 * FIRST),
    "masked": (lambda y, x: (y, x, 3 * x), {"outfeed_mask": [True, False, True]}, [SAMPLES]),
    "second-masked": (lambda y, x: (y, x, 3 * x), {"outfeed_mask": [False, True, False]}, [FIRST, THIRD]),
    "accumulated": (lambda y, x: (y, x, 3 * x), {"accumulate_outfeed": True}, SUMS),
    "accumulated-one": (lambda y, x: y, {"accumulate_outfeed": True}, SUMS[:1]),
    "last": (lambda y, x: (y, x, 3 * x), {"last": True}, [FIRST[-1], SAMPLES[-1], THIRD[-1]]),
    "dict": (lambda y, x: (y, {"second": 3 * x, "first": x}), {"outfeed_mask": [True, False]}, [NAMED]),
    "inference-one": (lambda y, x: y, {"optimizer_function": None}, FIRST),
    "inference-list-of-one": (lambda y, x: [y], {"optimizer_function": None}, [FIRST]),
    "inference-dict": (lambda y, x: {"second": 3 * x, "first": x}, {"optimizer_function": None}, NAMED),
    "inference-tuple": (lambda y, x: (y, x), {"optimizer_function": None}, [FIRST, SAMPLES]),
    "inference-accumulated": (lambda y, x: y, {"optimizer_function": None, "accumulate_outfeed": True}, SUMS[:1]),
}


@pytest.mark.parametrize("name", OUTFED)
def test_outputs_of_the_last_stage_are_outfed(device: Device, name: str) -> None:
    """Training outfeeds a list of what the mask leaves, or the loss; inference what the last stage returned."""
    last_stage, options, expected = OUTFED[name]
    outfed = outfed_by(device, last_stage, **options)

    structure = lambda value: device.tf.nest.map_structure(lambda leaf: "tensor", value)  # noqa: E731
    check.equal(actual=structure(outfed), expected=structure(expected), what="the structure of what is dequeued")
    for place, (output, values) in enumerate(zip(*map(device.tf.nest.flatten, (outfed, expected)))):
        check.identical(actual=output, expected=values, what=f"output {place} of the outfeed")


def test_a_dictionary_passes_between_stages(device: Device) -> None:
    """The next stage is called with the dictionary that a stage returns."""
    stages = [lambda x: {"twice": 2 * x, "own": x}, lambda held: held["twice"] - 3 * held["own"]]
    (outfed,) = device.tf.nest.flatten(device.open(2).pipe(stages, 4, SAMPLES))

    check.identical(actual=outfed, expected=-SAMPLES, what="2x - 3x, by micro-batch")


@pytest.mark.parametrize("how", ["pipeline", "loop"])
def test_an_optimizer_gets_gradients_as_they_were_accumulated(tf: Any, ipu: Any, eager: Device, how: str) -> None:
    """Gradients of a float16 weight that are accumulated in float32 reach the optimizer in float32."""
    device, seen = eager.open(2 if how == "pipeline" else 1), []

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


BATCHES = 3


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("named", [False, True], ids=["default", "named"])
def test_a_stage_runs_several_batches(device: Device, replicas: int, named: bool) -> None:
    """With batch_serialization_iterations every execution of a stage takes so many batches; all of a run are summed."""
    options = {"pipeline_schedule": "Sequential", "device_mapping": [0, 0]} if named else {"device_mapping": None}
    chain = Chain(device, 1, replicas, batch_serialization_iterations=BATCHES, **options)
    chain.names = ["w0", "w1"]
    record = chain.train(2, 2, replicas, fed=samples(2 * BATCHES * 2 * replicas))

    check_trained(record, 2, counts(2, 2 * BATCHES, replicas))


def test_functions_of_one_stage_get_the_same(device: Device) -> None:
    """A stage that is a list of functions hands on the outputs of all of them, in order, to be trained as any other."""
    ops = device.open(4).ipu.pipelining_ops
    names, fed, count = ["w0", "w1", "w2"], samples(12), 12
    device.declare(**dict(zip(names, START)))

    def weight(place: int) -> Any:
        return device.variable(names[place], START[place])

    def optimizer_function(loss: Any, *rest: Any) -> Any:
        return ops.OptimizerFunctionOutput(device.tf.compat.v1.train.GradientDescentOptimizer(RATE), loss)

    stages: List[Any] = [
        lambda x: x * weight(0),
        [lambda x: x * weight(1), lambda x: [x + 1, x * weight(2)]],
        lambda first, second, third: (first + 2 * third, second),
    ]
    mapping = [0, [1, 2], 3]
    losses, second = device.pipe(stages, count, fed, device_mapping=mapping, optimizer_function=optimizer_function)

    x, (w0, w1, w2) = fed.astype(np.float64), START[:3]
    check.identical(actual=losses, expected=np.float32(x * w0 * (w1 + 2 * w2)), what="the first and the third output")
    check.identical(actual=second, expected=np.float32(x * w0 + 1), what="the second output")
    slopes = [w1 + 2 * w2, w0, 2 * w0]
    expected = np.asarray([start - RATE * x.sum() * slope for start, slope in zip(START, slopes)], np.float32)
    check.identical(actual=np.asarray(device.read(names)), expected=expected, what="the weights after the update")


@pytest.mark.emulator  # the vendor's sources show it of the last stage alone
@pytest.mark.parametrize("count", [6, 12])
def test_stages_enqueue_themselves(device: Device, count: int) -> None:
    """A stage may enqueue to an outfeed of its own: one entry for each micro-batch; the last one needs no outputs."""
    queue, (first, last) = device.open(2).infeed(samples(count)), (device.outfeed(), device.outfeed())

    def opening(x: Any) -> Any:
        return x + 1, first.enqueue({"x": x})

    stages = [opening, lambda x: x * 3, lambda x: last.enqueue(x)]
    device.run(lambda: device.ipu.pipelining_ops.pipeline(stages, count, infeed_queue=queue, device_mapping=[0, 1, 0]))

    expected = samples(count)
    check.identical(actual=device.dequeue(first)["x"], expected=expected, what="what the first stage enqueues")
    check.identical(actual=device.dequeue(last), expected=(expected + 1) * 3, what="what the last stage enqueues")


def test_options_of_what_is_not_there_are_ignored(device: Device) -> None:
    """A pipeline that does not train takes options for its backward stages and does nothing with them."""
    kind, words = device.open(2).ipu.pipelining_ops.PipelineStageOptions, {"availableMemoryProportion": "0.3"}
    options = [kind(matmul_options=words) for _ in range(3)]
    stages = [lambda x: x * 3, lambda x: x + 5]
    outfed = device.pipe(stages, 4, samples(4), backward_propagation_stages_poplar_options=options)

    check.identical(actual=outfed, expected=samples(4) * 3 + 5, what="the outfeed")
    check.equal(actual=kind(matmul_options=words).matmul_options, expected=words, what="matmul_options")


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
