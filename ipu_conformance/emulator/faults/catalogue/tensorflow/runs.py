"""Ways to be wrong that show in runs with more than usual: long, weighted, masked, or with a second of something."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ipu_conformance.emulator.faults.catalogue import patch

KERAS, OPTIM, RUN = (f"tensorflow.{room}" for room in ("keras", "optim", "run"))
REPORT = "tensorflow.estimator.report"
STAGES, STEPPED = f"{KERAS}.partition:KerasStages", f"{KERAS}.callbacks:Stepped"


@patch("outfeed-second-queue-first", "streams", f"{RUN}.outfeed:IPUOutfeedQueue._push",
       "the second outfeed of a program holds what the first is given", remembers=True)  # fmt: skip
def _of_first_queue(memory: Dict[Any, Any], original: Any, queue: Any, outputs: Any) -> Any:
    import tensorflow as tf

    specs = [(leaf.shape.as_list(), leaf.dtype) for leaf in tf.nest.flatten(outputs)]
    graph = tf.nest.flatten(outputs)[0].graph
    owner, first, known = memory.setdefault(id(graph), (queue, outputs, specs))
    return original(queue, first if owner is not queue and known == specs else outputs)


@patch("outfeed-values-in-half", "numerics", f"{RUN}.outfeed:IPUOutfeedQueue._push",
       "what is enqueued has the bits of a float16")  # fmt: skip
def _in_half(original: Any, queue: Any, outputs: Any) -> Any:
    import tensorflow as tf

    def narrow(leaf: Any) -> Any:
        return tf.cast(tf.cast(leaf, tf.float16), leaf.dtype) if leaf.dtype == tf.float32 else leaf

    return original(queue, tf.nest.map_structure(narrow, outputs))


@patch("keras-long-execution-of-first-run", "streams", f"{RUN}.training:repeated_last",
       "an execution of many runs returns the logs of its first")  # fmt: skip
def _first_run(original: Any, times: Any, body: Any, spec: Any) -> Any:
    first = body()
    original(times - 1, body, spec)
    return first


@patch("keras-long-execution-last-run-lost", "streams", f"{RUN}.training:repeated_all",
       "an execution of many runs returns its last but one twice, and not its last")  # fmt: skip
def _last_run_lost(original: Any, times: Any, body: Any, spec: Any) -> Any:
    import tensorflow as tf

    joined = original(times, body, spec)
    return tf.nest.map_structure(lambda value: tf.concat([value[:-1], value[-2:-1]], 0), joined)


@patch("keras-long-execution-one-run-less", "plan", f"{RUN}.training:repeated_last",
       "an execution of many runs has one less")  # fmt: skip
def _one_run_less(original: Any, times: Any, body: Any, spec: Any) -> Any:
    return original(times - 1, body, spec)


@patch("keras-sample-weights-ignored", "update", f"{STAGES}.finish",
       "a pipeline takes every sample for as much as any other")  # fmt: skip
def _unweighted(original: Any, stages: Any, live: Any, data: Any) -> Any:
    return original(stages, live, data[:2] if isinstance(data, tuple) else data)


@patch("keras-second-sample-weights-ignored", "update", f"{STAGES}.finish",
       "the weights of samples for the first output are those for all outputs of a pipeline")  # fmt: skip
def _first_weights(original: Any, stages: Any, live: Any, data: Any) -> Any:
    if isinstance(data, tuple) and len(data) == 3 and isinstance(data[2], dict):
        x, y, weights = data
        data = (x, y, dict.fromkeys(weights, next(iter(weights.values()))))
    return original(stages, live, data)


@patch("keras-masks-stay-in-their-stage", "streams", f"{STAGES}.forward",
       "what a layer has masked counts in later stages")  # fmt: skip
def _without_masks(original: Any, stages: Any, stage: int, live: Any) -> Any:
    import tensorflow as tf

    handed = original(stages, stage, live)
    return {name: tf.identity(tensor) for name, tensor in handed.items() if not name.endswith(" mask")}


@patch("keras-rate-of-the-first-epoch", "update", f"{RUN}.machine:apply",
       "a learning rate that is set after a program was compiled is not used")  # fmt: skip
def _first_rate(original: Any, gradients: Any) -> None:
    import tensorflow as tf

    optimizer = gradients[0].optimizer
    held = optimizer.__dict__.get("_learning_rate")
    if not isinstance(held, tf.Variable):
        return original(gradients)
    with tf.init_scope():
        now = held.numpy()
    object.__setattr__(optimizer, "_learning_rate", tf.constant(now))
    try:
        return original(gradients)
    finally:
        object.__setattr__(optimizer, "_learning_rate", held)


@patch("keras-third-replica-not-loaded", "weights", f"{RUN}.variables:broadcast",
       "a program that is loaded leaves replicas from the third on as they were")  # fmt: skip
def _two_loaded(original: Any, variables: Any) -> None:
    for variable in variables:
        for number, other in variable.__dict__.get("_others", {}).items():
            if number < 2:
                other.assign(variable)


@patch("keras-restored-on-first-replica", "weights", f"{RUN}.variables:Replicated._restore_from_tensors",
       "a checkpoint that is restored reaches replica 0 only")  # fmt: skip
def _first_restored(original: Any, variable: Any, tensors: Any) -> Any:
    return _alone(original, variable, tensors)


@patch("keras-host-adds-to-first-replica", "weights", f"{RUN}.variables:Replicated.assign_add",
       "what the host adds to a variable reaches replica 0 only")  # fmt: skip
def _first_added(original: Any, variable: Any, delta: Any, *rest: Any, **settings: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import replicas

    if replicas.inside():
        return original(variable, delta, *rest, **settings)
    return _alone(original, variable, delta, *rest, **settings)


def _alone(original: Any, variable: Any, *arguments: Any, **settings: Any) -> Any:
    """Call a method of a variable that has no values of other replicas meanwhile."""
    others = variable.__dict__.pop("_others", {})
    try:
        return original(variable, *arguments, **settings)
    finally:
        variable.__dict__["_others"] = others


@patch("keras-second-regulariser-lost", "reduce", f"{KERAS}.partition:_losses",
       "a stage counts the regulariser of its first layer only")  # fmt: skip
def _first_regulariser(original: Any, calls: Any) -> Any:
    return original(calls)[:1]


@patch("keras-activities-not-regularised", "reduce", f"{KERAS}.partition:_losses",
       "stages leave out what layers add to the loss for their outputs")  # fmt: skip
def _weights_alone(original: Any, calls: Any) -> Any:
    layers = [layer for call in calls for layer in call.layer._flatten_layers()]
    added = {id(loss) for layer in layers for loss in (*layer._losses, *layer._eager_losses)}
    return [loss for loss in original(calls) if id(loss) not in added]


@patch("loss-scaling-reset-keeps-counts", "update", f"{OPTIM}.loss_scaling:LossScaling.reset",
       "a reset of the factor of a loss keeps what was counted")  # fmt: skip
def _counts_kept(original: Any, scaling: Any) -> None:
    counts, steps = scaling.counts.numpy(), scaling.steps.numpy()
    original(scaling)
    scaling.counts.assign(counts)
    scaling.steps.assign(steps)


@patch("loss-scaling-histogram-reversed", "update", f"{OPTIM}.loss_scaling:LossScaling.histogram",
       "the elements above the edge come before those below")  # fmt: skip
def _reversed(original: Any, scaling: Any) -> Any:
    return original(scaling)[::-1]


@patch("keras-summed-metrics-averaged", "streams", f"{KERAS}.execution:reduced",
       "sums of the replicas' metrics are means")  # fmt: skip
def _averaged(original: Any, by_replica: List[Any], method: Any) -> Any:
    return original(by_replica, type(method).MEAN if method.name == "SUM" else method)


@patch("keras-evaluation-last-step-called", "streams", f"{STEPPED}.on_test_batch_end",
       "asynchronous callbacks of an evaluation see the last step of an execution")  # fmt: skip
def _last_step(original: Any, callbacks: Any, batch: int, logs: Any = None) -> None:
    import tensorflow as tf

    original(callbacks, batch, tf.nest.map_structure(lambda values: values[-1:], logs))


@patch("keras-prediction-steps-swapped", "streams", f"{STEPPED}.on_predict_batch_end",
       "asynchronous callbacks of a prediction get the outputs of the last step first")  # fmt: skip
def _swapped_steps(original: Any, callbacks: Any, batch: int, logs: Any = None) -> None:
    import tensorflow as tf

    steps = batch - callbacks._first + 1
    reversed_ = tf.nest.map_structure(lambda value: tf.concat(tf.split(value, steps)[::-1], 0), logs)
    original(callbacks, batch, reversed_)


@patch("accumulation-mean-of-four", "update", f"{OPTIM}.accumulation:Accumulating._reduced",
       "the mean of many mini-batches is that of four")  # fmt: skip
def _mean_of_four(original: Any, accumulating: Any, held: Any) -> Any:
    return original(accumulating, held) * max(1.0, accumulating._num_mini_batches / 4)


@patch("accumulation-first-optimizer-only", "update", "tensorflow.compile.device_loop:_update",
       "of several optimizers that accumulate in a loop the first updates")  # fmt: skip
def _first_optimizer(original: Any, updates: List[Any]) -> None:
    original(updates[:1])


@patch("scaled-accumulation-stays-scaled", "update",
       f"{OPTIM}.keras_accumulation:ALSGradientAccumulationOptimizer.apply_gradients",
       "accumulated gradients of a scaled loss are applied as they are")  # fmt: skip
def _stays_scaled(original: Any, optimizer: Any, grads_and_vars: Any, *rest: Any, **settings: Any) -> Any:
    factor = optimizer.loss_scaling_factor
    pairs = [(gradient * factor, variable) for gradient, variable in grads_and_vars]
    return original(optimizer, pairs, *rest, **settings)


@patch("inverted-chaining-not-mapped", "update",
       f"{OPTIM}.wrappers:MapGradientOptimizerInvertedChaining.apply_gradients",
       "gradients that are to be mapped when they are applied are not")  # fmt: skip
def _not_mapped(original: Any, optimizer: Any, *arguments: Any, **settings: Any) -> Any:
    held, optimizer._function = optimizer._function, lambda gradient, variable: gradient
    try:
        return original(optimizer, *arguments, **settings)
    finally:
        optimizer._function = held


@patch("accumulation-reduction-not-saved", "update",
       f"{OPTIM}.keras_accumulation:GradientAccumulationOptimizer.get_config",
       "the configuration of an accumulating optimizer always has a sum")  # fmt: skip
def _always_sum(original: Any, optimizer: Any) -> Dict[str, Any]:
    return {**original(optimizer), "reduction_method": "SUM"}


@patch("scaling-settings-lost", "update", f"{OPTIM}.keras_scaling:ParameterUnscalingALSOptimizer.get_config",
       "the configuration of an optimizer with its scaling has a default for its last setting")  # fmt: skip
def _setting_lost(original: Any, optimizer: Any) -> Dict[str, Any]:
    config: Dict[str, Any] = original(optimizer)
    defaults: Tuple[Any, ...] = (1e-07, 0.0, False)
    last = optimizer.OWN[-1]
    return {**config, last: next(value for value in defaults if type(value) is type(config[last]))}


@patch("pipelined-report-of-one-run", "plan", f"{REPORT}:planned_pipeline",
       "the report of a pipelined estimator tells of one run of a loop")  # fmt: skip
def _one_run(original: Any, spec: Any, run: Any, training: bool) -> Any:
    return original(spec, run._replace(iterations_per_loop=spec.gradient_accumulation_count), training)


@patch("pipelined-report-of-one-replica", "plan", f"{REPORT}:planned_pipeline",
       "the report of a pipelined estimator tells of one replica")  # fmt: skip
def _one_replica(original: Any, spec: Any, run: Any, training: bool) -> Any:
    return original(spec, run._replace(num_replicas=1), training)


@patch("pipelined-report-of-one-stage", "plan", f"{REPORT}:FirstMicroBatch.forward",
       "the report of a pipelined estimator has all operations in the first stage")  # fmt: skip
def _one_stage(original: Any, passed: Any, name: str, stages: int) -> Any:
    held = passed._passed
    last = max(each.start for each in held.values())
    passed._passed = {number: each._replace(start=last + number * 10**6) for number, each in held.items()}
    try:
        return original(passed, name, stages)
    finally:
        passed._passed = held


@patch("estimator-batch-size-of-training", "plan", "tensorflow.estimator.loop:IPUEstimator._params_of",
       "evaluation and prediction have the batch size of training")  # fmt: skip
def _as_in_training(original: Any, estimator: Any, mode: str) -> Any:
    return original(estimator, "train")


@patch("unnamed-layers-share-weights", "weights", "tensorflow.compile.graph_context:use_names",
       "layers without a name are numbered from the beginning in every stage, loop and program")  # fmt: skip
def _from_the_beginning(original: Any, names: Any) -> None:
    return None


@patch("first-values-of-programs-are-zero", "weights", "tensorflow.compile.first_values:outside",
       "a variable begins with zeros where the program computes its first value")  # fmt: skip
def _zeros(original: Any, value: Any) -> Any:
    import tensorflow as tf

    moved = original(value)
    if moved is value:
        return moved
    with tf.init_scope():
        return tf.zeros_like(moved)


@patch("pipeline-serialised-batches-once", "plan", "tensorflow.compile.pipeline:pipeline",
       "a stage takes one batch in each execution, however many are asked for")  # fmt: skip
def _one_batch(original: Any, stages: Any, *args: Any, **settings: Any) -> Any:
    if settings.pop("batch_serialization_iterations", 1) > 1:
        settings["device_mapping"] = [0] * len(stages)
    return original(stages, *args, **settings)


@patch("pipeline-serialised-anyhow", "refusal", "tensorflow.compile.stage_lists:check_serialised",
       "several batches in an execution of a stage go with any schedule, mapping and reduction")  # fmt: skip
def _anyhow(original: Any, *args: Any) -> None:
    return None


@patch("pipeline-functions-of-a-stage-reversed", "plan", "tensorflow.compile.stage_lists:_side_by_side",
       "the functions of one stage hand on their outputs in the opposite order")  # fmt: skip
def _opposite(original: Any, stage: List[Any]) -> Any:
    return original(stage[::-1])


KEPT = f"{RUN}.gradient_capture:_keep"


@patch("captured-gradients-doubled", "numerics", KEPT, "gradients are captured twice as large as they are")
def _twice_as_large(original: Any, tag: str, gradients: List[Any]) -> None:
    original(tag, [2 * gradient for gradient in gradients])


@patch("captured-gradients-for-the-outermost", "streams", KEPT, "gradients are captured by the outermost context")
def _for_the_outermost(original: Any, tag: str, gradients: List[Any]) -> None:
    from ipu_conformance.emulator.tensorflow.run import gradient_capture

    frames = gradient_capture._open.frames
    frames[0][1].setdefault(tag, gradients)


@patch("captured-gradients-without-a-scope", "refusal", KEPT, "a gradient that nobody captures is no error")
def _without_a_scope(original: Any, tag: str, gradients: List[Any]) -> None:
    from ipu_conformance.emulator.tensorflow.run import gradient_capture

    if gradient_capture.number_open():
        original(tag, gradients)


@patch("captured-gradients-overwritten", "refusal", KEPT, "a second gradient of one tag takes the place of the first")
def _overwritten(original: Any, tag: str, gradients: List[Any]) -> None:
    from ipu_conformance.emulator.tensorflow.run import gradient_capture

    for _, kept in gradient_capture._open.frames[-1:]:
        kept.pop(tag, None)
    original(tag, gradients)


@patch("marked-tensors-negated", "numerics", f"{RUN}.gradient_capture:capture_upstream_gradients",
       "tensors whose gradients are to be captured change their sign")  # fmt: skip
def _negated(original: Any, args: Any, tag: str = "") -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(tf.negative, original(args, tag))


@patch("exports-halve-results", "numerics", f"{RUN}.serving:_frozen", "every step of an export returns halves")
def _halving(original: Any, step: Any, signature: Any) -> Any:
    import tensorflow as tf

    return original(lambda *args: tf.nest.map_structure(lambda value: value / 2, step(*args)), signature)


@patch("exports-hold-the-first-stage", "plan", f"{RUN}.serving:export", "an export has the first stage alone")
def _first_stage(original: Any, stages: Any, *args: Any) -> Any:
    return original(stages[:1], *args)
