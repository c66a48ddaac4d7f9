"""Pipelines of functions: each stage on an IPU, several micro-batches on their way at once, one update per run."""

from __future__ import annotations

import enum
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import tensorflow as tf
from tensorflow.python.training import optimizer as v1_optimizer

from ipu_conformance.emulator.core import limits, streams
from ipu_conformance.emulator.core.plan import Plan, plan
from ipu_conformance.emulator.core.schedules import SharedDeviceError
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.tensorflow.compile import functions, graph_context, shards, stage_lists
from ipu_conformance.emulator.tensorflow.compile.shards import placing
from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.refusals import pipelining as refusals
from ipu_conformance.emulator.tensorflow.run import gradient_capture, outfeed, replicas, training
from ipu_conformance.emulator.tensorflow.run.accumulation import GradientAccumulationReductionMethod, in_dtype
from ipu_conformance.emulator.tensorflow.run.pipeline_machine import FunctionPipeline, Functions, Program
from ipu_conformance.emulator.tensorflow.surface import unavailable_function


class PipelineSchedule(enum.Enum):
    """In which order micro-batches pass the stages."""

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(enum.Enum):
    """What is recomputed rather than kept for the backward pass."""

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


def _held(name: str, doc: str, *checks: Callable[[Any, str, Any], None]) -> Any:
    """A property that holds what it is set to, None before; every check is asked first."""
    key = f"_{name}"

    def put(self: Any, value: Any) -> None:
        for check in checks:
            check(self, name, value)
        self.__dict__[key] = value

    return property(lambda self: self.__dict__.get(key), put, None, doc)


def _of_type(kind: str, fits: Callable[[Any], bool]) -> Callable[[Any, str, Any], None]:
    def check(output: Any, name: str, value: Any) -> None:
        refusals.OUTPUT_TYPE(name=name, kind=kind, value=value, fits=fits(value))

    return check


def _for(keras: bool) -> Callable[[Any, str, Any], None]:
    """What is given for optimizers of one kind only."""

    def check(output: Any, name: str, value: Any) -> None:
        refusals.OUTPUT_KIND(name=name, keras=keras, misused=bool(value) and _is_keras(output.opt) is not keras)

    return check


def _alone(other: str) -> Callable[[Any, str, Any], None]:
    def check(output: Any, name: str, value: Any) -> None:
        refusals.OUTPUT_TWICE(name=name, other=other, misused=bool(value) and bool(getattr(output, other)))

    return check


def _is_optimizer(value: Any) -> bool:
    return isinstance(value, v1_optimizer.Optimizer) or _is_keras(value)


def _is_keras(value: Any) -> bool:
    return not isinstance(value, v1_optimizer.Optimizer) and isinstance(value, library.optimizer_classes())


def _is_none_or(kind: Any) -> Callable[[Any], bool]:
    return lambda value: value is None or isinstance(value, kind)


_TUPLE = _of_type("a tuple", lambda value: isinstance(value, tuple))
_DICTIONARY = _of_type("a dictionary", lambda value: isinstance(value, dict))


