"""Ways for an estimator to be wrong: its loops and steps, what it feeds, and what it hands to the host."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Iterator, List

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, patch, register, result

BASE, LOOP = "tensorflow.estimator.base:BaseEstimator", "tensorflow.estimator.loop:LoopProgram"
PROGRAM, HOOKS = "tensorflow.estimator.program", "tensorflow.estimator.hooks"
CONFIG = "tensorflow.estimator.run_config"


def _by_leaf(taken: Any, change: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(change, taken)


def _reshaped(leaf: Any, shape: List[int]) -> Any:
    import tensorflow as tf

    return tf.reshape(leaf, shape)


# Steps and loops


@patch("estimator-max-steps-down", "plan", f"{HOOKS}:loops", "max_steps is rounded down to whole loops")
def _rounded_down(original: Any, steps: int, iterations_per_loop: int) -> int:
    return max(0, steps // iterations_per_loop)


@patch("estimator-evaluation-longer", "plan", f"{BASE}._convert_eval_steps_to_hooks",
       "an evaluation has one loop more than it should")  # fmt: skip
def _longer(original: Any, estimator: Any, steps: int) -> Any:
    return original(estimator, steps + estimator._run.iterations_per_loop)


@patch("estimator-checkpoints-late", "weights", f"{BASE}._savers", "checkpoints are saved by loops, not by steps")
def _counting_runs(original: Any, estimator: Any, given: Any, scaffold: Any) -> List[Any]:
    savers: List[Any] = original(estimator, given, scaffold)
    for saver in savers:
        saver._set_steps_per_run(1)
    return savers


# The device of a model function


@patch("estimator-options-ignored", "plan", f"{BASE}._configure",
       "the options of the run configuration are not put in force")  # fmt: skip
def _one_ipu(original: Any, estimator: Any) -> None:
    from ipu_conformance.emulator.tensorflow.config.ipu_config import IPUConfig

    IPUConfig().configure_ipu_system()


@patch("estimator-on-the-host", "plan", f"{BASE}._call_user", "the model function is built in no scope")
def _no_scope(original: Any, *arguments: Any, **settings: Any) -> Any:
    import tensorflow as tf

    with tf.device(None):
        return original(*arguments, **settings)


@patch("estimator-input-on-the-device", "plan", f"{BASE}._call_input_fn", "an input function is built for the device")
def _on_the_device(original: Any, estimator: Any, input_fn: Any, *arguments: Any, **settings: Any) -> Any:
    import tensorflow as tf

    @functools.wraps(input_fn)
    def placed() -> Any:
        with tf.device(estimator._run.device):
            return input_fn()

    return original(estimator, placed, *arguments, **settings)


@patch("estimator-model-called-twice", "plan", f"{LOOP}._called", "an iteration calls the model function twice")
def _called_twice(original: Any, program: Any, *element: Any, **named: Any) -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE, auxiliary_name_scope=False):
        original(program, *element, **named)
        return original(program, *element, **named)


# Replicas and losses


@patch("estimator-loss-summed", "streams", f"{LOOP}._mean", "the loss of a loop is the sum over its steps")
def _summed(original: Any, program: Any, total: Any) -> Any:
    return program.mean_of_replicas(total)


# What comes back to the host


@patch("estimator-host-call-trains", "update", "tensorflow.estimator.specs:IPUEstimatorSpec.__new__",
       "a host_call stands for the training operation")  # fmt: skip
def _host_call_trains(original: Any, kind: Any, mode: str, *arguments: Any, **settings: Any) -> Any:
    if settings.get("host_call") is not None and settings.get("train_op") is None:
        settings["train_op"] = settings.get("loss")
    return original(kind, mode, *arguments, **settings)


@patch("estimator-host-call-built-only", "update", f"{LOOP}._called_on_host",
       "what host_call returns is built, and a loop does not run it")  # fmt: skip
def _built_only(original: Any, program: Any, loss: Any, outfeed: Any) -> Any:
    original(program, loss, outfeed)
    return loss


@patch("estimator-device-metrics-lost", "streams", "tensorflow.estimator.metrics:DeviceMetrics.values",
       "metrics of the device stay at 0")  # fmt: skip
def _zeros(original: Any, metrics: Any) -> List[Any]:
    import tensorflow as tf

    return [tf.zeros_like(value) for value in original(metrics)]


@patch("estimator-host-functions-twice", "streams", "tensorflow.estimator.feeds:passed",
       "functions of the host are called twice")  # fmt: skip
def _twice(original: Any, function: Any, tensors: Any) -> Any:
    original(function, tensors)
    return original(function, tensors)


@patch("estimator-predictions-reversed", "streams", f"{BASE}._parted", "predictions of a loop come in reverse order")
def _reversed(original: Any, estimator: Any, loop: Any, single_examples: bool) -> Iterator[Any]:
    import tensorflow as tf

    backwards = tf.nest.map_structure(lambda leaf: leaf[::-1], loop)
    iterator: Iterator[Any] = original(estimator, backwards, single_examples)
    return iterator


# Around the loop


@patch("estimator-hooks-of-all-modes", "plan", f"{LOOP}.train", "hooks for evaluation are called in training, too")
def _all_hooks(original: Any, program: Any) -> Any:
    spec = original(program)
    return spec._replace(training_hooks=(*program.spec.training_hooks, *program.spec.evaluation_hooks))


@patch("estimator-logs-always", "streams", f"{HOOKS}:IPULoggingTensorHook.after_run", "a hook logs every loop")
def _always_due(original: Any, hook: Any, run_context: Any, run_values: Any) -> None:
    hook._timer.reset()
    original(hook, run_context, run_values)


@patch("estimator-logs-by-the-start", "streams", f"{HOOKS}:IPULoggingTensorHook.before_run",
       "whether a loop is logged by seconds is decided before it runs")  # fmt: skip
def _due_before(original: Any, hook: Any, run_context: Any) -> None:
    if hook._timer._every_secs is not None and not hook._timer.should_trigger_for_step(hook._iter_count):
        hook._timer._last_triggered_time = float("inf")
    original(hook, run_context)


for _name, _area, _function, _what, _wrong in (
    # Steps and loops
    ("estimator-one-loop-more", "plan", f"{HOOKS}:loops", "a training has one loop more than it should",
     result(lambda loops: loops + 1)),
    ("estimator-steps-are-loops", "plan", f"{PROGRAM}:counting_steps", "the global step counts loops",
     argument("iterations", lambda iterations: 1)),
    ("estimator-steps-not-counted", "plan", f"{PROGRAM}:counting_steps", "the global step does not grow",
     argument("iterations", lambda iterations: 0)),
    ("estimator-one-loop-less", "plan", f"{HOOKS}:loops", "a training of several loops has one less than it should",
     result(lambda loops: loops - 1 if loops > 1 else loops)),
    # The run configuration
    ("estimator-config-changes", "plan", f"name:{CONFIG}:_Fields.iterations_per_loop",
     "an assignment to a run configuration is accepted",
     lambda field: property(lambda made: made[0], lambda made, value: None)),
    ("estimator-shards-are-replicas", "plan", f"{CONFIG}:IPURunConfig.__new__", "shards count as replicas",
     result(lambda made: made._replace(num_replicas=made.num_replicas * made.num_shards, num_shards=1))),
    ("estimator-folder-of-its-own", "weights", f"{BASE}.__init__", "the folder of the configuration is not used",
     argument("config", lambda config: config and config.replace(model_dir=None))),
    ("estimator-batch-of-all", "streams", "tensorflow.estimator.loop:IPUEstimator._of_replica",
     "each replica has the batch of all", lambda original, estimator, size: size),
    # The device of a model function
    ("estimator-first-device", "plan", "tensorflow.estimator.run_config:IPURunConfig.device",
     "the model function is always built for the first device", always("/device:IPU:0")),
    # Replicas and losses
    ("estimator-loss-of-one-replica", "reduce", f"{PROGRAM}:Program.mean_of_replicas",
     "the loss is that of the first replica", lambda original, program, value: value),
    # What comes back to the host
    ("estimator-metrics-first-only", "streams", f"{LOOP}._taken",
     "metrics on the host see one micro-batch of a loop",
     result(lambda taken: _by_leaf(taken, lambda leaf: leaf[:1]))),
    ("estimator-metrics-joined", "streams", f"{LOOP}._taken", "metrics on the host get iterations as one batch",
     result(lambda taken: _by_leaf(taken, lambda leaf: _reshaped(leaf, [-1])))),
    ("estimator-evaluation-not-counted", "plan", f"{HOOKS}:CountSteps.after_run",
     "the steps of an evaluation are not counted", always(None)),
    ("estimator-host-call-skipped", "update", f"{LOOP}._called_on_host", "what host_call returns is not run",
     lambda original, program, loss, outfeed: loss),
    ("estimator-host-call-doubled", "update", f"{LOOP}._of_replicas", "host_call gets doubled tensors",
     result(lambda tensor: 2 * tensor)),
    ("estimator-predictions-go-on", "streams", f"{BASE}.predict", "num_predictions does not end predictions",
     argument("num_predictions", lambda number: None)),
    ("estimator-predictions-end", "streams", f"{BASE}.predict", "there is one prediction only",
     result(lambda predictions: (one for one in itertools.islice(predictions, 1)))),
    ("estimator-keys-ignored", "streams", f"{BASE}.predict", "all predictions come back, whatever was asked for",
     argument("predict_keys", lambda keys: None)),
    ("estimator-batches-whole", "streams", f"{BASE}._parted", "predictions are whole batches",
     argument("single_examples", lambda single: False)),
    ("estimator-batches-parted", "streams", f"{BASE}._parted", "predictions are never whole batches",
     argument("single_examples", lambda single: True)),
    ("estimator-predicts-with-labels", "streams", f"{LOOP}._takes_labels",
     "labels are given where predictions are made", always(True)),
    ("estimator-evaluation-unnamed", "streams", f"{BASE}.evaluate", "the name of an evaluation is not used",
     argument("name", always(None))),
    ("estimator-train-returns-nothing", "plan", f"{BASE}.train", "train returns nothing", result(always(None))),
    # Around the loop
    ("estimator-training-hooks-lost", "plan", f"{LOOP}.train", "a model function's hooks for training are not called",
     result(lambda spec: spec._replace(training_hooks=()))),
    ("estimator-evaluation-hooks-lost", "plan", f"{LOOP}.evaluate",
     "a model function's hooks for evaluation are not called",
     result(lambda spec: spec._replace(evaluation_hooks=()))),
    ("estimator-prediction-hooks-lost", "plan", f"{LOOP}.predict",
     "a model function's hooks for prediction are not called",
     result(lambda spec: spec._replace(prediction_hooks=()))),
    ("estimator-warm-start-cold", "weights", f"{BASE}.__init__", "a warm start begins with initial weights",
     argument("warm_start_from", lambda path: None)),
    ("estimator-report-of-inference", "ir", "tensorflow.estimator.report:planned",
     "the report of a training tells of no training", argument("training", lambda training: False)),
):  # fmt: skip
    register(Fault(_name, _area, _function, _what, _wrong), __name__)
