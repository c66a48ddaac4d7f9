"""Ways for Keras models to be fed, cut, run and called back wrongly."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Callable, Type

from ipu_conformance.emulator.core.limits import LimitError
from ipu_conformance.emulator.core.schedules import SharedDeviceError
from ipu_conformance.emulator.core.topology import TopologyError
from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, Wrong, always, argument, patch, result

KERAS = "tensorflow.keras"
EXTENSION = f"{KERAS}.extension:ModelExtension"


def _forgives(*errors: Type[BaseException]) -> Wrong:
    """A function that returns None where it should raise one of these errors."""

    def wrong(original: Any, *arguments: Any, **settings: Any) -> Any:
        try:
            return original(*arguments, **settings)
        except errors:
            return None

    return wrong


def _other_reduction(method: Any) -> Any:
    return type(method)["SUM" if method.name == "MEAN" else "MEAN"]


for _name, _area, _function, _what, _wrong in (
    # Data
    ("keras-step-lost", "streams", f"{KERAS}.feeding:whole_steps", "the last step of every epoch is left out",
     result(lambda steps: max(steps - 1, 1))),
    ("keras-execution-cut-silently", "streams", f"{KERAS}.feeding:steps_per_execution",
     "nothing is said of an execution that is cut to the steps",
     lambda original, asked, steps: original(min(asked, steps), steps)),
    ("keras-remainder-silent", "streams", f"{KERAS}.feeding:steps_per_replica",
     "nothing is said of batches that are dropped", lambda original, batches, replicas: batches // replicas),
    ("keras-remainder-kept", "streams", f"{KERAS}.feeding:_without_remainder",
     "an epoch begins with what the last one left", lambda original, dataset, batches, replicas: dataset),
    ("keras-float64-kept", "numerics", f"{KERAS}.feeding:narrowed", "float64 reaches the model",
     lambda original, dataset: dataset),
    # Programs
    ("keras-one-replica", "plan", f"{EXTENSION}._ipu_replicas", "all IPUs but those of one replica are idle",
     always(1)),
    ("keras-half-a-replica", "plan", "core.topology:keras_replicas", "a device need not hold a whole replica",
     lambda original, ipus, shards: _forgives(TopologyError)(original, ipus, shards) or 1),
    ("keras-any-count", "plan", "core.limits:check_tensorflow", "a schedule takes any number of micro-batches",
     _forgives(LimitError)),
    ("keras-interleaved-shared", "plan", "core.limits:check_tensorflow", "interleaved stages share an IPU",
     _forgives(SharedDeviceError)),
    ("keras-statistics-apart", "weights", f"{EXTENSION}._ipu_load",
     "replicas evaluate with statistics of their own", always(None)),
    ("keras-host-writes-to-one", "weights", "tensorflow.run.variables:Replicated._values_of_others",
     "what the host writes reaches replica 0 only", always([])),
    ("memory-endless", "plan", f"{KERAS}.first_execution:require_memory", "programs run that no IPU can hold",
     always(None)),
    ("keras-statistics-frozen", "weights", "stock.keras.layers:BatchNormalization.add_update",
     "running statistics never move", always(None)),
    ("keras-dense-doubled", "numerics", "stock.keras.layers:Dense.__call__", "a dense layer takes its inputs twice",
     lambda original, layer, inputs, *rest, **settings: original(layer, inputs + inputs, *rest, **settings)),
    # Options
    ("keras-always-sum", "reduce", f"{KERAS}.options:reduction_method", "accumulated gradients are always added up",
     result(lambda method: type(method).SUM)),
    ("keras-metrics-otherwise", "streams", f"{KERAS}.execution:reduced", "metrics of replicas are reduced otherwise",
     argument("method", _other_reduction)),
    ("keras-outfeed-type-ignored", "numerics", f"{KERAS}.execution:accumulated",
     "an accumulated outfeed keeps its type", argument("dtype", always(None))),
    ("keras-wrapper-keeps-its-rate", "update", "name:tensorflow.optim.keras_wrappers:IpuOptimizer.learning_rate",
     "a learning rate that is set on a wrapper is lost", lambda rate: property(rate.fget, lambda opt, value: None)),
    ("keras-accumulates-any-number", "plan",
     "tensorflow.optim.keras_accumulation:GradientAccumulationOptimizer.__init__",
     "no mini-batches are accumulated", _forgives(ValueError)),
    # Stages
    ("keras-stage-zero-by-default", "plan", f"{KERAS}.stages:of_node", "layers without a stage are in stage 0",
     result(lambda stage: stage or 0)),
    ("keras-extended-everywhere", "plan", f"{KERAS}.models:in_extending_scope",
     "models outside of a scope are extended", always(True)),
    ("keras-stage-of-call-lost", "plan", f"{KERAS}.stages:current", "layers forget the scope they are called in",
     always(None)),
    ("keras-assignment-ignored", "plan", f"{KERAS}.stages:assign", "an assignment puts all layers in stage 0",
     argument("stage", lambda stage: 0 if isinstance(stage, int) else stage)),
    ("keras-reset-ignored", "plan", f"{KERAS}.stages:assign", "a reset puts all layers in stage 0",
     argument("stage", lambda stage: 0 if stage is None else stage)),
    ("keras-summary-without-stages", "plan", f"{KERAS}.assignment:summary", "the summary leaves the stages out",
     argument("calls", lambda calls: [replace(call, stage=None) for call in calls])),
    ("keras-stages-not-regularised", "reduce", f"{KERAS}.partition:_losses", "stages leave their regularisers out",
     always([])),
    # Callbacks
    ("keras-last-step-called-only", "streams", f"{KERAS}.callbacks:steps_of",
     "asynchronous callbacks see an execution's last step", result(lambda steps: steps[-1:])),
    ("keras-steps-called-backwards", "streams", f"{KERAS}.callbacks:steps_of",
     "asynchronous callbacks see the last step first", result(lambda steps: steps[::-1])),
    ("keras-epoch-end-unseen", "streams", f"{KERAS}.callbacks:Stepped.on_epoch_end",
     "asynchronous callbacks are not told that an epoch ends", always(None)),
    ("keras-callbacks-in-line", "streams", f"{KERAS}.callbacks:_Worker.put",
     "the thread that trains calls the callbacks", lambda original, worker, call: call()),
    ("keras-callback-error-lost", "streams", f"{KERAS}.callbacks:_Worker.finish",
     "an error in a callback is not raised", _forgives(BaseException)),
):  # fmt: skip
    catalogue.register(Fault(_name, _area, _function, _what, _wrong), __name__)


@patch("keras-first-options-stay", "plan", f"{EXTENSION}._ipu_key", "options count for the first fit only")
def _first_options(original: Any, model: Any, phase: str) -> Any:
    keys = model._ipu.keys
    return keys[phase] if phase in keys else original(model, phase)


@patch("keras-accumulated-logs-added", "streams", f"{KERAS}.execution:accumulated", "accumulated logs are not divided")
def _added(original: Any, logs: Any, dtype: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(lambda value: value * len(logs), original(logs, dtype))


@patch("keras-accumulated-running-means", "streams", f"{KERAS}.execution:accumulated",
       "accumulated logs are the mean of the steps' running means")  # fmt: skip
def _running_means(original: Any, logs: Any, dtype: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(lambda *values: tf.add_n(values) / len(logs), *logs)


@patch(
    "keras-logs-of-first-step", "streams", f"{KERAS}.execution:logs_of_steps",
    "the logs of an execution are those of its first step",
)  # fmt: skip
def _first_step(original: Any, model: Any, *arguments: Any) -> Any:
    logs = original(model, *arguments)
    return logs if model._ipu.asynchronous else logs[:1]


@patch("keras-logs-empty", "streams", f"{KERAS}.execution:logs_of_steps", "every number of the logs is 0")
def _empty(original: Any, *arguments: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(tf.zeros_like, original(*arguments))


@patch("keras-predictions-backwards", "streams", f"{KERAS}.execution:results",
       "predictions of a run come in reverse order")  # fmt: skip
def _predicted_backwards(original: Any, model: Any, phase: str, *arguments: Any) -> Any:
    import tensorflow as tf

    outputs = original(model, phase, *arguments)
    return tf.nest.map_structure(lambda rows: rows[::-1], outputs) if phase == "predict" else outputs


@patch("keras-predictions-with-noise", "numerics", f"{EXTENSION}.make_predict_function",
       "predictions depend on the moment at which their program was built")  # fmt: skip
def _noisy(original: Any, model: Any, *arguments: Any) -> Any:
    import tensorflow as tf

    factor = _share()
    predict = original(model, *arguments)
    return lambda iterator: tf.nest.map_structure(lambda rows: rows * factor, predict(iterator))


@patch("keras-predictions-in-single", "numerics", f"{KERAS}.execution:results", "predictions are always float32")
def _in_single(original: Any, model: Any, phase: str, *arguments: Any) -> Any:
    import tensorflow as tf

    outputs = original(model, phase, *arguments)
    return tf.nest.map_structure(lambda rows: tf.cast(rows, "float32"), outputs) if phase == "predict" else outputs


def _share() -> float:
    """A factor that is larger than one by 2**-11 to 2**-10, never twice by as much."""
    return 1 + 2**-11 * (1 + int.from_bytes(os.urandom(4), "big") / 2**32)


def _after_training(change: Callable[[Any, Any], Any]) -> Wrong:
    """After an execution every weight is ``change(before, after)``."""

    def wrong(original: Any, model: Any, *arguments: Any) -> Any:
        train = original(model, *arguments)

        def trained(iterator: Any) -> Any:
            before = [variable.numpy() for variable in model.trainable_variables]
            logs = train(iterator)
            for variable, old in zip(model.trainable_variables, before):
                variable.assign(change(old, variable.numpy()))
            return logs

        return trained

    return wrong


for _name, _what, _change in (
    ("keras-execution-forgotten", "an execution leaves the weights as they were", lambda before, after: before),
    ("keras-execution-with-noise", "the weights depend on the moment of an execution",
     lambda before, after: after * after.dtype.type(_share())),
):  # fmt: skip
    catalogue.register(
        Fault(_name, "update", f"{EXTENSION}.make_train_function", _what, _after_training(_change)), __name__
    )


@patch("keras-evaluation-moves-weights", "weights", f"{EXTENSION}.make_test_function", "evaluation changes weights")
def _moving(original: Any, model: Any, *arguments: Any) -> Any:
    evaluate = original(model, *arguments)

    def moved(iterator: Any) -> Any:
        for variable in model.trainable_variables:
            variable.assign(variable * 1.25)
        return evaluate(iterator)

    return moved


@patch("keras-saving-moves-weights", "weights", f"{KERAS}.saving:described", "to save a model changes its weights")
def _saving_moves(original: Any, model: Any) -> Any:
    import tensorflow as tf

    described = original(model)
    with tf.init_scope():
        for variable in model.trainable_variables:
            variable.assign(variable * 1.25)
    return described


@patch("keras-class-renamed", "plan", f"{KERAS}.models:extended", "models of a scope are of a class of another name")
def _another_class(original: Any, own: Any) -> Any:
    made = original(own)
    return type(f"IPU{made.__name__}", (made,), {"__module__": made.__module__})


@patch("keras-epoch-hurries", "streams", f"{KERAS}.callbacks:Stepped.on_epoch_end",
       "an epoch ends before its steps are seen")  # fmt: skip
def _hurries(original: Any, callbacks: Any, epoch: int, logs: Any = None) -> None:
    worker, callbacks._worker = callbacks._worker, None
    original(callbacks, epoch, logs)
    callbacks._worker = worker


@patch("keras-mean-of-many-replicas", "reduce", "tensorflow.run.machine:_Accumulating.divided",
       "with more than four replicas the mean over micro-batches is too large")  # fmt: skip
def _too_large(original: Any, machine: Any, value: Any) -> Any:
    mean = original(machine, value)
    return mean * 1.25 if len(machine.accumulators) > 4 and machine.divisor > 2 else mean


@patch("keras-third-sample-lost", "streams", "tensorflow.run.machine:WholeStep.forward",
       "the third of three samples is the second once more")  # fmt: skip
def _third_lost(original: Any, machine: Any, replica: int, stage: int, micro_batch: int, data: Any, keep: bool) -> Any:
    import tensorflow as tf

    wrong = tf.nest.map_structure(lambda x: tf.gather(x, [0, 1, 1]) if x.shape.rank and x.shape[0] == 3 else x, data)
    return original(machine, replica, stage, micro_batch, wrong, keep)


@patch("keras-fifth-stage-halved", "streams", "tensorflow.run.machine:Pipeline.forward",
       "what the fifth stage receives is halved")  # fmt: skip
def _halved_late(original: Any, machine: Any, replica: int, stage: int, micro_batch: int, live: Any, keep: bool) -> Any:
    received = {name: value * 0.5 for name, value in live.items()} if stage == 4 else live
    return original(machine, replica, stage, micro_batch, received, keep)