class OptimizerFunctionOutput:
    """What the optimizer function of a pipeline returns: an optimizer and the loss that it makes smaller."""

    def __init__(
        self,
        opt: Any,
        loss: Any,
        compute_gradients_args: Optional[Sequence[Any]] = None,
        compute_gradients_kwargs: Optional[Dict[str, Any]] = None,
        apply_gradients_args: Optional[Sequence[Any]] = None,
        apply_gradients_kwargs: Optional[Dict[str, Any]] = None,
        variables: Optional[Sequence[Any]] = None,
        tape: Any = None,
        gradient_capture_context: Any = None,
        captured_gradient_outfeed: Any = None,
    ) -> None:
        self.opt = opt
        self.loss = loss
        self.compute_gradients_args = compute_gradients_args or ()
        self.compute_gradients_kwargs = compute_gradients_kwargs or {}
        self.apply_gradients_args = apply_gradients_args or ()
        self.apply_gradients_kwargs = apply_gradients_kwargs or {}
        self.variables = variables or ()
        self.tape = tape
        self.gradient_capture_context = gradient_capture_context
        self.captured_gradient_outfeed = captured_gradient_outfeed

    opt = _held("opt", "The optimizer.", _of_type("an optimizer of TensorFlow or of Keras", _is_optimizer))
    loss = _held("loss", "The loss that it makes smaller.", _of_type("a tensor", tf.is_tensor))
    compute_gradients_args = _held(
        "compute_gradients_args", "More arguments of ``compute_gradients``.", _TUPLE, _for(keras=False)
    )
    compute_gradients_kwargs = _held(
        "compute_gradients_kwargs", "Its arguments by name.", _DICTIONARY, _for(keras=False)
    )
    apply_gradients_args = _held("apply_gradients_args", "More arguments of ``apply_gradients``.", _TUPLE)
    apply_gradients_kwargs = _held("apply_gradients_kwargs", "Its arguments by name.", _DICTIONARY)
    variables = _held(
        "variables",
        "The variables that a Keras optimizer trains.",
        _of_type("a tuple or list", lambda value: isinstance(value, (tuple, list))),
        _for(keras=True),
        _alone("tape"),
    )
    tape = _held(
        "tape",
        "The tape that the loss of a Keras optimizer was computed under.",
        _of_type("a GradientTape", lambda value: value is None or isinstance(value, tf.GradientTape)),
        _for(keras=True),
        _alone("variables"),
    )
    gradient_capture_context = _held(
        "gradient_capture_context",
        "The context whose marks' gradients the optimizer is handed.",
        _of_type("a GradientCaptureContext", _is_none_or(gradient_capture.GradientCaptureContext)),
    )
    captured_gradient_outfeed = _held(
        "captured_gradient_outfeed",
        "The queue that captured gradients are enqueued to.",
        _of_type("an IPUOutfeedQueue", _is_none_or(outfeed.IPUOutfeedQueue)),
    )


class PipelineStageOptions:
    """Options for the compiler of one stage; the emulator compiles nothing and only checks them."""

    def __init__(
        self,
        convolution_options: Optional[Dict[str, str]] = None,
        matmul_options: Optional[Dict[str, str]] = None,
        slice_options: Optional[Dict[str, str]] = None,
    ) -> None:
        self.convolution_options = _checked_options("convolution_options", convolution_options)
        self.matmul_options = _checked_options("matmul_options", matmul_options)
        self.slice_options = _checked_options("slice_options", slice_options)

    get_proto = unavailable_function(
        "PipelineStageOptions.get_proto", "it is a message for the vendor's compiler", "self"
    )


def _checked_options(name: str, options: Optional[Dict[str, str]]) -> Dict[str, str]:
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"`{name}` is {options!r}; pass a dictionary of names and values.")
    return dict(options or {})


_ALL_DEVICES = -1


def recomputation_checkpoint(tensors: Any, name: Optional[str] = None) -> Any:
    """The same tensors, which recomputation starts from."""
    return tf.nest.map_structure(lambda tensor: tf.identity(tensor, name=name), tensors)


