"""Strategies: what their scope marks, what they are, and what they run."""

from __future__ import annotations

import threading
from typing import Any, Callable

import numpy as np
import pytest

NAMES = ("IPUStrategy", "IPUStrategyV1")


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_is_one_of_tensorflow(tf: Any, ipu: Any, name: str) -> None:
    """An IPU strategy is a strategy of TensorFlow 1, and so of TensorFlow."""
    strategy = getattr(ipu.ipu_strategy, name)()

    assert isinstance(strategy, tf.compat.v1.distribute.Strategy)


@pytest.mark.parametrize("name", NAMES)
def test_the_scope_makes_the_strategy_current(tf: Any, ipu: Any, name: str) -> None:
    """Inside the scope TensorFlow's current strategy is this one, after it another."""
    strategy = getattr(ipu.ipu_strategy, name)()
    with strategy.scope():
        inside = tf.distribute.get_strategy()
    outside = tf.distribute.get_strategy()

    assert inside is strategy
    assert outside is not strategy
    assert not tf.distribute.has_strategy()


def test_the_scope_gives_the_strategy(ipu: Any) -> None:
    """What stands behind ``as`` of the scope is the strategy."""
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope() as entered:
        pass

    assert entered is strategy


def test_a_scope_can_be_entered_again(tf: Any, ipu: Any) -> None:
    """A scope may be entered inside itself and after itself."""
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        with strategy.scope():
            assert tf.distribute.get_strategy() is strategy
        assert tf.distribute.get_strategy() is strategy
    with strategy.scope():
        assert tf.distribute.get_strategy() is strategy


def test_scopes_of_two_strategies_do_not_nest(ipu: Any) -> None:
    """A second strategy cannot be entered inside the scope of a first."""
    first, second = ipu.ipu_strategy.IPUStrategy(), ipu.ipu_strategy.IPUStrategy()
    with first.scope(), pytest.raises(RuntimeError), second.scope():
        pass


def test_the_scope_belongs_to_its_thread(tf: Any, ipu: Any) -> None:
    """Another thread is outside of the scope that this one has entered."""
    seen = []
    with ipu.ipu_strategy.IPUStrategy().scope():
        thread = threading.Thread(target=lambda: seen.append(tf.distribute.has_strategy()))
        thread.start()
        thread.join()

    assert seen == [False]


@pytest.mark.parametrize("ipus", [1, 2, 4])
def test_replicas_in_sync_stay_one(ipu: Any, configure: Callable[..., Any], ipus: int) -> None:
    """The replicas that IPUs make are not TensorFlow's: num_replicas_in_sync is 1 on any number of IPUs."""
    configure(ipus)

    assert ipu.ipu_strategy.IPUStrategy().num_replicas_in_sync == 1


@pytest.mark.parametrize("device", ["/device:IPU:0", "/device:IPU:1"])
def test_the_worker_is_the_named_device(ipu: Any, device: str) -> None:
    """Workers and parameters are on the IPU device that the strategy was made for."""
    strategy = ipu.ipu_strategy.IPUStrategy(ipu_device=device)

    assert [name.endswith(device[1:]) for name in strategy.extended.worker_devices] == [True]
    assert [name.endswith(device[1:]) for name in strategy.extended.parameter_devices] == [True]


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("should_checkpoint", True), ("should_save_summary", True), ("experimental_between_graph", False)],
)
def test_one_worker_does_what_one_worker_must(ipu: Any, attribute: str, value: bool) -> None:
    """There is one worker: it saves checkpoints and summaries, in one graph."""
    assert getattr(ipu.ipu_strategy.IPUStrategy().extended, attribute) is value


def test_variables_of_the_scope_belong_to_the_strategy(tf: Any, strategy: Any) -> None:
    """A variable knows whether it was made in the scope."""
    outside = tf.Variable(1.0)
    with strategy.scope():
        inside = tf.Variable(1.0)

        assert strategy.extended.variable_created_in_scope(inside)
        assert not strategy.extended.variable_created_in_scope(outside)


