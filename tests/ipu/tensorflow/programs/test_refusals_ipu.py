"""What programs, their queues, optimizers and pipelines refuse."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ..device_programs import Device
from ..exact import START, samples
from ..refusals import Row, check_refused, params
from .chain import Chain


def in_graph(device: Device, act: Callable[[Device], Any]) -> Any:
    """What comes of an act while a graph of TensorFlow 1 is built."""
    with device.tf.Graph().as_default():
        return act(device)


def outside(device: Device) -> None:
    """Opens the scope of what is computed on the host."""
    with device.ipu.scopes.outside_compilation_scope():
        pass


def sharded(device: Device, index: Any) -> Any:
    """An operation on a shard."""
    with device.ipu.scopes.ipu_shard(index):
        return device.tf.constant(1.0) + 1


def compiled(device: Device, computation: Any, inputs: Any = (2.0,), scope: str = "/device:IPU:0") -> Any:
    """A part of a graph that is compiled, in the scope of a device."""
    device.open()
    with device.tf.Graph().as_default(), device.ipu.scopes.ipu_scope(scope):
        return device.ipu.ipu_compiler.compile(computation, inputs)


def device_operation(x: Any) -> Any:
    """An operation that nothing comes out of."""
    with x.graph.as_default():
        return x.graph.create_op("NoOp", [], [])


def numbers(device: Device, rows: int = 7) -> Any:
    """A data set of numbers."""
    return device.tf.data.Dataset.from_tensor_slices(samples(rows))


def smaller(device: Device) -> Any:
    """Batches of which the last may be smaller."""
    return numbers(device).batch(3)


def infeed(device: Device, dataset: Callable[[Device], Any] = numbers, **settings: Any) -> Any:
    """An infeed of a data set."""
    return device.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset(device), **settings)


def iterator(device: Device, dataset: Callable[[Device], Any] = numbers) -> Any:
    """An iterator over a data set."""
    return device.ipu.ipu_infeed_queue.IPUIterator(dataset=dataset(device))


def measured(device: Device, dataset: Callable[[Device], Any], epochs: int = 2, elements: int = 2) -> Any:
    """A benchmark of a data set."""
    return device.ipu.dataset_benchmark.dataset_benchmark(dataset(device), epochs, elements, print_stats=False)


def accumulating(device: Device, num_mini_batches: Any = 2, **settings: Any) -> Any:
    """An optimizer that accumulates."""
    descent = device.tf.compat.v1.train.GradientDescentOptimizer(1.0)
    return device.ipu.optimizers.GradientAccumulationOptimizerV2(descent, num_mini_batches, **settings)


def scaling(device: Device, **settings: Any) -> Any:
    """An optimizer that scales the loss."""
    descent = device.tf.compat.v1.train.GradientDescentOptimizer(1.0)
    return device.ipu.optimizers.AutomaticLossScalingOptimizer(descent, **settings)


def piped(device: Device, **options: Any) -> Any:
    """A pipeline of two stages that does not train."""
    queues = {"infeed_queue": device.open(2).infeed(samples(8)), "outfeed_queue": device.outfeed()}
    settings = {"computational_stages": [lambda x: x, lambda x: x + 1], "gradient_accumulation_count": 4, **queues}
    return device.run(lambda: device.ipu.pipelining_ops.pipeline(**{**settings, **options}))


def trained(device: Device, count: int = 4, last: bool = False, **options: Any) -> Any:
    """A pipeline of two stages that trains."""
    return Chain(device, 2, **options).train(count, 1, last=last)


def returned(device: Device, keras: bool = False, **settings: Any) -> Any:
    """What an optimizer function returns."""
    tf = device.tf
    kind = tf.keras.optimizers.legacy.SGD if keras else tf.compat.v1.train.GradientDescentOptimizer
    return device.ipu.pipelining_ops.OptimizerFunctionOutput(**{"opt": kind(1.0), "loss": tf.constant(1.0), **settings})


OUTSIDE, SHAPE = "outside_compilation_scope", r"Output shape \(None,\) is not fully defined.*drop_remainder=True"
UNKNOWN = "Cannot parse .* as one of GradientAccumulationReductionMethod"
SCALES = {
    "initial_loss_scaling_factor": 0, "update_frequency": 0, "increase_factor": 0, "decrease_factor": 2.0,
    "max_loss_scaling_factor": 1, "ratio_threshold": 1.0,
}  # fmt: skip
SERIAL = {"count": 2, "batch_serialization_iterations": 3}
CALLS: Dict[str, Row] = {
    **{f"the shard {index!r}": (sharded, (index,), ValueError, "index") for index in (-1, "0", True)},
    "a scope outside of a program": (outside, {}, ValueError, OUTSIDE),
    "a scope in a graph alone": (in_graph, (outside,), ValueError, OUTSIDE),
    "partials of type double": ("scopes.partials_type", ("double",), ValueError, "double"),
    "compiling outside of a scope": (compiled, (abs, [2.0], ""), RuntimeError, "not compiled for an IPU device"),
    "a computation of an EstimatorSpec": (
        lambda device: compiled(device, lambda x: device.tf.compat.v1.estimator.EstimatorSpec("infer", predictions=x)),
        (), ValueError, "EstimatorSpec"),
    "an operation before a tensor": (
        compiled, (lambda x: [device_operation(x), x], [2.0]), ValueError, "(?i)tensors? .*operation"),
    "a computation that is no function": (compiled, (3, None), TypeError, ""),
    "inputs that are no list": (compiled, (abs, 5), TypeError, ""),
    "a counter without a loop": ("internal_ops.get_current_iteration_counter", (), ValueError, "outside of a loop"),
    "batches that may be smaller": (infeed, (smaller,), ValueError, SHAPE),
    "second batches that may be smaller": (
        infeed, (lambda device: device.tf.data.Dataset.zip((numbers(device).batch(3, True), smaller(device))),),
        ValueError, SHAPE),
    "get_next of an infeed": (lambda device: infeed(device).get_next(), (), ValueError, "obsolete"),
    **{f"a prefetch_depth of {n}": (infeed, {"prefetch_depth": n}, ValueError, "prefetch_depth") for n in (0, -1, 256)},
    "a second initializer": (
        in_graph, (lambda device: [queue.initializer for queue in [infeed(device)] * 2],), ValueError, "once"),
    "an iterator of batches that may be smaller": (iterator, (smaller,), ValueError, "not fully defined"),
    "an iterator in a graph": (in_graph, (iterator,), RuntimeError, "eager"),
    "iterating over the outfeed of a graph": (
        in_graph, (lambda device: iter(device.outfeed()),), RuntimeError, "eager"),
    "the outfeed_mode all": ("ipu_outfeed_queue.IPUOutfeedQueue", {"outfeed_mode": "all"}, ValueError, "outfeed_mode"),
    "a buffer_depth of 0": ("ipu_outfeed_queue.IPUOutfeedQueue", {"buffer_depth": 0}, ValueError, "buffer_depth"),
    "a buffer of 0 elements": (lambda device: device.ipu.data.ops.dataset_ops.BufferDataset(numbers(device), 0),
        (), ValueError, "buffer_size"),
    "a benchmark of 8 of 7 elements": (measured, (numbers, 2, 4), "OutOfRangeError", ""),
    "a benchmark of 0 epochs": (measured, (numbers, 0, 1), ValueError, "epochs"),
    "a benchmark of 0 elements": (measured, (numbers, 1, 0), ValueError, "epochs"),
    "a benchmark of a list": (measured, (lambda device: [1, 2],), TypeError, "dataset"),
    "an infeed_benchmark of a data set": (
        lambda device: device.ipu.dataset_benchmark.infeed_benchmark(numbers(device), 1, 1),
        (), TypeError, "infeed_queue"),
    "a benchmark of batches that may be smaller": (measured, (smaller,), ValueError, "not fully defined"),
    **{f"an accumulation of {n}": (accumulating, (n,), ValueError, "num_mini_batches") for n in (0, -1, 1.5, True)},
    **{f"a reduction by {n!r}": (accumulating, {"reduction_method": n}, ValueError, UNKNOWN) for n in ("most", 7)},
    "a mean over replicas of 3": ("optimizers.CrossReplicaOptimizer", (3,), ValueError, "optimizer"),
    **{f"{name}={n}": (scaling, {name: n}, ValueError, name) for name, n in SCALES.items()},
    "no count": (piped, {"gradient_accumulation_count": None}, ValueError, "gradient_accumulation_count"),
    "a count of -1": (piped, {"gradient_accumulation_count": -1}, ValueError, "must be"),
    "a count of 0": (piped, {"gradient_accumulation_count": 0}, ValueError, "greater than 0"),
    "both names of the count": (piped, {"pipeline_depth": 4}, ValueError, "pipeline_depth"),
    "a single stage": (piped, {"computational_stages": [abs], "device_mapping": None}, ValueError, "at least two"),
    "one device for two stages": (piped, {"device_mapping": [0]}, ValueError, "Each stage must be mapped"),
    "a range of devices": (piped, {"device_mapping": range(2)}, TypeError, "device_mapping"),
    "a word for pipeline_schedule": (piped, {"pipeline_schedule": "Grouped"}, TypeError, "pipeline_schedule"),
    "a number for recomputation_mode": (piped, {"recomputation_mode": 1}, TypeError, "recomputation_mode"),
    "dictionaries for options of stages": (
        piped, {"forward_propagation_stages_poplar_options": [{}, {}]}, TypeError, "PipelineStageOptions"),
    "options of one of two stages": (
        lambda device: piped(
            device, forward_propagation_stages_poplar_options=[device.ipu.pipelining_ops.PipelineStageOptions()]),
        (), ValueError, "forward_propagation_stages_poplar_options"),
    "outfeed_loss without an optimizer": (piped, {"outfeed_loss": True}, ValueError, "outfeed_loss"),
    "accumulate_outfeed without a queue": (
        piped, {"accumulate_outfeed": True, "outfeed_queue": None}, ValueError, "accumulate_outfeed"),
    "outfeed_mask without an optimizer": (piped, {"outfeed_mask": [True]}, ValueError, "outfeed_mask"),
    "outputs without a queue": (piped, {"outfeed_queue": None}, ValueError, "no outfeed_queue"),
    "sums of the last": (trained, {"last": True, "accumulate_outfeed": True}, ValueError, "IPUOutfeedMode.ALL"),
    "interleaved stages on one IPU": (
        trained, {"pipeline_schedule": "Interleaved", "device_mapping": [0, 0]}, NotImplementedError, "stages on"),
    "several batches in a grouped stage": (
        trained, {**SERIAL, "pipeline_schedule": "Grouped", "device_mapping": [0, 0]},
        NotImplementedError, "Sequential"),
    "several batches on two IPUs": (trained, {**SERIAL, "device_mapping": [0, 1]}, NotImplementedError, "single IPU"),
    "means of several batches": (
        trained, {**SERIAL, "device_mapping": [0, 0], "reduction_method": "MEAN"}, ValueError, "SUM"),
    "a text of options": (
        "pipelining_ops.PipelineStageOptions", {"convolution_options": "none"}, TypeError, "convolution_options"),
    "a number for opt": (returned, {"opt": 3}, TypeError, "opt"),
    "a text for loss": (returned, {"loss": "loss"}, TypeError, "loss"),
    **{f"{name}={value}": (returned, {"keras": keras, name: value}, TypeError, name) for keras, name, value in (
        (False, "compute_gradients_args", ["w"]), (False, "compute_gradients_kwargs", [("var_list", "w")]),
        (False, "apply_gradients_args", ["step"]), (True, "apply_gradients_kwargs", ("name", "step")),
        (True, "variables", {"w": 1}), (True, "tape", "tape"))},
    **{f"{name} of Keras": (returned, {"keras": True, name: value}, ValueError, name) for name, value in (
        ("compute_gradients_args", ("w",)), ("compute_gradients_kwargs", {"var_list": "w"}))},
    "variables of TensorFlow": (returned, {"variables": ["w"]}, ValueError, "variables"),
    "variables beside a tape": (
        lambda device: returned(device, True, variables=[device.tf.Variable(1.0)], tape=device.tf.GradientTape()),
        (), ValueError, "tape"),
}  # fmt: skip
EMULATED = ("a count of 0", "both names of the count")


@pytest.mark.parametrize("what", params(CALLS, EMULATED))
def test_a_call_is_refused(eager: Device, what: str) -> None:
    """What cannot work is refused when it is asked for, or when the program that needs it is built."""
    check_refused(eager, what, CALLS)


def unexecuted(device: Device) -> Any:
    """The dequeue of the last of what no run has enqueued."""
    out = device.open().outfeed(last=True)
    if device.mode == "graph":
        device.compile(lambda: device.ipu.loops.repeat(3, lambda: out.enqueue(device.tf.constant(1.0)), []))
    return device.dequeue(out)


def enqueued_twice(device: Device, pipelined: bool) -> Any:
    """A loop or a stage that enqueues to one outfeed in two places."""
    queue, out = device.open(2).infeed(samples(4)), device.outfeed()
    stages = [lambda x: x, lambda x: [out.enqueue(x), out.enqueue(x + 1)]]
    if pipelined:
        return device.run(lambda: device.ipu.pipelining_ops.pipeline(stages, 4, infeed_queue=queue))
    return device.repeat(2, stages[1], queue)


def accumulated(device: Device) -> Any:
    """An accumulation outside of loops."""
    weight = device.open().variable("w0", START[0])
    return device.run(lambda: accumulating(device).minimize(3 * weight, var_list=[weight]))


def without_variables(device: Device) -> Any:
    """A pipeline with a Keras optimizer, and neither variables nor a tape that has watched them."""
    chain = Chain(device, 2)
    chain.optimizer = lambda: device.tf.keras.optimizers.legacy.SGD(1.0)  # type: ignore[method-assign]
    return chain.train(4, 1)


PROGRAMS: Dict[str, Row] = {
    "shard 2 of 2 IPUs": (lambda device: device.open(2).run(lambda: sharded(device, 2)),
        (), ValueError, "2 IPUs attached, however the current model requires a multiple of 4 IPUs"),
    **{f"a body that returns {n} tensors": (
        lambda device, n: device.open().repeat(2, lambda x: [x] * n, values=[1.0]),
        (n,), ValueError, f"returned {n} tensors for 1 inputs") for n in (0, 2)},
    "an operation before a tensor": (
        lambda device: device.open().repeat(2, lambda x: [device.tf.no_op(), x], values=[1.0]),
        (), ValueError, "followed by"),
    "the end of the data": (
        lambda device: device.repeat(3, lambda total, x: total + x, device.open().infeed(samples(2)), [0.0]),
        (), "OutOfRangeError", ""),
    "the last before any run": (unexecuted, (), "FailedPreconditionError", "before it was executed"),
    "a dequeue without an enqueue": (lambda device: device.dequeue(device.open().outfeed()), (), ValueError, "enqueue"),
    "a second enqueue": (enqueued_twice, (False,), ValueError, r"An outfeed can only be enqueued once\."),
    "a second enqueue in a stage": (enqueued_twice, (True,), ValueError, "can only be enqueued once"),
    "accumulation without a loop": (accumulated, (), ValueError, "outside of a loop"),
    "2 micro-batches by default": (
        trained, {"count": 2}, "FailedPreconditionError", "must be a multiple of 4, but it is 2"),
    "a reduction by 'most'": (
        lambda device: Chain(device, 2).train(4, 1, reduction_method="most"), (), ValueError, UNKNOWN),
    "a mask of two for one output": (trained, {"outfeed_mask": [False, True]}, ValueError, "outfeed_mask"),
    "a Keras optimizer without variables": (without_variables, (), RuntimeError, "No variables"),
}  # fmt: skip


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program_is_refused(device: Device, what: str) -> None:
    """A program that cannot work is refused when it is built, when it runs, or when its results are asked for."""
    check_refused(device, what, PROGRAMS)
