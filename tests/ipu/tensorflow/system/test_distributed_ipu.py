"""Strategies for several processes: one process behaves as a strategy whose replicas reduce, more are refused."""

from __future__ import annotations

import importlib
import operator
from typing import Any, Callable

import pytest

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
    """Makes a strategy of one process on so many IPUs."""

    def on(ipus: int, **settings: Any) -> Any:
        configure(ipus)
        return strategy_of(ipu, *STRATEGIES[0], **settings)

    return on


def stepped(tf: Any, ipu: Any, strategy: Any, kind: str) -> Any:
    """The weight after one step in which replica r has the gradient r + 1."""
    with strategy.scope():
        weight = tf.Variable(4.0)
        optimizer = operator.attrgetter(kind)(tf.keras.optimizers)(RATE)

        @tf.function
        def step() -> None:
            factor = tf.cast(ipu.replication_ops.replication_index(), tf.float32) + 1
            optimizer.apply_gradients([(factor, weight)])

        strategy.run(step)
    return weight.numpy()


@pytest.mark.emulator
@pytest.mark.parametrize(("module", "name"), STRATEGIES)
def test_a_strategy_of_one_process_is_an_ipu_strategy(
    tf: Any, ipu: Any, configure: Callable[..., Any], module: str, name: str
) -> None:
    """A function runs in the scope of a strategy of one process as in that of an IPUStrategy."""
    configure(1)
    strategy = strategy_of(ipu, module, name)

    with strategy.scope():
        assert strategy.run(tf.function(lambda x: x + 1), args=(tf.constant(2),)).numpy() == 3
    assert strategy.num_replicas_in_sync == 1


@pytest.mark.emulator
@pytest.mark.parametrize("kind", ["SGD", "legacy.SGD"])
def test_optimizers_add_up_gradients_of_replicas(tf: Any, ipu: Any, popdist: Callable[..., Any], kind: str) -> None:
    """In a function that the strategy runs an optimizer applies the sum of the replicas' gradients."""
    strategy = popdist(2)

    assert stepped(tf, ipu, strategy, kind) == 4 - RATE * (1 + 2)


@pytest.mark.emulator
def test_reductions_can_be_left_out(tf: Any, ipu: Any, popdist: Callable[..., Any]) -> None:
    """Without cross-replica reductions every replica applies its own gradients; the host reads the first's."""
    strategy = popdist(2, add_ipu_cross_replica_reductions=False)

    assert stepped(tf, ipu, strategy, "SGD") == 4 - RATE * 1


@pytest.mark.emulator
def test_the_replica_context_reduces(tf: Any, ipu: Any, popdist: Callable[..., Any]) -> None:
    """Inside a function the replica context adds up or averages over replicas."""
    strategy = popdist(2)

    @tf.function
    def both() -> Any:
        value = tf.cast(ipu.replication_ops.replication_index(), tf.float32) + 1
        context = tf.distribute.get_replica_context()
        kinds = tf.distribute.ReduceOp
        return context.all_reduce(kinds.SUM, value), context.all_reduce(kinds.MEAN, value)

    with strategy.scope():
        total, mean = strategy.run(both)

    assert (total.numpy(), mean.numpy()) == (3, 1.5)


@pytest.mark.emulator
def test_keras_models_reduce_once(tf: Any, popdist: Callable[..., Any]) -> None:
    """A model that is fitted on replicas adds up their gradients once."""
    strategy = popdist(2)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        model.build((None, 1))
        model.compile(tf.keras.optimizers.SGD(RATE), loss=lambda labels, outputs: outputs)
        data = tf.data.Dataset.from_tensor_slices(([[1.0], [2.0]], [[0.0], [0.0]])).batch(1, drop_remainder=True)
        model.fit(data, verbose=0)

    assert model.get_weights()[0] == [[1 - RATE * (1 + 2)]]


@pytest.mark.emulator
def test_a_value_of_one_replica_is_not_reduced(tf: Any, popdist: Callable[..., Any]) -> None:
    """Outside of a function the values of other replicas are gone, and reducing is refused."""
    strategy = popdist(2)

    with pytest.raises(NotImplementedError, match="outside of `run`"):
        strategy.reduce("SUM", tf.constant(1.0), axis=None)


@pytest.mark.emulator
def test_the_configuration_learns_of_the_process(ipu: Any, popdist: Callable[..., Any]) -> None:
    """A strategy writes the number of processes, and which one this is, into a configuration."""
    config = ipu.config.IPUConfig()
    popdist(1).update_ipu_config(config)

    distribution = config.experimental.multi_replica_distribution
    assert (distribution.process_count, distribution.process_index) == (1, 0)
    with pytest.raises(TypeError, match="IPUConfig"):
        popdist(1).update_ipu_config({})


@pytest.mark.emulator
@pytest.mark.parametrize("variable", ["POPDIST_NUM_INSTANCES", "OMPI_COMM_WORLD_SIZE"])
def test_several_processes_are_refused(ipu: Any, monkeypatch: Any, variable: str) -> None:
    """One of several processes is told in one sentence that it cannot meet the others."""
    monkeypatch.setenv(variable, "2")

    with pytest.raises(NotImplementedError, match="one of 2 processes"):
        strategy_of(ipu, *STRATEGIES[0])
    with pytest.raises(NotImplementedError, match="one of 2 processes"):
        ipu.horovod.init()


@pytest.mark.emulator
def test_a_cluster_of_one_worker_is_a_strategy(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """A cluster of one task is run, one of several is refused."""
    configure(1)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver
    kind = ipu.ipu_multi_worker_strategy.IPUMultiWorkerStrategyV1

    one = kind(resolver(tf.train.ClusterSpec({"worker": ["a:1"]})))
    with one.scope():
        assert one.run(tf.function(lambda: tf.constant(7))).numpy() == 7
    with pytest.raises(NotImplementedError, match="2 tasks"):
        kind(resolver(tf.train.ClusterSpec({"worker": ["a:1", "b:1"]})))


@pytest.mark.emulator
def test_one_process_meets_itself(tf: Any, ipu: Any) -> None:
    """Between processes one process is rank 0 of 1, and collectives give it its own values."""
    horovod = ipu.horovod
    horovod.init()
    value = tf.constant([1.0, 2.0])

    assert (horovod.size(), horovod.rank(), horovod.local_size(), horovod.local_rank()) == (1, 0, 1, 0)
    assert horovod.allreduce(value, op=horovod.Sum, prescale_factor=2.0).numpy().tolist() == [2, 4]
    assert horovod.allgather(value).numpy().tolist() == [1, 2]
    assert horovod.broadcast(value, 0).numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="root_rank"):
        horovod.broadcast(value, 1)
    horovod.shutdown()
    with pytest.raises(ValueError, match="init"):
        horovod.size()
