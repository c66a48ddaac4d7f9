"""What estimators refuse: their configuration, what model and input functions return, and how they are called."""

from __future__ import annotations

import functools
from typing import Any, Dict, Tuple

from ipu_conformance.emulator.faults import refuse


def _whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


# The configuration of a run

POSITIVE = {
    name: refuse(
        f"tensorflow.estimator-{name.replace('_', '-')}",
        when=lambda value: value < 1,
        error=ValueError,
        sentence=f"`{name}` is {{value}}; it must be at least 1.",
    )
    for name in ("iterations_per_loop", "num_replicas", "num_shards")
}
"""The numbers of an IPURunConfig that count something."""
OPTIONS_TYPE = refuse(
    "tensorflow.estimator-options-type",
    when=lambda options, kinds: not isinstance(options, kinds),
    error=TypeError,
    sentence="`ipu_options` is {options!r}; it must be an IPUConfig.",
)
OPTIONS_MISSING = refuse(
    "tensorflow.estimator-options-missing",
    when=lambda ipus, options: ipus > 1 and options is None,
    error=ValueError,
    sentence="The IPURunConfig needs {ipus} IPUs, and `ipu_options` is None: pass an IPUConfig that selects them.",
)
IPUS = refuse(
    "tensorflow.estimator-ipus",
    when=lambda run, ipus: run.num_replicas * run.num_shards != ipus,
    error=ValueError,
    sentence=lambda run, ipus: (
        f"`IPURunConfig` is configured with {run.num_replicas * run.num_shards} IPUs ({run.num_replicas} num_replicas "
        f"times {run.num_shards} num_shards), but the device is configured with {ipus} IPUs: the two must be equal."
    ),
)
BATCH_SIZE = refuse(
    "tensorflow.estimator-batch-size",
    when=lambda size, replicas: size % replicas != 0,
    error=ValueError,
    sentence="A batch of {size} cannot be divided among {replicas} replicas: use a multiple of them.",
)
CONFIG = refuse(
    "tensorflow.estimator-config",
    when=lambda config, kind: not isinstance(config, kind),
    error=ValueError,
    sentence="`config` is {config!r}; it must be given as a RunConfig of ipu_run_config.",
)

# Calls of an estimator

STEPS = refuse(
    "tensorflow.estimator-steps",
    when=lambda steps, each: steps is not None and steps % each != 0,
    error=ValueError,
    sentence="steps ({steps}) must be a multiple of iterations_per_loop ({each})",
)
EVALUATION_STEPS = refuse(
    "tensorflow.estimator-evaluation-steps",
    when=lambda steps: steps is None,
    error=ValueError,
    sentence="`steps` is None; give the number of steps to evaluate: an IPU does not see the end of the data.",
)
PREDICTIONS = refuse(
    "tensorflow.estimator-predictions",
    when=lambda number: number is not None and number < 1,
    error=ValueError,
    sentence="`num_predictions` is {number}; it must be at least 1.",
)
DATA_SET = refuse(
    "tensorflow.estimator-data-set",
    when=lambda given, kind: not isinstance(given, kind),
    error=ValueError,
    sentence="The input_fn returned {given.__class__.__name__}; it must return a tf.data.Dataset of features, or of "
    "features and labels.",
)
DATA_END = refuse(
    "tensorflow.estimator-data-end",
    when=lambda running: running,
    error="ipu_conformance.emulator.tensorflow.estimator.hooks.DataSetEnded",
    sentence="The data set of the input_fn ended in the middle of a loop: repeat it, or ask for as many steps or "
    "predictions as it has data for.",
)
LOGGED_TWICE = refuse(
    "tensorflow.estimator-logged-twice",
    when=lambda logged: logged,
    error=RuntimeError,
    sentence="`log` was called twice: an IPULoggingTensorHook logs what it is given in one call.",
)
LOGGED_TYPE = refuse(
    "tensorflow.estimator-logged-type",
    when=lambda value, is_tensor: not is_tensor,
    error=TypeError,
    sentence="`log` was given {value!r}: expected `tf.Tensor`, a list or a dictionary of them.",
)

# What a model function does

