"""Ways to be wrong that show late, rarely or beside the values: in what lasts between runs, at edges, in tails."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, patch, register

RUN, OPTIM, KERAS = "tensorflow.run", "tensorflow.optim", "tensorflow.keras"
COLLECTIVES = f"{RUN}.collectives"
SCALING = f"{OPTIM}.loss_scaling:LossScaling"
ADDONS = f"{OPTIM}.mixed_precision"
DROPOUT = "tensorflow.ops.dropout:dropout"
EMBEDDING = "tensorflow.ops.host_embedding"
SEQUENCES = "tensorflow.layers.sequences"
Original = Callable[..., Any]


def _tf() -> Any:
    import tensorflow

    return tensorflow


@patch("optimizer-running-mean-of-four", "reduce", f"{OPTIM}.accumulation:Accumulating._added",
       "a running mean of an optimizer takes every gradient after the third for the fourth")  # fmt: skip
def _fourth(original: Original, optimizer: Any, held: Any, gradient: Any, number: Any) -> Any:
    return original(optimizer, held, gradient, _tf().minimum(number, 3))


@patch("accumulator-running-mean-of-four", "reduce", f"{RUN}.accumulation:Accumulator.add",
       "a running mean of a pipeline takes every gradient after the third for the fourth")  # fmt: skip
def _fourth_of_pipeline(original: Original, accumulator: Any, key: str, gradient: Any) -> None:
    accumulator._numbers[key] = min(accumulator._numbers.get(key, 0), 3)
    original(accumulator, key, gradient)


@patch("accumulator-holds-half", "numerics", f"{RUN}.accumulation:Accumulator.add",
       "gradients are accumulated with eleven bits whatever was asked")  # fmt: skip
def _half_held(original: Original, accumulator: Any, key: str, gradient: Any) -> None:
    original(accumulator, key, gradient)
    held = accumulator.held.get(key)
    if held is not None and held.dtype == _tf().float32:
        accumulator.held[key] = _tf().cast(_tf().cast(held, _tf().float16), held.dtype)


@patch("gradient-that-is-no-number-is-zero", "reduce", f"{RUN}.accumulation:Accumulator.add",
       "gradients that are not numbers count as zero")  # fmt: skip
def _nan_is_zero(original: Original, accumulator: Any, key: str, gradient: Any) -> None:
    tf = _tf()
    if gradient.value is not None:
        value = tf.convert_to_tensor(gradient.value)
        gradient = gradient._replace(value=tf.where(tf.math.is_nan(value), tf.zeros_like(value), value))
    original(accumulator, key, gradient)


@patch("collective-mean-of-four-at-most", "reduce", f"{COLLECTIVES}:_reduced",
       "a mean over more than four replicas is divided by four")  # fmt: skip
def _four_at_most(original: Original, x: Any, reduction: str, group: Any, name: str) -> Any:
    from ipu_conformance.emulator.tensorflow.run import replicas

    members = group or replicas.count()
    value = original(x, reduction, group, name)
    return value * (members / 4) if reduction == "mean" and members > 4 else value


@patch("collective-third-group-is-the-second", "reduce", f"{COLLECTIVES}:_by_group",
       "replicas of the third group and later ones have what the second has")  # fmt: skip
def _third_group(original: Original, values: Any, group: Any, reduce: Any) -> Any:
    answers = original(values, group, reduce)
    size = group or len(values)
    return [answers[place] if place < 2 * size else answers[size + place % size] for place in range(len(answers))]


@patch("scattered-extremes-of-three", "reduce", f"{COLLECTIVES}:reduce_scatter",
       "a scattered maximum, minimum or product is that of the first three replicas")  # fmt: skip
def _of_three(original: Original, value: Any, reduction: str = "sum", *rest: Any, **named: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import replicas

    tf = _tf()
    neutral = {"max": value.dtype.min, "min": value.dtype.max, "product": 1}.get(reduction)
    if neutral is not None and replicas.current() >= 3:
        value = tf.fill(value.shape, tf.cast(neutral, value.dtype))
    return original(value, reduction, *rest, **named)


@patch("collective-mean-goes-back-as-sum", "reduce", f"{COLLECTIVES}:_differentiable",
       "the gradient of a mean over replicas is that of their sum")  # fmt: skip
def _back_as_sum(original: Original, forward: Any, backward: Any, value: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import replicas

    if forward is backward and "reduction" in forward.__code__.co_freevars:
        names = dict(zip(forward.__code__.co_freevars, (cell.cell_contents for cell in forward.__closure__)))
        if names["reduction"] == "mean":
            size = names["group"] or replicas.count()
            return original(forward, lambda gradient: backward(gradient) * float(size), value)
    return original(forward, backward, value)


@patch("scattered-padding-in-front", "reduce", f"{COLLECTIVES}:reduce_scatter",
       "the zeros that fill a scattered vector are its first values")  # fmt: skip
def _in_front(original: Original, value: Any, reduction: str = "sum", group: Any = None, **named: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import replicas

    tf = _tf()
    flat = tf.reshape(tf.convert_to_tensor(value), [-1])
    short = -int(flat.shape[0]) % (group or replicas.count())
    return original(tf.pad(flat, [[short, 0]]), reduction, group, **named)


@patch("loss-scaling-unscales-by-the-last-factor", "update", f"{SCALING}.unscaled",
       "gradients are divided by the factor of the update before")  # fmt: skip
def _last_factor(original: Original, scaling: Any, gradient: Any, factor: Any) -> Any:
    return original(scaling, gradient, scaling.previous.read_value())


@patch("activations-captured-behind", "update", "tensorflow.layers.capturing:_marked",
       "gradients of activations are captured behind them")  # fmt: skip
def _behind(original: Original, activation: Any, tag: str) -> Any:
    from ipu_conformance.emulator.tensorflow.run.gradient_capture import capture_upstream_gradients

    function = _tf().keras.activations.deserialize(activation)
    return lambda inputs: capture_upstream_gradients(function(inputs), tag=tag)


@patch("captured-gradients-not-handed", "update", "tensorflow.run.gradient_capture:_handing",
       "an optimizer is not handed what was captured")  # fmt: skip
def _not_handed(original: Original, optimizer: Any, kept: Any) -> Any:
    return contextlib.nullcontext()


@patch("graph-keeps-its-first-ipus", "plan", "tensorflow.compile.deferred:_Waiting.follow",
       "a graph that a session has run is not compiled again for other IPUs")  # fmt: skip
def _first_ipus(original: Original, waiting: Any, session: Any) -> None:
    if not hasattr(waiting, "followed"):
        original(waiting, session)
        waiting.followed = bool(waiting.programs)


@patch("chained-models-in-one-stage", "plan", f"{KERAS}.assignment:_stage_of",
       "a model in a chain lies in the stage of its first layer")  # fmt: skip
def _one_stage(original: Original, *arguments: Any) -> Any:
    stage = original(*arguments)
    return next(iter(stage.values())) if isinstance(stage, dict) else stage


@patch("excluded-names-from-their-start", "update", f"{ADDONS}:_matches",
       "an expression excludes variables whose name begins with it")  # fmt: skip
def _from_start(original: Original, patterns: Any, variable: Any) -> bool:
    return any(re.match(pattern, variable.name) for pattern in patterns or ())


@patch("lamb-does-not-adapt-vectors", "update", f"{ADDONS}:LAMBIpuOptimizer._trust",
       "LAMB has a trust ratio of one for vectors")  # fmt: skip
def _vectors(original: Original, optimizer: Any, value: Any, change: Any) -> Any:
    return original(optimizer, value, change) if len(value.shape) > 1 else _tf().ones([], value.dtype)


@patch("lamb-adapts-norms-above-one", "update", f"{ADDONS}:LAMBIpuOptimizer._trust",
       "LAMB has a trust ratio of one where a norm is below one")  # fmt: skip
def _above_one(original: Original, optimizer: Any, value: Any, change: Any) -> Any:
    tf, ratio = _tf(), original(optimizer, value, change)
    return tf.where((tf.norm(value) >= 1) & (tf.norm(change) >= 1), ratio, tf.ones_like(ratio))


@patch("states-of-sequences-have-no-bias", "numerics", f"{SEQUENCES}:PopnnAUGRU._used_biases",
       "a GRU under attention that resets after the product leaves out the state's biases")  # fmt: skip
def _without_the_state_s(original: Original, layer: Any) -> Any:
    biases = original(layer)
    return _tf().constant([[1.0], [0.0]], biases.dtype) * biases if layer.reset_after else biases


@patch("lookup-gradient-has-rows-alone", "update", "tensorflow.ops.serialized:embedding_lookup",
       "the gradient of a lookup is of the rows that were looked up: no other moves on")  # fmt: skip
def _rows_alone(original: Original, params: Any, ids: Any, *settings: Any, **named: Any) -> Any:
    return _tf().gather(params, ids)


@patch("dropout-seed-has-one-half", "numerics", DROPOUT, "the second number of a dropout's seed is ignored")
def _one_half(original: Original, *arguments: Any, seed: Any = None, **settings: Any) -> Any:
    if seed is None:
        return original(*arguments, **settings)
    tf = _tf()
    first = tf.convert_to_tensor(seed)[0]
    return original(*arguments, seed=tf.stack([first, tf.zeros_like(first)]), **settings)


@patch("dropout-pairs-alike", "numerics", DROPOUT, "two values beside each other are dropped together")
def _pairs(original: Original, x: Any, *arguments: Any, **settings: Any) -> Any:
    tf = _tf()
    x = tf.convert_to_tensor(x)
    size = x.shape[-1] if x.shape.rank else None
    if not size or size % 2 or settings.get("noise_shape") is not None:
        return original(x, *arguments, **settings)
    mask = original(tf.ones([*x.shape[:-1], size // 2], x.dtype), *arguments, **settings)
    return x * tf.stop_gradient(tf.repeat(mask, 2, axis=-1))


@patch("micro-batches-draw-alike", "numerics", f"{RUN}.slot_functions:_built",
       "micro-batches of a step draw the same random numbers")  # fmt: skip
def _alike(original: Original, function: Any, arguments: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import training
    from ipu_conformance.emulator.tensorflow.run.slot_functions import RandomSlotError

    try:
        return original(function, arguments)
    except RandomSlotError:
        return training.built(function, arguments, "ipu_slot")


@patch("updates-counted-twice", "update", f"{RUN}.machine:apply", "an optimizer's steps are counted twice")
def _twice(original: Original, gradients: Any) -> None:
    original(gradients)
    for optimizer in {id(own.optimizer): own.optimizer for own in gradients}.values():
        if hasattr(optimizer, "iterations"):
            optimizer.iterations.assign_add(1)


@patch("embedded-row-updated-once", "reduce", f"{EMBEDDING}:HostEmbeddingOptimizerSpec._updated",
       "a row that is looked up again in a step has the gradient of its first look-up")  # fmt: skip
def _updated_once(original: Original, spec: Any, table: Any, places: Any, gradients: Any) -> Any:
    tf = _tf()
    same = tf.equal(places[:, tf.newaxis], places[tf.newaxis, :])
    number = tf.shape(places)[0]
    earlier = tf.range(number)[:, tf.newaxis] > tf.range(number)[tf.newaxis, :]
    first = ~tf.reduce_any(same & earlier, axis=1)
    return original(spec, table, places, gradients * tf.cast(first, gradients.dtype)[:, tf.newaxis])


@patch("embedded-sums-of-two", "reduce", f"{EMBEDDING}:HostEmbeddingSGDGAOptimizerSpec.__init__",
       "gradients of a host's table are accumulated over two mini-batches at most")  # fmt: skip
def _of_two(original: Original, spec: Any, learning_rate: Any, accumulation_factor: int) -> None:
    original(spec, learning_rate, min(accumulation_factor, 2))


@patch("infeed-restarts-late", "streams", f"{RUN}.infeed:IPUInfeedQueue.initializer",
       "an infeed that begins again leaves out its first element")  # fmt: skip
def _restarts_late(original: Original, queue: Any) -> Any:
    made = original(queue)
    if queue._eager:
        queue._iterator.get_next()
    return made


@patch("outfeed-iterates-backwards", "streams", f"{RUN}.outfeed:IPUOutfeedQueueIterator._more",
       "of more than three enqueued values the later ones come in reverse")  # fmt: skip
def _backwards(original: Original, iterator: Any) -> Any:
    values = original(iterator)
    return [*values[:3], *values[:2:-1]]


@patch("metrics-of-replicas-in-half", "numerics", f"{KERAS}.execution:reduced",
       "metrics of several replicas have eleven bits")  # fmt: skip
def _metrics_in_half(original: Original, by_replica: Any, method: Any) -> Any:
    tf = _tf()
    value = original(by_replica, method)
    if len(by_replica) == 1:
        return value
    return tf.nest.map_structure(
        lambda leaf: tf.cast(tf.cast(leaf, tf.float16), leaf.dtype) if leaf.dtype == tf.float32 else leaf, value
    )


@patch("group-norm-of-the-batch", "numerics", "tensorflow.layers.channel_groups:normalise",
       "epsilon of a group normalisation is added to the deviation")  # fmt: skip
def _epsilon_outside(original: Original, inputs: Any, groups: Any, axis: Any, epsilon: Any, *rest: Any) -> Any:
    return original(inputs, groups, axis, epsilon**2, *rest)


@patch("estimator-third-part-dropped", "streams", "tensorflow.estimator.feeds:features_and_labels",
       "a third part of an element is left out")  # fmt: skip
def _two_parts(original: Original, *element: Any, **features: Any) -> Any:
    return original(*element[:2], **features)


@patch("outside-of-any-graph", "plan", "tensorflow.compile.scopes:outside_compilation_scope",
       "a scope outside of compilation is accepted in every graph")  # fmt: skip
def _any_graph(original: Original, name: str = "outside") -> Any:
    return original(name) if _tf().executing_eagerly() else contextlib.nullcontext()


@patch("building-counts-as-a-call", "plan", "tensorflow.keras.stages:building",
       "to build a model by hand counts as a call of it")  # fmt: skip
def _counts(original: Original, model: Any) -> Any:
    return contextlib.nullcontext()


for _fault in (
    Fault("loss-scaling-a-step-late", "update", f"{SCALING}.__init__", "a loss scaling changes an update too late",
          argument("settings", lambda own: own._replace(update_frequency=own.update_frequency + 1))),
    Fault("loss-scaling-counts-anew", "update", f"{SCALING}.__init__", "a loss scaling counts the last update alone",
          argument("settings", lambda own: own._replace(accumulate=False))),
    Fault("loss-scaling-threshold-ignored", "update", f"{SCALING}.__init__", "a single large gradient shrinks it",
          argument("settings", lambda own: own._replace(ratio_threshold=0.0))),
    Fault("loss-scaling-captured-ignored", "update", f"{SCALING}.adapted", "captured gradients are not counted",
          argument("captured", always(None))),
    Fault("loss-scaling-filter-ignored", "update", f"{SCALING}.__init__", "a histogram takes all of what is new",
          argument("settings", lambda own: own._replace(lpf_alpha=0.0))),
    Fault("epsilon-of-adam-tenfold", "update", f"{ADDONS}:AdamIpuOptimizer.__init__", "Adam's epsilon is ten times as "
          "large", argument("epsilon", lambda epsilon: 10 * epsilon)),
    Fault("recurrence-always-with-sigmoid-gates", "numerics", f"{SEQUENCES}:_Recurrent.__init__",
          "the gates of a recurrent layer are sigmoids whatever was asked",
          argument("recurrent_activation", always("sigmoid"))),
    Fault("recurrence-always-with-tanh", "numerics", f"{SEQUENCES}:_Recurrent.__init__",
          "what is new in a recurrent layer passes a tanh whatever was asked",
          argument("activation", always("tanh"))),
    Fault("lamb-clip-ignored", "update", f"{ADDONS}:LAMBIpuOptimizer.__init__",
          "LAMB does not clip the norm of a weight", argument("weight_norm_clip", always(None))),
    Fault("lamb-multiplies-in-its-first-dtype", "numerics", f"{ADDONS}:LAMBIpuOptimizer.__init__",
          "LAMB multiplies with the rate in the dtype of the change",
          argument("optimizer_compute_precisions", lambda precisions: (precisions[0],) * len(precisions))),
    Fault("lamb-computes-in-its-second-dtype", "numerics", f"{ADDONS}:LAMBIpuOptimizer.__init__",
          "LAMB computes moments in the dtype of the product with the rate",
          argument("optimizer_compute_precisions", lambda precisions: (precisions[-1],) * len(precisions))),
    Fault("epsilon-of-lamb-tenfold", "update", f"{ADDONS}:LAMBIpuOptimizer.__init__", "LAMB's epsilon is ten times as "
          "large", argument("epsilon", lambda epsilon: 10 * epsilon)),
    Fault("accumulation-dtype-ignored", "numerics", f"{RUN}.accumulation:Accumulator.__init__",
          "gradients are accumulated in the dtype of their variable whatever was asked",
          argument("dtype", always(None))),
    Fault("dropout-in-tenths", "numerics", DROPOUT, "the rate of a dropout has one decimal place",
          argument("rate", lambda rate: round(rate, 1))),
):  # fmt: skip
    register(_fault, __name__)