def pipeline(
    computational_stages: Sequence[Callable[..., Any]],
    gradient_accumulation_count: Optional[Any] = None,
    gradient_accumulation_dtype: Any = None,
    gradient_accumulation_for_captured_grads: bool = True,
    repeat_count: Any = 1,
    batch_serialization_iterations: int = 1,
    inputs: Optional[Sequence[Any]] = None,
    infeed_queue: Any = None,
    outfeed_queue: Any = None,
    optimizer_function: Optional[Callable[..., OptimizerFunctionOutput]] = None,
    device_mapping: Optional[Sequence[int]] = None,
    pipeline_schedule: Optional[PipelineSchedule] = None,
    recomputation_mode: Optional[RecomputationMode] = None,
    forward_propagation_stages_poplar_options: Optional[Sequence[PipelineStageOptions]] = None,
    backward_propagation_stages_poplar_options: Optional[Sequence[PipelineStageOptions]] = None,
    weight_update_poplar_options: Optional[PipelineStageOptions] = None,
    offload_weight_update_variables: Optional[bool] = None,
    replicated_optimizer_state_sharding: Union[bool, None] = False,
    offload_activations: Optional[bool] = None,
    offload_gradient_accumulation_buffers: Optional[bool] = None,
    replicated_weight_sharding: Optional[bool] = None,
    offload_weights: Optional[bool] = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: Any = None,
    outfeed_mask: Optional[Sequence[bool]] = None,
    reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    name: Optional[str] = None,
) -> Any:
    """The operation that runs the pipeline ``repeat_count`` times, each on ``gradient_accumulation_count`` elements.

    With an optimizer function the weights are updated once at the end of every run.
    """
    stages, device_mapping, all_ipus = stage_lists.joined(computational_stages, device_mapping)
    serialised = batch_serialization_iterations
    training_ = optimizer_function is not None
    if device_mapping is None and serialised > 1:
        device_mapping = [0] * len(stages)
    mapping = mapping_of(stages, device_mapping)
    method = GradientAccumulationReductionMethod.parse(reduction_method)
    by = schedule_of(pipeline_schedule) if pipeline_schedule is not None or serialised == 1 else "sequential"
    stage_lists.check_serialised(serialised, by, mapping, method)
    count = _count(gradient_accumulation_count) * serialised
    _check_options(
        stages, recomputation_mode, forward_propagation_stages_poplar_options,
        backward_propagation_stages_poplar_options if training_ else None, weight_update_poplar_options,
        continuous_weight_updates,
    )  # fmt: skip
    _check_outfeed(outfeed_queue, training_, outfeed_loss, accumulate_outfeed, outfeed_mask)
    for ipu in (*mapping, *all_ipus):
        shards.note(ipu)
    broken = misfit(mapping, by, count, training_)
    if placing():
        return tf.no_op()
    program = Program(
        [functions.converted(stage) for stage in stages],
        [tf.convert_to_tensor(value) for value in inputs or ()],
        None if optimizer_function is None else _checked_result(optimizer_function),
        graph_context.GraphContext(),
        outfeed_loss,
        outfeed_mask,
        accumulate_outfeed,
    )

    def combine(programs: List[Program]) -> List[Any]:
        if outfeed_queue is not None:
            outfeed_queue._claim()
        again = system.recomputes(training_, len(mapping))
        # A pipeline that will fail when it is run is built all the same: its outfeed can be asked for before.
        order = by if broken is None else "sequential"
        planned = plan(Topology(tuple(mapping), len(programs)), order, count, training=training_, recompute=again)

        def run() -> None:
            device = FunctionPipeline(Functions(programs), planned, method, gradient_accumulation_dtype)
            outputs = training.one_run(planned, device, _taking(infeed_queue))
            _leave(outfeed_queue, outputs, planned, accumulate_outfeed, accumulate_outfeed_dtype)
            if training_:
                _leave_captured(device, len(programs), gradient_accumulation_for_captured_grads)

        with tf.control_dependencies([] if broken is None else [functions.fail(broken)]):
            return [_repeated(repeat_count, run)] * len(programs)

    if tf.executing_eagerly():
        raise ValueError("A pipeline was built in eager mode: build it in a tf.function that IPUStrategy.run calls.")
    return replicas.exchange(program, combine, "pipeline")


def _taking(infeed_queue: Any) -> Callable[[], Any]:
    return (lambda: ()) if infeed_queue is None else infeed_queue._dequeue


def _repeated(times: Any, run: Callable[[], None]) -> Any:
    """The operation that executes what ``run`` builds so many times."""

    def turn(number: Any) -> Any:
        run()
        return number + 1

    times = tf.convert_to_tensor(times, tf.int32)
    finished = tf.while_loop(lambda number: number < times, turn, [tf.constant(0)], parallel_iterations=1)
    with tf.control_dependencies(tf.nest.flatten(finished)):
        return tf.no_op()


def _leave(queue: Any, outputs: List[List[Any]], planned: Plan, accumulated: bool, dtype: Any) -> None:
    """Put what the micro-batches return into the outfeed: each in the order of the input, or their sum."""
    returned = len(tf.nest.flatten(outputs[0][0]))
    if queue is None:
        refusals.OUTPUTS_WITHOUT_OUTFEED(returned=returned, training=planned.training)
        return
    if not returned:
        raise ValueError("The last computational stage has no tensor outputs for the outfeed_queue.")
    layout = training.layout_of(planned)
    if accumulated:
        if dtype is not None:
            outputs = tf.nest.map_structure(lambda value: in_dtype(value, dtype), outputs)
        entries = training.arranged(streams.select_accumulated(layout), outputs)
    else:
        entries = training.arranged(streams.select_all(layout), outputs)
    turns = len(entries) // planned.replicas
    by_replica = [
        [entries[turn * planned.replicas + replica] for turn in range(turns)] for replica in range(planned.replicas)
    ]
    queue._push(by_replica)


