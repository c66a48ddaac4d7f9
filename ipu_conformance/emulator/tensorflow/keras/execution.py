"""The function of one execution: a loop on the device over runs of the model's plan."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple

from ipu_conformance.emulator.core import streams
from ipu_conformance.emulator.core.plan import Plan, plan
from ipu_conformance.emulator.core.topology import power_of_two, tensorflow_topology
from ipu_conformance.emulator.core.trace import Recorder, Trace
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.keras import library, partition
from ipu_conformance.emulator.tensorflow.keras.options import ReplicatedMetricReductionMethod
from ipu_conformance.emulator.tensorflow.refusals import keras as refusals
from ipu_conformance.emulator.tensorflow.run import accumulation, machine, training, variables
from ipu_conformance.emulator.tensorflow.run.accumulation import in_dtype

STEPS = {"train": "train_step", "evaluate": "test_step", "predict": "predict_step"}
COUNTERS = {"train": "_train_counter", "evaluate": "_test_counter", "predict": "_predict_counter"}
MOST_ON_HOST = 16
"""Runs of an execution that the host repeats: to build a loop on the device takes as long as some hundred of them."""


class LastRun(NamedTuple):
    """The last run of a model that is observed: its phase, its plan, its data, and its slots as they were built."""

    phase: str
    plan: Plan
    element_spec: Any
    trace: Trace


def function_of(model: Any, phase: str) -> Callable[[Any], Any]:
    """A ``tf.function`` of an iterator that runs ``steps_per_execution`` steps on every replica."""
    planned = plan_of(model, phase)
    if model._ipu_pipelined():
        refuse_own_step(model, phase)
    every = phase == "predict" or model._ipu.asynchronous

    def run(iterator: Any) -> Any:
        extended = model.distribute_strategy.extended
        return extended.call_for_each_replica(lambda: _one_run(model, phase, planned, iterator))

    return _looping(model, phase, planned.total_micro_batches, every, run)


def step_function_of(model: Any, phase: str) -> Callable[[Any], Any]:
    """What Keras' own function of training or evaluation does on one replica, with a step that is built once.

    Keras builds its step up to four times: the loop around it is converted, which tries its body first, and variables
    that are made while a function is built have it built again.
    """

    def step(iterator: Any) -> Any:
        return model.distribute_strategy.run(converted(getattr(model, STEPS[phase])), args=(next(iterator),))

    return _looping(model, phase, 1, False, step)


def noted(model: Any, stock: Any) -> Callable[[Any], Any]:
    """Keras' own function, whose graph the model remembers as its last run."""

    @functools.wraps(stock)
    def function(iterator: Any) -> Any:
        outputs = stock(iterator)
        model._ipu.last_function = getattr(stock, "_concrete_variable_creation_fn", None)
        return outputs

    return function