LABELS = refuse(
    "tensorflow.estimator-labels",
    when=lambda labels, taken: labels is not None and "labels" not in taken,
    error=ValueError,
    sentence="The model_fn takes no labels, but the input_fn returns labels: add a `labels` argument to it.",
)
SHARDS = refuse(
    "tensorflow.estimator-shards",
    when=lambda used, shards: used > shards,
    error=ValueError,
    sentence="The model uses {used} IPUs, but num_shards of the IPURunConfig is {shards}: set it to the number of IPUs "
    "of one replica.",
)
REDUCTION = refuse(
    "tensorflow.estimator-reduction",
    when=lambda replicas, met: replicas > 1 and not met,
    error=ValueError,
    sentence="This is not a valid replicated training program, because its replicas never exchange anything: did you "
    "forget to wrap the optimizer with CrossReplicaOptimizer?",
)
GLOBAL_STEP = refuse(
    "tensorflow.estimator-global-step",
    when=lambda step, written: step in written,
    error=ValueError,
    sentence="The model_fn increments the global step: leave it out of the optimizer's arguments, the estimator counts "
    "the iterations itself.",
)

# What a model function returns for a loop

SPEC = refuse(
    "tensorflow.estimator-spec",
    when=lambda returned, kind: not isinstance(returned, kind),
    error=ValueError,
    sentence="The model_fn returned {returned.__class__.__name__}; it must return an IPUEstimatorSpec or an "
    "EstimatorSpec.",
)
METRICS = refuse(
    "tensorflow.estimator-metrics-twice",
    when=lambda on_host, on_device: on_host is not None and on_device,
    error=ValueError,
    sentence="Both `eval_metrics` and `eval_metric_ops` are given; leave out those for the device, or those for the "
    "host.",
)
NO_METRICS = refuse(
    "tensorflow.estimator-metrics-missing",
    when=lambda on_host, on_device: on_host is None and not on_device,
    error=ValueError,
    sentence="The spec of an evaluation must contain either `eval_metric_ops` or `eval_metrics`.",
)
ON_HOST: Dict[str, Tuple[type, ...]] = {"eval_metrics": (list, dict), "host_call": (list,)}
"""What the host calls, and how its tensors may be given."""


def _is_call(given: Any, kinds: Tuple[type, ...]) -> bool:
    """Whether it is a tuple of a function and tensors; how many it holds is another question."""
    if not isinstance(given, tuple):
        return False
    return len(given) != 2 or (callable(given[0]) and isinstance(given[1], kinds))


FUNCTION_AND_TENSORS = {
    name: refuse(
        f"tensorflow.estimator-{name.replace('_', '-')}",
        when=functools.partial(lambda given, kinds: not _is_call(given, kinds), kinds=kinds),
        error=TypeError,
        sentence=f"`{name}` is {{given!r}}; it must be a tuple of a function and a "
        f"{' or '.join(kind.__name__ for kind in kinds)} of the tensors that it gets.",
    )
    for name, kinds in ON_HOST.items()
}
CALL_SIZE = {
    name: refuse(
        f"tensorflow.estimator-{name.replace('_', '-')}-size",
        when=lambda given: len(given) != 2,
        error=ValueError,
        sentence=f"`{name}` is {{given!r}}; it must have two elements, a function and the tensors that it gets.",
    )
    for name in ON_HOST
}
HOST_CALL_RESULT = refuse(
    "tensorflow.estimator-host-call-result",
    when=lambda returned, fits: not fits,
    error=TypeError,
    sentence="The function of `host_call` returned {returned!r}; it must return a tensor or an operation.",
)
HOST_CALL_IN_LOOP = refuse(
    "tensorflow.estimator-host-call-in-loop",
    when=lambda iterations: iterations > 1,
    error=ValueError,
    sentence="host_call is not allowed for iterations_per_loop > 1: it is {iterations}.",
)

# What a model function returns for a pipeline

_COUNT = "`gradient_accumulation_count`, the number of micro-batches in a run of the pipeline,"

