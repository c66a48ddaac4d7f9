"""Ways for programs to be wrong: feeds, loops, compilation, strategies, collectives, optimizers, pipelines."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, patch, result

API, COMPILE, OPTIM, RUN = (f"tensorflow.{room}" for room in ("api", "compile", "optim", "run"))
INFEED, OUTFEED = f"{RUN}.infeed:IPUInfeedQueue", f"{RUN}.outfeed:IPUOutfeedQueue"
PROGRAM = f"{COMPILE}.graph_replicas:GraphProgram"
COLLECTIVES, SCALING = f"{RUN}.collectives", f"{OPTIM}.loss_scaling:LossScaling"
ACCUMULATING, REDUCTION = (
    f"{OPTIM}.accumulation:Accumulating",
    f"{RUN}.accumulation:GradientAccumulationReductionMethod",
)


def _reversed(values: Any) -> Any:
    return values[::-1]


def _one_less(times: Any) -> Any:
    import tensorflow as tf

    return tf.maximum(0, tf.convert_to_tensor(times, tf.int32) - 1)


def _leaves(element: Any) -> int:
    import tensorflow as tf

    return len(tf.nest.flatten(element))


def _nothing() -> Any:
    import tensorflow as tf

    return tf.no_op()


def _narrowed(pairs: Any) -> Any:
    import tensorflow as tf

    return [(tf.cast(tf.cast(gradient, variable.dtype), gradient.dtype), variable) for gradient, variable in pairs]


def _backwards(value: Any) -> Any:
    import tensorflow as tf

    return tf.reverse(value, [0])


def _halved(outputs: Any) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(lambda leaf: leaf / 2 if leaf.dtype.is_floating else leaf, outputs)


HOST = "tensorflow.ops.host_embedding"

for _name, _function, _area, _what, _wrong in (
    # Tables on the host
    ("host-embedding-of-one-replica", f"{HOST}:HostEmbeddingOptimizerSpec._updates", "reduce",
     "a table on the host gets the gradients of the first replica only",
     lambda original, spec, table, everyone: original(spec, table, everyone[:1]) * len(everyone)),
    ("host-embedding-at-once", f"{HOST}:HostEmbeddingSGDGAOptimizerSpec.__init__", "update",
     "a table on the host is updated after every mini-batch",
     lambda original, spec, learning_rate, accumulation_factor: original(spec, learning_rate, 1)),
    ("host-embedding-backwards", f"{HOST}:_rows", "streams", "rows are looked up in reverse order",
     result(_backwards)),
    # Feeds
    ("infeed-reversed", f"{INFEED}._elements", "streams", "replicas take elements in reverse order",
     result(_reversed)),
    ("infeed-shared", f"{INFEED}._elements", "streams", "all replicas take the same element",
     lambda original, queue, number: original(queue, 1) * number),
    ("outfeed-halved", f"{OUTFEED}._push", "streams", "an outfeed holds half of what was enqueued",
     argument("outputs", _halved)),
    ("outfeed-replicas-reversed", f"{OUTFEED}._of_turn", "streams", "replicas leave their values in reverse order",
     argument("flat", _reversed)),
    ("environment-infeed-real", f"{RUN}.synthetic:instead_of", "plan",
     "data of the host reach a program in spite of synthetic infeeds", lambda original, iterator: iterator),
    ("infeed-counts-tensors", f"{INFEED}.number_of_tuple_elements", "streams",
     "a queue tells the number of tensors in its elements", lambda original, queue: _leaves(queue.element_spec)),
    ("infeed-is-an-iterator", f"{INFEED}.get_next", "streams", "elements are taken from a queue outside of loops",
     lambda original, queue: queue._iterator.get_next()),
    ("infeed-goes-on", f"{INFEED}.initializer", "streams", "in eager mode the initializer begins nothing again",
     lambda original, queue: None if queue._eager else original(queue)),
    ("benchmark-time-halved", f"{RUN}.dataset_benchmark:_seconds", "streams", "half of the time is measured",
     result(lambda seconds: seconds / 2)),
    ("benchmark-silent", f"{RUN}.dataset_benchmark:_report", "streams", "measurements are never printed",
     argument("printed", always(False))),
    ("print-silent", f"{API}.ops.internal_ops:print_tensor", "streams", "a tensor is not printed",
     lambda original, tensor, name="": _nothing()),
    # Loops
    ("loop-maximum-ignored", f"{COMPILE}.device_loop:conditional", "plan", "a loop runs longer than its maximum",
     argument("maximum_iterations", always(None))),
    ("barrier-waits-for-none", f"{API}.ops.control_flow_ops:barrier", "plan", "a barrier waits for nothing",
     lambda original, tensors, *arguments, **settings: list(tensors)),
    ("loop-one-less", f"{COMPILE}.device_loop:_counted", "plan", "a loop runs once less than it should",
     argument("times", _one_less)),
    ("loop-partial-accumulation", f"{COMPILE}.device_loop:_require_whole", "plan",
     "a loop ends within an accumulation", always(None)),
    # Compilation
    ("graph-one-replica", f"{PROGRAM}._placed", "plan", "a session runs programs on one replica",
     lambda original, program, *arguments: {*original(program, *arguments), program.ipus - 1}),
    ("graph-last-result", f"{PROGRAM}._results", "streams", "a session gets the last replica's results",
     result(_reversed)),
    ("graph-variables-again", f"{COMPILE}.graph_context:_creating", "weights",
     "a program's variables are made for every replica",
     argument("create", always(lambda next_creator, **settings: next_creator(**settings)))),
    ("shards-on-one-ipu", f"{COMPILE}.shards:note", "plan", "every shard is on the first IPU",
     argument("ipu", always(0))),
    ("pipeline-gradients-narrowed", f"{RUN}.pipeline_machine:_apply", "numerics",
     "an optimizer gets gradients with the bits of the weights' type", argument("pairs", _narrowed)),
    # Strategies
    ("strategy-one-replica", f"{RUN}.strategy_run:run", "plan", "a strategy runs on one replica",
     argument("ipus", always(1))),
    ("strategy-last-result", f"{RUN}.strategy_run:_unrolled", "plan", "the host gets the last replica's result",
     result(_reversed)),
    ("strategy-elements-reversed", f"{RUN}.strategy_run:_SharedIterator._elements", "streams",
     "replicas take elements in reverse order", result(_reversed)),
    ("strategy-never-reduces", f"{RUN}.process_strategies:PopDistExtendedV1._reduce_to", "reduce",
     "replicas of several processes keep their own gradients",
     lambda original, extended, reduce_op, value, *arguments: value),
    # Collectives
    ("collective-mean-for-sum", f"{COLLECTIVES}:_reduced", "reduce", "sums over replicas are means",
     argument("reduction", always("mean"))),
    ("collective-sum-for-mean", f"{COLLECTIVES}:_reduced", "reduce", "means over replicas are sums",
     argument("reduction", always("sum"))),
    ("collective-groups-ignored", f"{COLLECTIVES}:_reduced", "reduce", "groups of replicas are all replicas",
     argument("group", always(None))),
    ("collective-gathered-backwards", f"{COLLECTIVES}:all_gather", "reduce",
     "what is gathered comes in reverse order", result(_backwards)),
    ("collective-received-backwards", f"{COLLECTIVES}:all_to_all", "reduce",
     "pieces of replicas come in reverse order", result(_backwards)),
    ("collective-first-piece", f"{API}.ops.reduce_scatter_op:_piece", "reduce", "every replica keeps the first piece",
     argument("number", always(0))),
    ("collective-piece-backwards", f"{COLLECTIVES}:reduce_scatter", "reduce", "pieces are scattered backwards",
     result(_backwards)),
    ("replicas-all-first", f"{API}.ops.replication_ops:replication_index", "plan", "every replica is number 0",
     result(lambda index: index * 0)),
    # Optimizers
    ("optimizer-replicas-alone", f"{OPTIM}.wrappers:averaged", "reduce", "replicas keep their own gradients",
     lambda original, pairs: list(pairs)),
    ("accumulation-skipped", f"{COMPILE}.device_loop:Iteration.after_every", "update",
     "weights are updated after every mini-batch", argument("count", always(1))),
    ("accumulation-last-only", f"{ACCUMULATING}._added", "update", "only the last mini-batch counts",
     lambda original, optimizer, held, gradient, number: gradient),
    ("accumulation-always-sum", f"{REDUCTION}.parse", "update", "accumulated gradients are always summed",
     result(lambda method: type(method).SUM)),
    ("accumulation-always-mean", f"{REDUCTION}.parse", "update", "accumulated gradients are always averaged",
     result(lambda method: type(method).MEAN)),
    ("gradients-not-mapped", f"{OPTIM}.wrappers:mapped", "update", "gradients are not changed by the user's function",
     lambda original, function, pairs: list(pairs)),
    ("loss-not-scaled", f"{SCALING}.scaled", "update", "a loss is not multiplied by its factor",
     lambda original, scaling, loss: loss),
    ("gradients-stay-scaled", f"{SCALING}.unscaled", "update", "scaled gradients are applied",
     lambda original, scaling, gradient, factor: gradient),
    # Pipelines
    ("pipeline-any-count", f"{COMPILE}.pipeline:misfit", "plan", "every number of micro-batches is accepted",
     always(None)),
    ("pipeline-gradient-doubled", f"{RUN}.pipeline_machine:FunctionPipeline.computed", "update",
     "gradients of a pipeline are doubled",
     result(lambda gradients: (gradient._replace(value=gradient.value * 2) for gradient in gradients))),
    ("pipeline-runs-once-less", f"{COMPILE}.pipeline:_repeated", "plan", "a pipeline runs once less than it should",
     argument("times", _one_less)),
    ("pipeline-outfeed-not-summed", f"{COMPILE}.pipeline:_leave", "streams",
     "an accumulated outfeed is not accumulated", argument("accumulated", always(False))),
    ("recompute-never", "tensorflow.config.system:recomputes", "plan", "allow_recompute changes nothing",
     always(False)),
    ("recompute-draws-again", f"{RUN}.recomputation:_draws", "plan",
     "a recomputed stage draws other random numbers", always(False)),
    ("recompute-writes-again", f"{RUN}.recomputation:_writes", "weights",
     "a recomputed stage changes its state a second time", always(False)),
    # The host's side
    ("buffers-not-whole", f"{API}.data.ops.dataset_ops:_whole_groups", "streams", "a group that is not full is kept",
     lambda original, dataset, size: dataset.window(size)),
    ("config-seed-ignored", f"{API}.utils:reset_ipu_seed", "plan", "every seed is the same seed",
     argument("seed", always(0))),
    ("config-initializers-stay", f"{API}.utils:move_variable_initialization_to_cpu", "plan",
     "initialisers stay on the device", always(None)),
):  # fmt: skip
    catalogue.register(Fault(_name, _area, _function, _what, _wrong), __name__)


@patch("outfeed-keeps-all", "streams", f"{OUTFEED}._drained", "an outfeed of the last value keeps all")
def _not_emptied(original: Any, queue: Any) -> Any:
    import tensorflow as tf

    return tf.no_op()


@patch("outfeed-not-drained", "streams", f"{OUTFEED}.dequeue", "what was dequeued comes again")
def _comes_again(original: Any, queue: Any, *arguments: Any, **settings: Any) -> Any:
    import tensorflow as tf

    taken = original(queue, *arguments, **settings)
    if queue._outfeed_mode.name == "ALL":
        queue._queue.enqueue_many(tf.nest.flatten(taken))
    return taken


@patch("graph-host-ignored", "weights", f"{COMPILE}.graph_replicas:_follow_host",
       "replicas do not see what the host writes")  # fmt: skip
def _host_ignored(original: Any, variable: Any) -> None:
    import tensorflow as tf
    from tensorflow.python.ops import gen_resource_variable_ops as operations

    from ipu_conformance.emulator.tensorflow.compile import graph_replicas

    value = graph_replicas._read(variable)
    begun = operations.var_is_initialized_op(variable.__dict__[graph_replicas.SHADOW].handle)
    tf.cond(begun, lambda: True, lambda: graph_replicas._all_assigned(variable, value))


@patch("strategy-functions-shared", "plan", f"{RUN}.replica_calls:inlined",
       "functions that replicas call work on the first replica")  # fmt: skip
def _shared(original: Any, function: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import replicas

    if not replicas.inside():
        return original(function)
    return functools.partial(inspect.unwrap(type(function).__call__), function)


@patch("report-written-again", "plan", f"{RUN}.strategy_run:_report", "a report is written for every run")
def _written_again(original: Any, compiled: Any, *arguments: Any) -> None:
    from ipu_conformance.emulator.tensorflow.run import strategy_run

    strategy_run._REPORTED.pop(compiled, None)
    original(compiled, *arguments)


@patch("optimizer-sums-replicas", "reduce", f"{OPTIM}.wrappers:averaged", "gradients of replicas are added up")
def _added_up(original: Any, pairs: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import collectives

    return [
        (gradient if gradient is None else collectives.cross_replica_sum(gradient), variable)
        for gradient, variable in pairs
    ]


@patch("recompute-newest-state", "weights", f"{RUN}.recomputation:Slot.again",
       "a recomputed stage has the newest state, not that of its forward pass")  # fmt: skip
def _newest_state(original: Any, slot: Any) -> Any:
    slot._written.clear()
    return original(slot)


@patch("recompute-stale-boundary", "streams", f"{RUN}.machine:StagedMachine.recompute",
       "a stage is recomputed from what the micro-batch before it was handed", remembers=True)  # fmt: skip
def _stale_boundary(
    memory: Any, original: Any, machine: Any, replica: int, stage: int, micro_batch: int, boundary: Any
) -> Any:
    before = memory.get((id(machine), replica, stage), boundary)
    memory[id(machine), replica, stage] = boundary
    return original(machine, replica, stage, micro_batch, before)
