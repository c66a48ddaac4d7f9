"""Ways for the operations of a program to be wrong: feeds, loops, compilation, collectives, optimizers, pipelines."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, where
from ipu_conformance.emulator.faults.decisions import tensorflow_ops

POINT = tensorflow_ops.point


def _reversed(value: Any, **context: Any) -> Any:
    return value[::-1]


def _first_again(value: Any, **context: Any) -> Any:
    return [value[0]] * len(value)


def _no_drain(value: Any, **context: Any) -> Any:
    import tensorflow as tf

    return tf.no_op


def _one_less(value: Any, **context: Any) -> Any:
    import tensorflow as tf

    return tf.maximum(0, value - 1)


def _never(value: Any, **context: Any) -> Any:
    import tensorflow as tf

    return tf.constant(False)


def _new_every_time(value: Any, **context: Any) -> Any:
    return lambda next_creator, **settings: next_creator(**settings)


def _backwards(value: Any, **context: Any) -> Any:
    import tensorflow as tf

    return tf.reverse(value, [0])


def _sum_instead(value: Any, **context: Any) -> Any:
    from ipu_conformance.emulator.tensorflow.run import collectives

    return collectives.cross_replica_sum


def _not_at_all(value: Any, **context: Any) -> Any:
    return lambda gradient: gradient


def _summed(value: Any, **context: Any) -> Any:
    return type(value).SUM


def _averaged(value: Any, **context: Any) -> Any:
    return type(value).MEAN


for _name, _rule, _area, _what, _wrong in (
    # Feeds
    ("infeed-shapes-unchecked", "shape-refused", "streams", "shapes that are not known are fed", never),
    ("infeed-initialised-again", "initialised-once", "plan", "an initialiser is given twice", never),
    ("infeed-reversed", "infeed-order", "streams", "replicas take elements in reverse order", _reversed),
    ("infeed-shared", "infeed-order", "streams", "all replicas take the same element", _first_again),
    ("outfeed-enqueued-twice", "enqueued-once", "streams", "a program enqueues in two places", never),
    ("outfeed-keeps-all", "outfeed-last", "streams", "an outfeed of the last value keeps all", _no_drain),
    ("outfeed-halved", "outfeed-all", "streams", "an outfeed holds half of what was enqueued",
     lambda value, **context: [leaf / 2 if leaf.dtype.is_floating else leaf for leaf in value]),
    ("outfeed-replicas-reversed", "outfeed-replicas", "streams", "replicas leave their values in reverse order",
     _reversed),
    ("outfeed-not-drained", "drained", "streams", "what was dequeued comes again", never),
    # Loops
    ("loop-one-less", "iterations", "plan", "a loop runs once less than it should", _one_less),
    ("loop-partial-accumulation", "whole-accumulations", "plan", "a loop ends within an accumulation",
     never),
    # Compilation
    ("graph-one-replica", "graph-replicas", "plan", "a session runs programs on one replica", always(1)),
    ("graph-last-result", "graph-results", "streams", "a session gets the last replica's results", _reversed),
    ("graph-host-ignored", "host-followed", "weights", "replicas do not see what the host writes", _never),
    ("graph-variables-again", "variables-made-once", "weights", "a program's variables are made for every replica",
     _new_every_time),
    ("compiled-for-the-host", "device-required", "plan", "what no scope places is compiled", never),
    ("shards-on-one-ipu", "shard-noted", "plan", "every shard is on the first IPU", always(0)),
    # Collectives
    ("collective-mean-for-sum", "reduction", "reduce", "sums over replicas are means",
     lambda value, **context: "mean"),
    ("collective-sum-for-mean", "reduction", "reduce", "means over replicas are sums",
     lambda value, **context: "sum"),
    ("collective-groups-ignored", "group", "reduce", "groups of replicas are all replicas", always(None)),
    ("collective-gathered-backwards", "gathered", "reduce", "what is gathered comes in reverse order", _backwards),
    ("collective-received-backwards", "received", "reduce", "pieces of replicas come in reverse order", _backwards),
    ("collective-any-number", "replicas-differ", "reduce", "the number of replicas is not checked", never),
    ("collective-first-piece", "piece", "reduce", "every replica keeps the first piece", always(0)),
    ("collective-piece-backwards", "scattered", "reduce", "pieces are scattered backwards", _backwards),
    ("replicas-all-first", "replication-index", "plan", "every replica is number 0", always(0)),
    # Optimizers
    ("optimizer-sums-replicas", "cross-replica-optimizer", "reduce", "gradients of replicas are added up",
     _sum_instead),
    ("optimizer-replicas-alone", "cross-replica-optimizer", "reduce", "replicas keep their own gradients",
     _not_at_all),
    ("accumulation-skipped", "mini-batches", "update", "weights are updated after every mini-batch", always(1)),
    ("accumulation-last-only", "accumulated", "update", "only the last mini-batch counts",
     lambda value, new, **context: new),
    ("accumulation-always-sum", "accumulation-method", "update", "accumulated gradients are always summed", _summed),
    ("accumulation-always-mean", "accumulation-method", "update", "accumulated gradients are always averaged",
     _averaged),
    ("gradients-not-mapped", "mapped", "update", "gradients are not changed by the user's function",
     lambda value, gradient, **context: gradient),
    # Pipelines
    ("pipeline-any-count", "pipeline-count", "plan", "every number of micro-batches is accepted",
     lambda value, **context: value * 8),
    ("pipeline-gradient-doubled", "pipeline-gradient", "update", "gradients of a pipeline are doubled",
     lambda value, **context: value * 2),
    ("pipeline-runs-once-less", "repeat-count", "plan", "a pipeline runs once less than it should", _one_less),
    ("pipeline-outfeed-not-summed", "outfeed-accumulated", "streams", "an accumulated outfeed is not accumulated",
     never),
    # Wrappers of Keras optimizers, strategies for several processes, buffered data sets
    ("loss-not-scaled", "loss-scaled", "update", "a loss is not multiplied by its factor", always(1.0)),
    ("gradients-stay-scaled", "unscaled", "update", "scaled gradients are applied", always(1.0)),
    ("buffers-not-whole", "whole-buffers", "streams", "a group that is not full is kept", never),
    ("strategy-never-reduces", "strategy-reduces", "reduce",
     "replicas of several processes keep their own gradients", never),
):  # fmt: skip
    catalogue.register(Fault(_name, _area, POINT, _what, where(_rule, _wrong)), __name__)