def _leave_captured(device: FunctionPipeline, replicas: int, accumulated: bool) -> None:
    """Put the gradients that were captured into the outfeed that the optimizer function names."""
    captured = [device.captured(replica) for replica in range(replicas)]
    if captured[0] and not accumulated:
        raise NotImplementedError(
            "Captured gradients are accumulated on the emulator: leave gradient_accumulation_for_captured_grads True."
        )
    queue = device.results[0].captured_gradient_outfeed
    if queue is not None and captured[0]:
        queue._claim()
        queue._push([[own] for own in captured])


def _checked_result(function: Callable[..., Any]) -> Callable[..., Any]:
    function = functions.converted(function)

    def call(*outputs: Any) -> Any:
        result = function(*outputs)
        if not isinstance(result, OptimizerFunctionOutput):
            raise TypeError(f"`optimizer_function` returned {result!r}; it must return an OptimizerFunctionOutput.")
        refusals.NO_VARIABLES(keras=_is_keras(result.opt), named=bool(result.tape) or bool(result.variables))
        return result

    return call


def schedule_of(given: Optional[PipelineSchedule]) -> str:
    if given is None:
        return "grouped"
    refusals.SCHEDULE(schedule=given, is_member=isinstance(given, PipelineSchedule))
    return given.name.lower()


def mapping_of(stages: Sequence[Any], given: Optional[Sequence[int]]) -> List[int]:
    """The IPU of every stage; a stage on all IPUs counts for the first."""
    if given is None:
        return list(range(len(stages)))
    refusals.MAPPING(mapping=given)
    refusals.MAPPING_LENGTH(mappings=len(given), stages=len(stages))
    if any(ipu < _ALL_DEVICES for ipu in given):
        raise ValueError(f"`device_mapping` is {given!r}; IPUs are counted from 0.")
    return [max(0, ipu) for ipu in given]


def _count(given: Any) -> int:
    refusals.NO_COUNT(count=given)
    known = tf.get_static_value(given) if tf.is_tensor(given) else given
    if known is None:
        raise NotImplementedError(
            "`gradient_accumulation_count` is a tensor whose value is not known while the pipeline is built, which the "
            "emulator does not support: pass a number."
        )
    refusals.COUNT(count=int(known))
    return int(known)


def misfit(mapping: Sequence[int], by: str, count: int, training_: bool) -> Optional[str]:
    """The sentence with which a run fails whose count does not fit the schedule; None if it fits."""
    try:
        limits.check_tensorflow(mapping, by, 2 * len(mapping), training=training_)  # a count that all schedules take
    except SharedDeviceError as error:
        raise NotImplementedError(str(error)) from None
    except limits.LimitError as error:
        raise ValueError(str(error)) from None
    try:
        limits.check_tensorflow(mapping, by, count, training=training_)
    except limits.LimitError as error:
        return str(error)
    return None


def _check_options(
    stages: Sequence[Any],
    recomputation: Any,
    forward: Any,
    backward: Any,
    update: Any,
    continuous: bool,
) -> None:
    if not all(callable(stage) for stage in stages):
        raise TypeError("`computational_stages` must be a list of functions.")
    refusals.RECOMPUTATION(mode=recomputation, is_member=isinstance(recomputation, RecomputationMode))
    for what, given in (
        ("forward_propagation_stages_poplar_options", forward),
        ("backward_propagation_stages_poplar_options", backward),
    ):
        if given is None:
            continue
        listed = isinstance(given, (list, tuple))
        are_options = listed and all(isinstance(item, PipelineStageOptions) for item in given)
        refusals.STAGE_OPTIONS(what=what, are_options=are_options)
        if len(given) != len(stages):
            raise ValueError(f"`{what}` has {len(given)} options for {len(stages)} stages; give one for each.")
    if update is not None and not isinstance(update, PipelineStageOptions):
        raise TypeError("`weight_update_poplar_options` must be a PipelineStageOptions.")
    if continuous:
        raise NotImplementedError("Continuous weight updates are not supported: weights are updated once per run.")


def _check_outfeed(queue: Any, training_: bool, loss: bool, accumulate: bool, mask: Optional[Sequence[bool]]) -> None:
    refusals.LOSS_WITHOUT_OUTFEED(loss=loss, training=training_, queue=queue)
    if accumulate:
        if queue is None:
            raise ValueError("An outfeed_queue must be provided when accumulate_outfeed is True.")
        refusals.SUMS_OF_THE_LAST(mode=queue._outfeed_mode)
    if mask is not None:
        if loss:
            raise ValueError("outfeed_mask cannot be set when outfeed_loss is True.")
        refusals.MASK_WITHOUT_OPTIMIZER(training=training_)