@pytest.mark.parametrize("trainable", [True, False])
def test_variables_of_the_scope_are_variables(tf: Any, strategy: Any, trainable: bool) -> None:
    """A variable of the scope keeps its value, its type and its name, and can be assigned to."""
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0], name="weights", trainable=trainable)
        variable.assign_add([1.0, 1.0])

    assert isinstance(variable, tf.Variable)
    assert variable.name == "weights:0"
    assert variable.trainable is trainable
    np.testing.assert_array_equal(variable.numpy(), np.asarray([2, 3], np.float32))


def test_models_of_the_scope_belong_to_the_strategy(tf: Any, strategy: Any) -> None:
    """A Keras model that is built in the scope keeps the strategy."""
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])

    assert model.distribute_strategy is strategy
    assert all(strategy.extended.variable_created_in_scope(weight) for weight in model.weights)


@pytest.mark.parametrize("kind", ["function", "lambda", "method", "partial"])
def test_eager_functions_are_refused(tf: Any, strategy: Any, kind: str) -> None:
    """What is not compiled cannot be run by a strategy in eager execution."""
    import functools

    class Holder:
        def method(self) -> Any:
            return tf.constant(1.0)

    def function() -> Any:
        return tf.constant(1.0)

    kinds = {
        "function": function,
        "lambda": lambda: tf.constant(1.0),
        "method": Holder().method,
        "partial": functools.partial(function),
    }
    with pytest.raises(Exception, match="eager execution"):
        strategy.run(kinds[kind])


@pytest.mark.parametrize("compiled", [None, True, False])
def test_a_compiled_function_is_run(tf: Any, strategy: Any, compiled: Any) -> None:
    """A tf.function is run with its arguments, whatever it says of XLA."""

    @tf.function(jit_compile=compiled)
    def scaled(value: Any, *, factor: Any) -> Any:
        return value * factor

    result = strategy.run(scaled, args=(tf.constant(3.0),), kwargs={"factor": tf.constant(2.0)})

    assert float(result) == 6.0


def test_a_plain_function_is_run_inside_a_compiled_one(tf: Any, strategy: Any) -> None:
    """Inside a tf.function a strategy runs any Python function."""

    @tf.function
    def outer(value: Any) -> Any:
        return strategy.run(lambda inner: inner + 1, args=(value,))

    assert float(outer(tf.constant(1.0))) == 2.0


@pytest.mark.parametrize("structure", ["tuple", "dict", "nested", "nothing"])
def test_results_keep_their_structure(tf: Any, strategy: Any, structure: str) -> None:
    """What a function returns comes back in the structure that it was returned in."""
    makers: Any = {
        "tuple": lambda value: (value, value + 1),
        "dict": lambda value: {"a": value, "b": value + 1},
        "nested": lambda value: [{"a": (value,)}, value + 1],
        "nothing": lambda value: None,
    }
    expected = makers[structure](np.float32(1))
    result = strategy.run(tf.function(makers[structure]), args=(tf.constant(1.0),))

    tf.nest.assert_same_structure(expected, result)
    assert [float(item) for item in tf.nest.flatten(result) if item is not None] == [
        float(item) for item in tf.nest.flatten(expected) if item is not None
    ]


def test_a_function_runs_in_replica_context(tf: Any, strategy: Any) -> None:
    """Inside of run the context is that of a replica, outside that of the strategy."""
    seen = []

    @tf.function
    def look() -> Any:
        seen.append((tf.distribute.in_cross_replica_context(), tf.distribute.get_strategy() is strategy))
        return tf.constant(0.0)

    strategy.run(look)
    with strategy.scope():
        seen.append((tf.distribute.in_cross_replica_context(), tf.distribute.get_strategy() is strategy))

    assert seen == [(False, True), (True, True)]


def test_a_function_changes_the_variables_of_the_scope(tf: Any, strategy: Any) -> None:
    """Assignments inside of run are seen by the host."""
    with strategy.scope():
        counter = tf.Variable(0.0)

    @tf.function
    def count() -> None:
        counter.assign_add(1.0)

    for _ in range(3):
        strategy.run(count)

    assert float(counter) == 3.0


