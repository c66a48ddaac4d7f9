"""Ways to be wrong from some count on, or only for the second of a kind: replica, weight, output, value, metric."""

from __future__ import annotations

from typing import Any, Dict, List

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, patch, register, result

API, COMPILE, OPTIM, RUN = (f"tensorflow.{room}" for room in ("api", "compile", "optim", "run"))
COLLECTIVES, OUTFEED = f"{RUN}.collectives", f"{RUN}.outfeed:IPUOutfeedQueue"
LOOP, HOOK = "tensorflow.estimator.loop:LoopProgram", "tensorflow.estimator.hooks:IPULoggingTensorHook"
FEW = 4
"""Counts up to this one are right."""


def _few(values: Any) -> Any:
    """As many values, but none after the first few is new."""
    return [*values[:FEW], *values[FEW - 1 : FEW] * (len(values) - FEW)]


def _first_only(original: Any, pairs: Any) -> List[Any]:
    listed = list(pairs)
    return [*original(listed[:1]), *listed[1:]]


def _same_third(values: Any) -> Any:
    return [*values[:2], *values[1:2] * (len(values) - 2)]


def _all_the_first(tensors: Any) -> Any:
    return dict.fromkeys(tensors, next(iter(tensors.values()))) if isinstance(tensors, dict) else tensors


for _name, _area, _function, _what, _wrong in (
    # Replicas
    ("graph-keeps-its-replicas", "plan", f"{COMPILE}.compiler:_again",
     "a graph keeps the replicas of the configuration that it was built under",
     result(lambda again: (again[0], lambda: False))),
    ("infeed-fifth-replica-unfed", "streams", f"{RUN}.infeed:IPUInfeedQueue._elements",
     "replicas from the fifth on take what the fourth does", result(_few)),
    ("collective-fifth-replica-lost", "reduce", f"{COLLECTIVES}:_added", "means leave out replicas from the fifth on",
     argument("members", lambda members: members[:FEW])),
    ("keras-fifth-replica-lost", "reduce", f"{RUN}.machine:_Accumulating.reduce",
     "gradients of replicas from the fifth on are those of the fourth", argument("gradients", _few)),
    ("host-writes-to-three-replicas", "weights", f"{RUN}.variables:Replicated._values_of_others",
     "what the host writes reaches three replicas", result(lambda others: others[:2])),
    ("within-replica-mean-is-sum", "reduce", f"{API}.ops.within_replica_ops:_reduced", "means over shards are sums",
     argument("op", always("COLLECTIVE_OP_ADD"))),
    ("within-replica-first-axis", "reduce", f"{API}.ops.within_replica_ops:all_gather",
     "shards are always joined along their first axis", argument("axis", always(0))),
    ("all-to-all-one-axis", "reduce", f"{API}.ops.all_to_all_op:all_to_all",
     "pieces are joined along the axis that they were cut from",
     lambda original, x, split, concat, *rest: original(x, split, split, *rest)),
    ("estimator-host-call-first-replica", "streams", f"{LOOP}._of_replicas",
     "a host call gets what the first replica left", lambda original, program, leaf: leaf[0]),
    ("strategy-third-replica-unfed", "streams", f"{RUN}.strategy_run:_SharedIterator._elements",
     "replicas from the third on take what the second does", result(_same_third)),
    # Weights
    ("keras-second-optimizer-idle", "update", f"{RUN}.machine:apply", "only the first optimizer of a step updates",
     argument("gradients", lambda all_: [one for one in all_ if one.optimizer is all_[0].optimizer])),
    ("second-weight-not-averaged", "reduce", f"{OPTIM}.wrappers:averaged",
     "only the first weight's gradient is a mean over replicas", _first_only),
    ("second-weight-not-mapped", "update", f"{OPTIM}.wrappers:mapped", "only the first weight's gradient is mapped",
     lambda original, function, pairs: _first_only(lambda some: original(function, some), pairs)),
    ("loss-scaling-first-gradient", "update", f"{OPTIM}.loss_scaling:LossScaling.adapted",
     "only the first gradient tells of an overflow", argument("gradients", lambda gradients: gradients[:1])),
    # Values, outputs and metrics
    ("loop-third-value-lost", "streams", f"{COMPILE}.device_loop:counted", "a loop's third value is its second",
     result(_same_third)),
    ("loop-counter-restarts", "plan", f"{COMPILE}.device_loop:Iteration.__init__",
     "the counter of a loop begins again after every update",
     lambda original, iteration, loop, number, since: original(iteration, loop, since, since)),
    ("pipeline-mask-first-only", "streams", f"{RUN}.pipeline_machine:_leaving", "only a mask's first entry counts",
     argument("program", lambda program: program._replace(
         outfeed_mask=program.outfeed_mask and [program.outfeed_mask[0], *[False] * (len(program.outfeed_mask) - 1)]
     ))),
    ("estimator-logs-first-tensor", "streams", f"{HOOK}.log", "every logged tensor is the first one",
     argument("tensors", _all_the_first)),
):  # fmt: skip
    register(Fault(_name, _area, _function, _what, _wrong), __name__)