PIPELINE_ARGUMENT = refuse(
    "tensorflow.pipelined-argument",
    when=lambda name, taken: name not in taken,
    error=ValueError,
    sentence=lambda name, taken: (
        f"The model_fn of an IPUPipelineEstimator takes {name!r}; it may take {', '.join(taken)}: the elements of the "
        "data set are the arguments of the first stage."
    ),
)
PIPELINE_SPEC = refuse(
    "tensorflow.pipelined-spec",
    when=lambda returned, kind: not isinstance(returned, kind),
    error=TypeError,
    sentence="The model_fn returned {returned.__class__.__name__}; it must return an IPUPipelineEstimatorSpec.",
)
MODE = refuse(
    "tensorflow.pipelined-mode",
    when=lambda mode, modes: mode not in modes,
    error=ValueError,
    sentence="The mode of an IPUPipelineEstimatorSpec is {mode!r}; it must be one of {modes}.",
)
STAGES = refuse(
    "tensorflow.pipelined-stages",
    when=lambda stages: not (isinstance(stages, (list, tuple)) and all(callable(stage) for stage in stages)),
    error=TypeError,
    sentence="`computational_stages` is {stages!r}; pass a list of functions, one for each stage.",
)
COUNT_MISSING = refuse(
    "tensorflow.pipelined-count-missing",
    when=lambda count: count is None,
    error=ValueError,
    sentence=f"{_COUNT} is missing from the IPUPipelineEstimatorSpec.",
)
COUNT_TYPE = refuse(
    "tensorflow.pipelined-count-type",
    when=lambda count: not _whole(count),
    error=TypeError,
    sentence=f"{_COUNT} is {{count!r}}; it must be a whole number.",
)
COUNT = refuse(
    "tensorflow.pipelined-count",
    when=lambda count: count < 1,
    error=ValueError,
    sentence=f"{_COUNT} is {{count}}; it must be at least 1.",
)
FUNCTION_MISSING = {
    name: refuse(
        f"tensorflow.pipelined-{name.replace('_', '-')}-missing",
        when=lambda needed, function: needed and function is None,
        error=ValueError,
        sentence=f"An IPUPipelineEstimatorSpec for {doing} must contain `{name}`.",
    )
    for name, doing in (("optimizer_function", "training"), ("eval_metrics_fn", "evaluation"))
}
FUNCTION_TYPE = {
    name: refuse(
        f"tensorflow.pipelined-{name.replace('_', '-')}-type",
        when=lambda function: function is not None and not callable(function),
        error=TypeError,
        sentence=f"`{name}` is {{function!r}}; pass a function of what the last stage returns.",
    )
    for name in FUNCTION_MISSING
}
OWN_OPTION = refuse(
    "tensorflow.pipelined-own-option",
    when=lambda name, options: name in options,
    error=ValueError,
    sentence="Found `{name}` in the options of the pipeline: the estimator sets it, leave it out.",
)
HOOK = refuse(
    "tensorflow.pipelined-hook",
    when=lambda hook, kind, **_: not isinstance(hook, kind),
    error=TypeError,
    sentence="`{name}` holds {hook!r}; all hooks must be SessionRunHook instances.",
)
LOOP = refuse(
    "tensorflow.pipelined-loop",
    when=lambda iterations, count: iterations % count != 0,
    error=ValueError,
    sentence="iterations_per_loop ({iterations}) of the IPURunConfig must be at least the gradient_accumulation_count "
    "({count}) and divisible by it: a loop is whole runs of the pipeline.",
)
IDLE_SHARDS = refuse(
    "tensorflow.pipelined-idle-shards",
    when=lambda required, shards: not shards // 2 < required <= shards,
    error=ValueError,
    sentence="This pipeline requires {required} IPUs, but num_shards of the IPURunConfig is {shards}: it must be at "
    "least as many, and less than twice as many.",
)
UNNAMED_PREDICTIONS = refuse(
    "tensorflow.pipelined-predictions",
    when=lambda outputs: not isinstance(outputs, dict) and len(outputs) > 1,
    error=ValueError,
    sentence=lambda outputs: (
        f"The last stage returned {len(outputs)} tensors to predict: return one, or a dictionary with names."
    ),
)
METRICS_TYPE = refuse(
    "tensorflow.pipelined-metrics-type",
    when=lambda metrics, **_: not isinstance(metrics, dict),
    error=TypeError,
    sentence="The eval_metrics_fn returned {metrics!r}; it must return a dictionary that holds {loss!r}.",
)