def test_a_function_takes_from_an_iterator(tf: Any, strategy: Any) -> None:
    """An iterator that is passed to run gives its elements in order, from call to call."""
    iterator = iter(tf.data.Dataset.range(100))

    @tf.function
    def taken(elements: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for _ in tf.range(3):
            total += next(elements)
        return total

    assert [int(strategy.run(taken, args=(iterator,))) for _ in range(3)] == [0 + 1 + 2, 3 + 4 + 5, 6 + 7 + 8]


@pytest.mark.parametrize("ipus", [2, 4])
@pytest.mark.parametrize("steps", [1, 3])
def test_replicas_take_neighbouring_elements(tf: Any, strategy_on: Any, ipus: int, steps: int) -> None:
    """In step i replica r takes element i·R + r: the first replica's are R apart."""
    strategy = strategy_on(ipus)
    iterator = iter(tf.data.Dataset.range(100))
    with strategy.scope():
        seen = tf.Variable(tf.zeros([steps], tf.int64))

    @tf.function
    def taken(elements: Any) -> None:
        for step in tf.range(steps):
            seen.scatter_nd_update([[step]], [next(elements)])

    strategy.run(taken, args=(iterator,))
    first = seen.numpy().tolist()
    after = int(next(iterator))

    assert first == [step * ipus for step in range(steps)]
    assert after == steps * ipus


@pytest.mark.parametrize("ipus", [1, 2, 4])
def test_the_result_is_that_of_the_first_replica(tf: Any, strategy_on: Any, ipus: int) -> None:
    """Of what the replicas return the host gets the first one's."""
    strategy = strategy_on(ipus)
    iterator = iter(tf.data.Dataset.range(7, 100))

    result = strategy.run(tf.function(lambda elements: next(elements)), args=(iterator,))

    assert int(result) == 7


def test_replicas_have_variables_of_their_own(tf: Any, strategy_on: Any) -> None:
    """What one replica assigns is not seen by another: the first keeps what it has counted itself."""
    strategy = strategy_on(2)
    iterator = iter(tf.data.Dataset.range(100))
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def add(elements: Any) -> None:
        total.assign_add(next(elements))

    for _ in range(3):
        strategy.run(add, args=(iterator,))

    assert int(total) == 0 + 2 + 4


def test_functions_called_by_replicas_see_their_variables(tf: Any, strategy_on: Any) -> None:
    """A tf.function that a function of the strategy calls works on the replica's variables, not on the first one's."""
    strategy = strategy_on(2)
    iterator = iter(tf.data.Dataset.range(100))
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def add(value: Any) -> None:
        total.assign_add(value)

    @tf.function
    def step(elements: Any) -> Any:
        add(next(elements))
        return total.read_value()

    strategy.run(step, args=(iterator,))

    assert int(strategy.run(step, args=(iterator,))) == 0 + 2


@pytest.mark.parametrize("ipus", [1, 2])
def test_a_training_step_of_ones_own_trains(tf: Any, strategy_on: Any, ipus: int) -> None:
    """Gradients and updates inside of run are those of the element that the replica takes."""
    strategy = strategy_on(ipus)
    iterator = iter(tf.data.Dataset.from_tensor_slices(np.asarray([1, 2, 3, 4, 5, 6], np.float32)))
    with strategy.scope():
        weight = tf.Variable(1.0)

    @tf.function
    def train(elements: Any) -> Any:
        loss = tf.constant(0.0)
        for _ in tf.range(2):
            value = next(elements)
            with tf.GradientTape() as tape:
                loss = weight * value
            weight.assign_sub(tape.gradient(loss, weight) * 0.5)
        return loss

    loss = strategy.run(train, args=(iterator,))
    taken = [1.0, 1.0 + ipus]

    assert float(loss) == (1.0 - 0.5 * taken[0]) * taken[1]
    assert float(weight) == 1.0 - 0.5 * sum(taken)


@pytest.mark.parametrize("reduction", ["SUM", "MEAN"])
def test_reduce_leaves_the_one_value(tf: Any, strategy: Any, reduction: str) -> None:
    """With one replica in sync a reduction over replicas is the value itself."""
    with strategy.scope():
        result = strategy.reduce(getattr(tf.distribute.ReduceOp, reduction), tf.constant([1.0, 3.0]), axis=None)

    np.testing.assert_array_equal(result, np.asarray([1, 3], np.float32))


@pytest.mark.parametrize(("reduction", "expected"), [("SUM", 4.0), ("MEAN", 2.0)])
def test_reduce_over_an_axis(tf: Any, strategy: Any, reduction: str, expected: float) -> None:
    """A reduction over an axis reduces inside of the value."""
    with strategy.scope():
        result = strategy.reduce(getattr(tf.distribute.ReduceOp, reduction), tf.constant([1.0, 3.0]), axis=0)

    assert float(result) == expected


def test_local_results_are_the_value(tf: Any, strategy: Any) -> None:
    """There is one local result."""
    assert [float(value) for value in strategy.experimental_local_results(tf.constant(5.0))] == [5.0]


def test_a_dataset_is_not_split(tf: Any, strategy: Any) -> None:
    """A distributed data set gives every element whole."""
    dataset = tf.data.Dataset.range(6).batch(4)

    parts = [batch.numpy().tolist() for batch in strategy.experimental_distribute_dataset(dataset)]

    assert parts == [[0, 1, 2, 3], [4, 5]]


def test_a_dataset_function_is_called_once(tf: Any, strategy: Any) -> None:
    """A data set that is made by a function is made for one worker."""
    seen = []

    def make(context: Any) -> Any:
        seen.append((context.num_input_pipelines, context.input_pipeline_id))
        return tf.data.Dataset.range(3)

    parts = [int(item) for item in strategy.distribute_datasets_from_function(make)]

    assert parts == [0, 1, 2]
    assert seen == [(1, 0)]


def test_checkpoints_go_through_the_scope(tf: Any, strategy: Any, tmp_path: Any) -> None:
    """A variable of the scope is saved and restored."""
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    saved = tf.train.Checkpoint(variable=variable).save(str(tmp_path / "checkpoint"))
    variable.assign([0.0, 0.0])
    tf.train.Checkpoint(variable=variable).restore(saved)

    np.testing.assert_array_equal(variable.numpy(), np.asarray([1, 2], np.float32))


def test_a_device_that_is_no_ipu_is_refused(ipu: Any) -> None:
    """A strategy is made for an IPU device."""
    with pytest.raises(ValueError, match="CPU"):
        ipu.ipu_strategy.IPUStrategy(ipu_device="/device:CPU:0")


def test_two_devices_have_strategies_of_their_own(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """A strategy uses the IPUs of its own device: one replica on the first, two on the second."""
    configure([1, 2])
    iterator = iter(tf.data.Dataset.range(100))
    taken = tf.function(lambda elements: next(elements))
    first, second = (ipu.ipu_strategy.IPUStrategy(ipu_device=f"/device:IPU:{device}") for device in (0, 1))

    assert int(first.run(taken, args=(iterator,))) == 0
    assert int(second.run(taken, args=(iterator,))) == 1
    assert int(first.run(taken, args=(iterator,))) == 3


def test_a_dataset_is_made_of_arrays(tf: Any, strategy: Any) -> None:
    """Arrays on the host become a data set of their rows."""
    with strategy.scope():
        dataset = strategy.experimental_make_numpy_dataset(np.asarray([[1, 2], [3, 4]], np.float32))

    assert [row.numpy().tolist() for row in dataset] == [[1.0, 2.0], [3.0, 4.0]]


def test_a_graph_of_tensorflow_1_takes_from_a_dataset(tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
    """In graph mode the strategy's iterator is initialised in a session, and gives elements to a function of run."""
    configure(1)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        strategy = ipu.ipu_strategy.IPUStrategyV1()
        with strategy.scope():
            iterator = tf.compat.v1.data.make_initializable_iterator(tf.data.Dataset.range(5, 9))
            weight = tf.compat.v1.get_variable("weight", initializer=tf.constant(2, tf.int64))
            result = strategy.run(lambda value: value * weight, args=(iterator.get_next(),))
        session.run([iterator.initializer, tf.compat.v1.global_variables_initializer()])

        assert [int(session.run(result)) for _ in range(3)] == [10, 12, 14]