def _looping(model: Any, phase: str, per_run: int, every: bool, one_run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of an iterator that repeats runs of so many steps; it returns what every run does, or the last.

    Who repeats is decided once: the generators of a graph begin again where it becomes part of another.
    """
    import tensorflow as tf

    steps = model._steps_per_execution
    runs: Dict[Any, Any] = {}
    observed: Dict[Any, Any] = {}
    # As in Keras, a function that is made for one run stays one; others follow the variable.
    once = steps is None or (int(steps) == per_run and not getattr(model, "autotune_steps_per_execution", False))
    on_host = once or int(steps) // per_run <= MOST_ON_HOST

    def execute(iterator: Any) -> Any:
        run = runs[_key(iterator)]
        times = tf.cast(steps, tf.int32) // per_run
        repeated = training.repeated_all if every else training.repeated_last
        outputs = repeated(times, lambda: run(iterator), run.structured_outputs)
        counter = getattr(model, COUNTERS[phase])
        counter.assign_add(tf.cast(times * per_run, counter.dtype))
        return outputs

    def execute_on_host(iterator: Any) -> Any:
        times = 1 if once else int(steps) // per_run
        outputs = [runs[_key(iterator)](iterator) for _ in range(times)]
        getattr(model, COUNTERS[phase]).assign_add(times * per_run)
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *outputs) if every else outputs[-1]

    executed = execute_on_host if on_host else tf.function(execute, autograph=False)

    def function(iterator: Any) -> Any:
        key = _key(iterator)
        if key not in runs:
            prepare(model, phase, iterator.element_spec)
            model._ipu.last_run = None
            runs[key] = training.built(one_run, [iterator])
            observed[key] = model._ipu.last_run
            if phase == "train":
                model.train_tf_function = _Drawn(runs[key])
        model._ipu.last_run, model._ipu.last_function = observed[key], runs[key]
        return executed(iterator)

    return function


class _Drawn:
    """What TensorBoard looks for where a model has its function of training: the graph of a run, to draw it."""

    function_spec = None

    def __init__(self, run: Any) -> None:
        self._concrete_variable_creation_fn = run


def _key(iterator: Any) -> Any:
    import tensorflow as tf

    return tuple(tf.nest.flatten(iterator.element_spec))


def prepare(model: Any, phase: str, element: Any) -> None:
    """Make the variables of a model and its optimizers, ready for replicas, before its step is built."""
    if not model.built:
        model.distribute_strategy.extended.call_for_each_replica(
            lambda: training.spec_of(lambda data: _once(model, phase, data), element)
        )
    for optimizer in optimizers_of(model) if phase == "train" else []:
        build(optimizer, model)
    for variable in all_variables(model):
        variables.replicated(variable)


def plan_of(model: Any, phase: str) -> Plan:
    """The slots of one run: as many micro-batches as are accumulated, or as fill the pipeline in inference."""
    pipelined = model._ipu_pipelined()
    mapping = model._ipu_mapping()
    topology = tensorflow_topology(model._ipu_replicas() * power_of_two(max(mapping) + 1), mapping)
    return plan(
        topology,
        model._ipu.pipelining.schedule if pipelined else "sequential",
        model._ipu_accumulation(phase),
        training=phase == "train",
        recompute=system.recomputes(phase == "train", topology.stages),
    )


def refuse_own_step(model: Any, phase: str) -> None:
    """A pipeline is made of layers: a model's own version of a step would never be called."""
    name = STEPS[phase]
    overridden = getattr(type(model), name) is not getattr(library.model_class(), name)
    refusals.OWN_STEP(model=model.name, step=name, overridden=overridden)


def _one_run(model: Any, phase: str, planned: Plan, iterator: Any) -> Any:
    """One run of the plan, on the next elements of the iterator."""
    optimizers = optimizers_of(model) if phase == "train" else []
    fed: List[Any] = []

    def take() -> Any:
        # Many elements in one graph are meant: TensorFlow takes them for a mistake where nothing is converted.
        fed.append(converted(iterator.get_next)())
        return fed[-1]

    recorder = Recorder(planned.replicas) if model._ipu.observed else None
    with accumulation.capturing(optimizers):
        outputs = training.one_run(planned, machine_of(model, phase, planned, fed), take, recorder)
    if recorder is not None:
        model._ipu.last_run = LastRun(phase, planned, iterator.element_spec, recorder.trace())
    return results(model, phase, planned, outputs)


def _once(model: Any, phase: str, element: Any) -> Any:
    """One step on one element: it makes the variables and shows what a step returns."""
    with accumulation.capturing(optimizers_of(model) if phase == "train" else []), accumulation.captured():
        return converted(getattr(model, STEPS[phase]))(element)


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function with Python's loops and conditions turned into those of a graph, as Keras' own is."""
    from tensorflow.python.autograph.core import ag_ctx, converter
    from tensorflow.python.autograph.impl import api

    def call(*arguments: Any) -> Any:
        with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED, options=converter.STANDARD_OPTIONS):
            return api.tf_convert(function, ag_ctx.control_status_ctx(), True)(*arguments)

    return call


def machine_of(model: Any, phase: str, planned: Plan, fed: List[Any]) -> Any:
    """The machine that builds the slots of one run."""
    method = model._ipu_method()
    if not model._ipu_pipelined():
        step = converted(getattr(model, STEPS[phase]))
        dtype = model._ipu.accumulation.rest.get("dtype")
        return machine.WholeStep(step, lambda: model.trainable_variables, planned, method, dtype)
    positions = training.layout_of(planned).positions().tolist()
    stages = partition.KerasStages(model, model._ipu_network(), model._ipu_calls(), phase)
    return machine.Pipeline(
        stages,
        model.optimizer,
        lambda replica, micro_batch: fed[positions[replica][micro_batch]],
        planned,
        method,
        model._ipu.pipelining.rest.get("gradient_accumulation_dtype"),
    )


def results(model: Any, phase: str, planned: Plan, outputs: List[List[Any]]) -> Any:
    """What one run returns: all predictions in order, the logs of every step, or those of the last."""
    import tensorflow as tf

    layout = training.layout_of(planned)
    every = training.arranged(streams.select_all(layout), outputs)
    if phase == "predict":
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *every)
    logs = logs_of_steps(model, planned, every)
    if model._ipu.asynchronous:
        return tf.nest.map_structure(lambda *values: tf.stack(values), *logs)
    return logs[-1]


def logs_of_steps(model: Any, planned: Plan, every: List[Any]) -> List[Any]:
    """The logs of every step of a run, from those of its replicas one step after the other."""
    steps = [every[start : start + planned.replicas] for start in range(0, len(every), planned.replicas)]
    logs = [model._ipu_reduced(own) for own in steps]
    if model._ipu.pipelining.accumulate_outfeed and model._ipu_pipelined():
        logs = [accumulated(logs, model._ipu.pipelining.rest.get("accumulate_outfeed_dtype"))] * len(logs)
    return logs


def accumulated(logs: List[Any], dtype: Any) -> Any:
    """What an accumulated outfeed reports of several steps: a metric is a mean already, that of all steps so far."""
    import tensorflow as tf

    return logs[-1] if dtype is None else tf.nest.map_structure(lambda value: in_dtype(value, dtype), logs[-1])


def reduced(by_replica: List[Any], method: ReplicatedMetricReductionMethod) -> Any:
    """The metrics of one step from those of its replicas."""
    import tensorflow as tf

    if method is ReplicatedMetricReductionMethod.NONE or len(by_replica) == 1:
        return by_replica[-1]
    if method is ReplicatedMetricReductionMethod.LIST:
        return tf.nest.map_structure(lambda *values: tf.stack(values), *by_replica)
    total = tf.nest.map_structure(lambda *values: tf.add_n(values), *by_replica)
    if method is ReplicatedMetricReductionMethod.SUM:
        return total
    return tf.nest.map_structure(lambda value: value / len(by_replica), total)


def optimizers_of(model: Any) -> List[Any]:
    """The optimizers that a model's step may use: the one it was compiled with, and its other attributes."""
    kinds = library.optimizer_classes()
    found: Dict[int, Any] = {id(model.optimizer): model.optimizer} if model.optimizer is not None else {}
    found.update((id(value), value) for value in vars(model).values() if isinstance(value, kinds))
    return list(found.values())


def build(optimizer: Any, model: Any) -> None:
    """Make the variables of an optimizer before the first step."""
    import tensorflow as tf

    native = _native(optimizer)
    with tf.init_scope():
        if native is not optimizer:
            native._prepare()
            native._create_slots(model.trainable_variables)
        elif hasattr(optimizer, "_create_all_weights"):
            optimizer._create_all_weights(model.trainable_variables)
        elif not getattr(optimizer, "_built", False):
            optimizer.build(model.trainable_variables)


def _native(optimizer: Any) -> Any:
    """The optimizer of TensorFlow 1 that Keras has wrapped; any other as it is."""
    wrapped = isinstance(optimizer, library.module("optimizers.optimizer_v1").TFOptimizer)
    return optimizer.optimizer if wrapped else optimizer


def all_variables(model: Any) -> List[Any]:
    """Every variable of a model, of its metrics and of its optimizers."""
    found: Dict[int, Any] = {id(variable): variable for variable in model.variables}
    for metric in model.metrics:
        found.update((id(variable), variable) for variable in metric.variables)
    for optimizer in optimizers_of(model):
        own = _native(optimizer).variables
        found.update((id(variable), variable) for variable in (own() if callable(own) else own))
    return list(found.values())


def call_once(model: Any, element: Any) -> None:
    """Call a model on the shapes of an element of its data, which builds it and changes nothing else."""
    strategy = model.distribute_strategy

    def call(data: Any) -> Any:
        return converted(model)(data[0] if isinstance(data, tuple) else data)

    strategy.extended.call_for_each_replica(lambda: training.spec_of(call, element))


def traced(model: Any, spec: Any) -> Any:
    """A model of inputs and outputs from calling a subclassed one on symbols of its inputs."""
    import tensorflow as tf

    def symbol(leaf: Any) -> Any:
        shape = leaf.shape if hasattr(leaf, "shape") else leaf
        return tf.keras.Input(batch_shape=tuple(shape), dtype=getattr(leaf, "dtype", None))

    inputs = tf.nest.map_structure(symbol, spec) if hasattr(tf.nest.flatten(spec)[0], "dtype") else symbol(spec)
    with model.distribute_strategy.scope():
        outputs = model.call(inputs)
    return library.functional_class()(inputs, outputs, name=f"{model.name}_network")
