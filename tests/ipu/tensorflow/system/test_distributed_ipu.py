"""Strategies for several processes: one process behaves as a strategy whose replicas reduce, more are refused."""

from __future__ import annotations

import importlib
import operator
from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check

pytestmark = pytest.mark.emulator
REPLICAS = 4
STRATEGIES = (
    ("distributed.popdist_strategy", "PopDistStrategy"),
    ("horovod.popdist_strategy", "PopDistStrategy"),
    ("horovod.ipu_horovod_strategy", "IPUHorovodStrategyV1"),
)
RATE = 0.5


def strategy_of(ipu: Any, module: str, name: str, *arguments: Any, **settings: Any) -> Any:
    """A strategy by the name of its module."""
    return getattr(importlib.import_module(f"tensorflow.python.ipu.{module}"), name)(*arguments, **settings)


@pytest.fixture
def popdist(ipu: Any, configure: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a strategy of one process with four replicas."""

    def on(**settings: Any) -> Any:
        configure(REPLICAS)
        return strategy_of(ipu, *STRATEGIES[0], **settings)

    return on


@pytest.mark.parametrize(("module", "name"), STRATEGIES)
def test_a_strategy_of_one_process_is_an_ipu_strategy(
    tf: Any, ipu: Any, configure: Callable[..., Any], module: str, name: str
) -> None:
    """A strategy of one process runs functions as an IPUStrategy does, and counts one replica."""
    configure(REPLICAS)
    strategy = strategy_of(ipu, module, name)

    with strategy.scope():
        result = strategy.run(tf.function(lambda x: x + 1), args=(tf.constant(2),))
    check.equal(actual=int(result), expected=3, what="2 + 1 in the scope")
    check.equal(actual=strategy.num_replicas_in_sync, expected=1, what="num_replicas_in_sync on 4 IPUs")


@pytest.mark.parametrize(
    ("kind", "settings", "total"),
    [
        ("SGD", {}, 1 + 2 + 3 + 4),
        ("legacy.SGD", {}, 1 + 2 + 3 + 4),
        ("SGD", {"add_ipu_cross_replica_reductions": False}, 1),
    ],
    ids=["SGD", "legacy.SGD", "SGD-alone"],
)
def test_optimizers_add_up_gradients_of_replicas(
    tf: Any, ipu: Any, popdist: Callable[..., Any], kind: str, settings: Any, total: float
) -> None:
    """In a function that the strategy runs an optimizer applies the sum of the replicas' gradients r + 1.

    Without cross-replica reductions every replica applies its own gradients; the host reads the first's.
    """
    strategy = popdist(**settings)
    with strategy.scope():
        weight = tf.Variable(4.0)
        optimizer = operator.attrgetter(kind)(tf.keras.optimizers)(RATE)

        @tf.function
        def step() -> None:
            factor = tf.cast(ipu.replication_ops.replication_index(), tf.float32) + 1
            optimizer.apply_gradients([(factor, weight)])

        strategy.run(step)

    check.identical(actual=weight.numpy(), expected=np.float32(4 - RATE * total), what="the weight")


def test_the_replica_context_reduces(tf: Any, ipu: Any, popdist: Callable[..., Any]) -> None:
    """Inside a function the replica context adds up or averages over replicas."""
    strategy = popdist()

    @tf.function
    def both() -> Any:
        value = tf.cast(ipu.replication_ops.replication_index(), tf.float32) + 1
        context, kinds = tf.distribute.get_replica_context(), tf.distribute.ReduceOp
        return context.all_reduce(kinds.SUM, value), context.all_reduce(kinds.MEAN, value)

    with strategy.scope():
        results = [float(value) for value in strategy.run(both)]

    check.equal(actual=results, expected=[10, 2.5], what="the sum and the mean of 1, 2, 3 and 4")


def test_keras_models_reduce_once(tf: Any, popdist: Callable[..., Any]) -> None:
    """Fitting a model adds up the replicas' gradients once."""
    with popdist().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        model.build((None, 1))
        model.compile(tf.keras.optimizers.SGD(RATE), loss=lambda labels, outputs: outputs)
        rows = np.arange(1, REPLICAS + 1, dtype=np.float32)[:, None]
        model.fit(tf.data.Dataset.from_tensor_slices((rows, rows)).batch(1, drop_remainder=True), verbose=0)

    expected = np.asarray([[1 - RATE * (1 + 2 + 3 + 4)]], np.float32)
    check.identical(actual=model.get_weights()[0], expected=expected, what="the kernel")


@pytest.mark.emulator
def test_a_value_of_one_replica_is_not_reduced(tf: Any, popdist: Callable[..., Any]) -> None:
    """Outside of a function the values of other replicas are gone, and reducing is refused."""
    with check.raises(NotImplementedError, match="outside of `run`", what="reduce outside of a function"):
        popdist().reduce("SUM", tf.constant(1.0), axis=None)


def test_the_configuration_learns_of_the_process(ipu: Any, popdist: Callable[..., Any]) -> None:
    """A strategy writes the number of processes, and which one this is, into a configuration."""
    config, strategy = ipu.config.IPUConfig(), popdist()
    strategy.update_ipu_config(config)

    distribution = config.experimental.multi_replica_distribution
    process = (distribution.process_count, distribution.process_index)
    check.equal(actual=process, expected=(1, 0), what="process_count and process_index")
    with check.raises(TypeError, match="IPUConfig", what="update_ipu_config of a dictionary"):
        strategy.update_ipu_config({})


@pytest.mark.emulator
@pytest.mark.parametrize("variable", ["POPDIST_NUM_INSTANCES", "OMPI_COMM_WORLD_SIZE"])
def test_several_processes_are_refused(ipu: Any, monkeypatch: Any, variable: str) -> None:
    """One of several processes is refused, as it cannot meet the others."""
    monkeypatch.setenv(variable, "3")

    with check.raises(NotImplementedError, match="one of 3 processes", what="a strategy in one of 3 processes"):
        strategy_of(ipu, *STRATEGIES[0])
    with check.raises(NotImplementedError, match="one of 3 processes", what="horovod.init in one of 3 processes"):
        ipu.horovod.init()


def cluster(tf: Any, ipu: Any, *tasks: str) -> Any:
    """The strategy of a cluster with these workers."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({"worker": list(tasks)}))
    return ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategyV1(resolver)


def test_a_cluster_of_one_worker_is_a_strategy(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """A cluster of one task runs functions."""
    configure(1)
    strategy = cluster(tf, ipu, "a:1")
    with strategy.scope():
        result = strategy.run(tf.function(lambda: tf.constant(7)))
    check.equal(actual=int(result), expected=7, what="a constant in the scope")


@pytest.mark.emulator
def test_a_cluster_of_several_workers_is_refused(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """No gradient passes between emulated workers."""
    configure(1)

    with check.raises(NotImplementedError, match="3 tasks", what="a cluster of 3 tasks"):
        cluster(tf, ipu, "a:1", "b:1", "c:1")


def test_one_process_meets_itself(tf: Any, ipu: Any) -> None:
    """A process alone is rank 0 of 1, and collectives give it its own values."""
    horovod, value = ipu.horovod, tf.constant([1.0, 2.0])
    horovod.init()

    place = (horovod.size(), horovod.rank(), horovod.local_size(), horovod.local_rank())
    check.equal(actual=place, expected=(1, 0, 1, 0), what="size, rank, local_size and local_rank")
    tensors = [horovod.allgather(value), horovod.broadcast(value, 0), horovod.allreduce(value, op=horovod.Sum)]
    tensors.append(horovod.allreduce(value, op=horovod.Sum, prescale_factor=2.0))
    tensors.append(horovod.allreduce(value, op=horovod.Average, prescale_factor=2.0, postscale_factor=4.0))
    results = [tensor.numpy().tolist() for tensor in tensors]
    what = "what allgather, broadcast, allreduce and allreduce with a prescale_factor of 2 and a postscale_factor give"
    check.equal(actual=results, expected=[[1, 2], [1, 2], [1, 2], [2, 4], [8, 16]], what=what)
    with check.raises(ValueError, match="root_rank", what="a broadcast from rank 1"):
        horovod.broadcast(value, 1)
    horovod.shutdown()
    with check.raises(ValueError, match="init", what="horovod.size after shutdown"):
        horovod.size()
