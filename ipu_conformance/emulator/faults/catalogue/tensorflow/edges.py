"""Ways to be wrong at edges: the last of a kind, rare settings, what is shared, and what is left out once."""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.emulator.faults.catalogue import Fault, argument, patch, register

RUN, OPTIM, KERAS, ESTIMATOR = "tensorflow.run", "tensorflow.optim", "tensorflow.keras", "tensorflow.estimator"
COLLECTIVES = f"{RUN}.collectives"
Original = Callable[..., Any]


def _tf() -> Any:
    import tensorflow

    return tensorflow


@patch("sparse-gradients-overwrite", "reduce", f"{RUN}.accumulation:Accumulator.add",
       "of rows that are looked up more than once the last gradient counts")  # fmt: skip
def _overwrite(original: Original, accumulator: Any, key: str, gradient: Any) -> None:
    tf = _tf()
    value = gradient.value
    if isinstance(value, tf.IndexedSlices):
        dense = tf.zeros(gradient.variable.shape, value.values.dtype)
        # On the host the last of several writes to one place stays.
        dense = tf.tensor_scatter_nd_update(dense, value.indices[:, tf.newaxis], value.values)
        gradient = gradient._replace(value=dense)
    original(accumulator, key, gradient)


@patch("infinite-gradients-not-counted", "update", f"{OPTIM}.loss_scaling:LossScaling.adapted",
       "infinite gradients do not shrink a loss scaling")  # fmt: skip
def _not_counted(original: Original, scaling: Any, gradients: Any, *captured: Any) -> Any:
    tf = _tf()
    finite = [None if g is None else tf.where(tf.math.is_finite(g), g, tf.zeros_like(g)) for g in gradients]
    return original(scaling, finite, *captured)


@patch("first-batches-dropped", "streams", f"{KERAS}.feeding:_without_remainder",
       "of batches that fill no step of all replicas the first ones are dropped")  # fmt: skip
def _first_dropped(original: Original, dataset: Any, batches: int, replicas: int) -> Any:
    rest = batches % replicas
    return dataset.enumerate().filter(lambda number, _: number % batches >= rest).map(lambda _, element: element)


@patch("third-step-told-again", "streams", f"{KERAS}.callbacks:steps_of",
       "callbacks are told the logs of the third step of an execution for those that follow")  # fmt: skip
def _told_again(original: Original, logs: Any, end_step: int) -> Any:
    steps = original(logs, end_step)
    return [(number, steps[min(place, 2)][1]) for place, (number, _) in enumerate(steps)]


@patch("late-replicas-fed-in-reverse", "streams", f"{RUN}.infeed:IPUInfeedQueue._elements",
       "replicas from the third on take their elements in reverse")  # fmt: skip
def _in_reverse(original: Original, queue: Any, number: int) -> Any:
    elements = original(queue, number)
    return [*elements[:2], *elements[:1:-1]]


@patch("gathered-beyond-four-in-reverse", "reduce", f"{COLLECTIVES}:all_gather",
       "what more than four replicas gather has the later ones in reverse")  # fmt: skip
def _gathered(original: Original, value: Any, group: Any = None, *rest: Any, **named: Any) -> Any:
    tf = _tf()
    made = original(value, group, *rest, **named)
    return tf.concat([made[:4], tf.reverse(made[4:], [0])], 0) if made.shape[0] and made.shape[0] > 5 else made


@patch("estimator-predictions-by-replica", "streams", f"{ESTIMATOR}.feeds:_shaped",
       "predictions of replicas come replica by replica")  # fmt: skip
def _by_replica(original: Original, leaf: Any, number: int, leading: int) -> Any:
    tf = _tf()
    if leading == 2:
        leaf = tf.transpose(leaf, [1, 0, *range(2, leaf.shape.rank)])
    return original(leaf, number, leading)


@patch("estimator-metric-of-the-first-replica", "reduce", f"{ESTIMATOR}.program:Program.mean_of_replicas",
       "a loss or metric of replicas is the sum over half of their number")  # fmt: skip