@patch("collective-group-gradient-over-all", "reduce", f"{COLLECTIVES}:all_reduce",
       "the gradient of a reduction over groups is reduced over all replicas")  # fmt: skip
def _over_all(original: Any, value: Any, reduction: str = "sum", group: Any = None, name: str = "all_reduce") -> Any:
    import tensorflow as tf

    @tf.custom_gradient
    def reduced(own: Any) -> Any:
        return original(own, reduction, group, name), lambda gradient: original(gradient, reduction, None, name)

    return reduced(value)


@patch("collective-gather-gradient-alone", "reduce", f"{COLLECTIVES}:all_gather",
       "the gradient of what is gathered is that of the replica itself")  # fmt: skip
def _alone(original: Any, value: Any, *arguments: Any) -> Any:
    import tensorflow as tf

    from ipu_conformance.emulator.tensorflow.run import replicas

    @tf.custom_gradient
    def gathered(own: Any) -> Any:
        return original(own, *arguments), lambda gradient: gradient[replicas.current()]

    return gathered(value)


@patch("statistics-of-the-first-replica", "weights", f"{RUN}.variables:Replicated.assign_sub",
       "running variances move on the first replica only")  # fmt: skip
def _first_replica(original: Any, variable: Any, delta: Any, *arguments: Any, **settings: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import replicas

    still = replicas.current() > 0 and "variance" in variable.name
    return original(variable, delta * 0 if still else delta, *arguments, **settings)


@patch("outfeed-second-output-stale", "streams", f"{OUTFEED}._push",
       "of the last values of a run all but the first output are those of its first micro-batch")  # fmt: skip
def _stale(original: Any, queue: Any, outputs: List[List[Any]]) -> Any:
    import tensorflow as tf

    def mixed(last: Any, first: Any) -> Any:
        newest, *_ = tf.nest.flatten(last)
        return tf.nest.pack_sequence_as(last, [newest, *tf.nest.flatten(first)[1:]])

    return original(queue, [[*own[:-1], mixed(own[-1], own[0])] for own in outputs])


@patch("pipeline-sums-first-output", "streams", f"{COMPILE}.pipeline:_leave",
       "an accumulated outfeed adds up the first output only")  # fmt: skip
def _first_output(
    original: Any, queue: Any, outputs: List[List[Any]], planned: Any, accumulated: bool, dtype: Any
) -> Any:
    if accumulated:
        outputs = [
            [[entry[0], *(value * (place == len(own) - 1) for value in entry[1:])] for place, entry in enumerate(own)]
            for own in outputs
        ]
    return original(queue, outputs, planned, accumulated, dtype)


@patch("keras-second-metric-of-one-replica", "streams", "tensorflow.keras.execution:reduced",
       "metrics beside the loss are those of the last replica")  # fmt: skip
def _one_replica(original: Any, by_replica: List[Dict[str, Any]], method: Any) -> Any:
    logs = original(by_replica, method)
    if not isinstance(logs, dict) or method.name not in ("SUM", "MEAN"):
        return logs
    return {name: value if name == "loss" else by_replica[-1][name] for name, value in logs.items()}


@patch("keras-second-metric-of-first-step", "streams", "tensorflow.keras.execution:accumulated",
       "metrics beside the loss of an accumulated outfeed are those of the first step")  # fmt: skip
def _first_step(original: Any, logs: List[Dict[str, Any]], dtype: Any) -> Any:
    return {**logs[0], "loss": original(logs, dtype)["loss"]}


@patch("loss-scaling-maximum-ignored", "update", f"{OPTIM}.loss_scaling:LossScaling.__init__",
       "the factor of a loss grows above its maximum")  # fmt: skip
def _no_maximum(original: Any, scaling: Any, settings: Any, *late: Any) -> None:
    original(scaling, settings._replace(max_factor=2.0**15), *late)


@patch("recompute-second-stage-anew", "numerics", f"{RUN}.machine:StagedMachine.recompute",
       "the second stage draws again when it is recomputed")  # fmt: skip
def _second_anew(original: Any, machine: Any, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
    return _anew(original, machine, replica, stage, micro_batch, boundary, range(1, 2))


@patch("recompute-late-stages-anew", "numerics", f"{RUN}.machine:StagedMachine.recompute",
       "stages from the third on draw and count again when they are recomputed")  # fmt: skip
def _late_anew(original: Any, machine: Any, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
    return _anew(original, machine, replica, stage, micro_batch, boundary, range(2, 64))


def _anew(original: Any, machine: Any, replica: int, stage: int, micro_batch: int, boundary: Any, stages: range) -> Any:
    if stage not in stages:
        return original(machine, replica, stage, micro_batch, boundary)
    machine._first_passes.pop((replica, stage, micro_batch))
    return machine.passed(replica, stage, micro_batch, boundary, True)[1]


@patch("accumulators-of-two-cleared", "update", f"{OPTIM}.keras_accumulation:GradientAccumulationOptimizer._update",
       "accumulators of Keras after the second go on after an update")  # fmt: skip
def _two_cleared(original: Any, optimizer: Any, pairs: Any, after: Any) -> Any:
    import tensorflow as tf

    kept = [(variable, optimizer._held[id(variable)].read_value()) for _, variable in pairs[2:]]
    with tf.control_dependencies([value for _, value in kept]):
        done = original(optimizer, pairs, after)
    with tf.control_dependencies([done]):
        again = [optimizer._held[id(variable)].assign(value) for variable, value in kept]
    with tf.control_dependencies([done, *again]):
        return tf.constant(True)


@patch("accumulation-type-by-variable-lost", "numerics", f"{OPTIM}.accumulation:Accumulating._accumulation_dtype",
       "a function that gives the type of accumulators is not asked")  # fmt: skip
def _not_asked(original: Any, optimizer: Any, variable: Any, default: Any) -> Any:
    return default if callable(optimizer._dtype) else original(optimizer, variable, default)


@patch("keras-accumulation-type-lost", "numerics",
       f"{OPTIM}.keras_accumulation:GradientAccumulationOptimizer._create_all_weights",
       "Keras' gradients are accumulated in the type of their variables")  # fmt: skip
def _own_type(original: Any, optimizer: Any, variables: Any) -> Any:
    asked, optimizer._dtype = optimizer._dtype, None
    try:
        return original(optimizer, variables)
    finally:
        optimizer._dtype = asked


@patch("als-by-the-small", "update", f"{OPTIM}.loss_scaling:LossScaling.adapted",
       "large gradients are compared with the small ones, not with all")  # fmt: skip
def _by_the_small(original: Any, scaling: Any, *arguments: Any) -> Any:
    right = scaling.settings
    scaling.settings = right._replace(ratio_threshold=right.ratio_threshold / (1 + right.ratio_threshold))
    try:
        return original(scaling, *arguments)
    finally:
        scaling.settings = right


@patch("addons-lamb-divides-by-no-change", "update", f"{OPTIM}.mixed_precision:LAMBIpuOptimizer._trust",
       "LAMB divides by the norm of a change that is zero")  # fmt: skip
def _by_no_change(original: Any, optimizer: Any, value: Any, change: Any) -> Any:
    import tensorflow as tf

    trust = original(optimizer, value, change)
    return tf.where((tf.norm(value) > 0) & (tf.norm(change) == 0), tf.constant(float("inf"), trust.dtype), trust)


@patch("addons-velocity-without-rate", "update", f"{OPTIM}.mixed_precision:SGDIpuOptimizer._resource_apply_dense",
       "the add-ons' gradient descent keeps its velocity without the rate")  # fmt: skip
def _without_rate(original: Any, optimizer: Any, grad: Any, var: Any, apply_state: Any = None) -> Any:
    if not optimizer._momentum or optimizer.nesterov:
        return original(optimizer, grad, var, apply_state)
    rate = optimizer._rate(var, apply_state)

    def accelerated(gradient: Any, value: Any, velocity: Any) -> Any:
        velocity = velocity * optimizer._hyper_value("momentum") - gradient
        return value + rate * velocity, velocity

    return optimizer._updated(accelerated, grad, var, ("momentum",))


@patch("addons-largest-of-the-biased", "update", f"{OPTIM}.mixed_precision:IpuOptimizerBase._debiased",
       "AMSGrad keeps the largest mean with its start at zero")  # fmt: skip
def _biased(original: Any, optimizer: Any, m: Any, v: Any) -> Any:
    mean, square = original(optimizer, m, v)
    return mean, v if getattr(optimizer, "amsgrad", False) else square


@patch("addons-lamb-excludes-both", "update", f"{OPTIM}.mixed_precision:LAMBIpuOptimizer._resource_apply_dense",
       "what LAMB does not decay it does not scale, either")  # fmt: skip
def _excludes_both(original: Any, optimizer: Any, *arguments: Any, **settings: Any) -> Any:
    right = optimizer.exclude_from_layer_adaptation
    optimizer.exclude_from_layer_adaptation = [*(right or ()), *(optimizer.exclude_from_weight_decay or ())]
    try:
        return original(optimizer, *arguments, **settings)
    finally:
        optimizer.exclude_from_layer_adaptation = right


@patch("table-updated-by-two-replicas", "weights",
       "tensorflow.ops.host_embedding:HostEmbeddingOptimizerSpec._updates",
       "replicas after the second do not update a table on the host")  # fmt: skip
def _by_two(original: Any, spec: Any, table: Any, everyone: List[Any]) -> List[Any]:
    return [original(spec, table, everyone[:2])[0]] * len(everyone)


@patch("memory-without-state", "ir", "core.memory:estimate", "the state of an optimizer takes no memory")
def _stateless(original: Any, *arguments: Any, **settings: Any) -> Any:
    return original(*arguments, **{**settings, "optimizer": "sgd"})


@patch("pipeline-accumulation-type-lost", "numerics", f"{RUN}.machine:Pipeline.__init__",
       "pipelines of Keras accumulate gradients in the type of their variables")  # fmt: skip
def _pipeline_type(original: Any, machine: Any, *arguments: Any) -> None:
    original(machine, *arguments[:5])


@patch("dropout-rates-nearer-to-a-half", "numerics", "tensorflow.ops.dropout:dropout",
       "values are dropped at another rate than the one that they are scaled by")  # fmt: skip
def _nearer(original: Any, x: Any, rate: float = 0.5, *arguments: Any, **settings: Any) -> Any:
    nearer = rate * rate + 0.25 if rate else rate
    return original(x, nearer, *arguments, **settings) * ((1 - nearer) / (1 - rate))


@patch("dropout-noise-of-two-axes", "numerics", "tensorflow.ops.dropout:dropout",
       "noise of size one is one for two axes at most")  # fmt: skip
def _two_axes(original: Any, x: Any, rate: float = 0.5, noise_shape: Any = None, *arguments: Any, **more: Any) -> Any:
    noise = None if noise_shape is None else [*noise_shape[:2], *[None] * len(noise_shape[2:])]
    return original(x, rate, noise, *arguments, **more)