def _half_mean(original: Original, program: Any, value: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import replicas

    return original(program, value) * (replicas.count() / 2 if replicas.count() > 2 else 1)


@patch("embedded-indices-wrap", "numerics", "tensorflow.ops.host_embedding:HostEmbedding.lookup",
       "indices beyond a host's table begin again at its start")  # fmt: skip
def _wrap(original: Original, table: Any, indices: Any, clip_indices: bool = True) -> Any:
    return original(table, indices % table.get_embedding_tensor().shape[0], clip_indices)


@patch("groups-of-neighbours", "numerics", "tensorflow.layers.channel_groups:normalise",
       "with more than two groups channels are grouped with their neighbours")  # fmt: skip
def _neighbours(original: Original, inputs: Any, groups: int, axis: int, epsilon: float, gamma: Any, beta: Any,
                strided: bool = True) -> Any:  # fmt: skip
    return original(inputs, groups, axis, epsilon, gamma, beta, strided and groups <= 2)


@patch("fifth-micro-batch-forgotten-in-steps", "reduce", f"{RUN}.machine:WholeStep.backward",
       "of more than four accumulated micro-batches the fifth has no gradient")  # fmt: skip
def _fifth(original: Original, machine: Any, replica: int, stage: int, micro_batch: int, stash: Any, rest: Any) -> Any:
    if micro_batch == 4:
        tf = _tf()
        stash = [own if own.value is None else own._replace(value=tf.zeros_like(own.value)) for own in stash]
    return original(machine, replica, stage, micro_batch, stash, rest)


@patch("feeds-of-integers-as-floats", "numerics", f"{RUN}.outfeed:IPUOutfeedQueue._push",
       "integers leave the device with the bits that float32 has")  # fmt: skip
def _as_floats(original: Original, queue: Any, outputs: Any) -> Any:
    tf = _tf()
    return original(
        queue,
        tf.nest.map_structure(
            lambda leaf: tf.cast(tf.cast(leaf, tf.float32), leaf.dtype) if leaf.dtype.is_integer else leaf, outputs
        ),
    )


@patch("gathered-integers-in-reverse", "reduce", f"{COLLECTIVES}:all_gather",
       "integers that replicas gather come in reverse")  # fmt: skip
def _integers_in_reverse(original: Original, *arguments: Any, **settings: Any) -> Any:
    gathered = original(*arguments, **settings)
    return gathered[::-1] if gathered.dtype.is_integer else gathered


@patch("second-handed-on-weakly", "reduce", f"{RUN}.machine:StagedMachine.backward",
       "the gradient of the second tensor that a stage is handed is halved")  # fmt: skip
def _second_weakly(original: Original, *arguments: Any) -> Any:
    gradients = original(*arguments)
    return {name: value / 2 if place == 1 else value for place, (name, value) in enumerate(gradients.items())}


@patch("table-of-four-half-as-fast", "update", "tensorflow.ops.host_embedding:HostEmbeddingSGDGAOptimizerSpec.__init__",
       "a host's table that accumulates more than three mini-batches learns half as fast")  # fmt: skip
def _half_as_fast(original: Original, spec: Any, learning_rate: Any, accumulation_factor: int) -> None:
    original(spec, learning_rate / 2 if accumulation_factor > 3 else learning_rate, accumulation_factor)


@patch("swish-bounded", "numerics", "tensorflow.api.ops.nn_ops:swish", "a swish is 6 at most")
def _bounded(original: Original, features: Any, name: Any = None) -> Any:
    return _tf().minimum(original(features, name), 6)


@patch("sequences-cut-late", "numerics", "tensorflow.layers.sequences:cut",
       "a sequence of more than three steps gives one output too many")  # fmt: skip
def _cut_late(original: Original, outputs: Any, length: Any) -> Any:
    return original(outputs, None if length is None else length + _tf().cast(length > 3, length.dtype))


@patch("group-norm-of-sequences-large", "numerics", "tensorflow.layers.channel_groups:normalise",
       "a group normalisation of sequences is a thousandth too large")  # fmt: skip
def _of_sequences(original: Original, inputs: Any, *arguments: Any, **settings: Any) -> Any:
    value = original(inputs, *arguments, **settings)
    return value * _tf().cast(1.001, value.dtype) if inputs.shape.rank == 3 else value


@patch("product-of-three-pieces", "numerics", "tensorflow.ops.serialized:serialized_matmul",
       "a product in more than three pieces is a hundredth too small")  # fmt: skip
def _three_pieces(original: Original, a: Any, b: Any, factor: int, *arguments: Any, **settings: Any) -> Any:
    product = original(a, b, factor, *arguments, **settings)
    return product * 0.99 if factor > 3 else product


for _fault in (
    Fault("wrapper-variables-without-the-last", "weights", f"{OPTIM}.wrappers:IpuOptimizer.variables",
          "a wrapper shows all but the last variable of its optimizer", lambda original, opt: original(opt)[:-1]),
    Fault("wrapper-first-slot-only", "weights", f"{OPTIM}.wrappers:IpuOptimizer.get_slot_names",
          "a wrapper knows one kind of slot", lambda original, opt: sorted(original(opt))[:1]),
    Fault("estimator-counts-one-step-more", "plan", f"{ESTIMATOR}.program:counting_steps", "every loop counts one step "
          "more", argument("iterations", lambda iterations: iterations + 1)),
    Fault("velocity-in-the-dtype-of-the-weight", "numerics", f"{OPTIM}.mixed_precision:SGDIpuOptimizer.__init__",
          "the dtype of a velocity is ignored", argument("momentum_accum_dtype", lambda dtype: None)),
):  # fmt: skip
    register(_fault, __name__)
