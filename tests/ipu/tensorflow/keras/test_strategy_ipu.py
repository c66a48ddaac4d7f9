"""Strategies: what their scope marks, what they are, and what they run."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check


@pytest.mark.parametrize("name", ["IPUStrategy", "IPUStrategyV1"])
def test_the_scope_makes_the_strategy_current(tf: Any, ipu: Any, name: str) -> None:
    """Inside the scope TensorFlow's current strategy is this one, as what stands behind ``as``; after it another is."""
    strategy = getattr(ipu.ipu_strategy, name)()
    with strategy.scope() as entered:
        inside = tf.distribute.get_strategy()

    check.instance(actual=strategy, expected=tf.compat.v1.distribute.Strategy, what=name)
    check.equal(actual=[entered, inside], expected=[strategy] * 2, what="what the scope gives and what is current")
    check.differs(actual=tf.distribute.get_strategy(), other=strategy, what="the current strategy after the scope")
    check.equal(actual=tf.distribute.has_strategy(), expected=False, what="has_strategy after the scope")


def test_a_scope_can_be_entered_again(tf: Any, ipu: Any) -> None:
    """A scope may be entered inside itself and after itself."""
    strategy, current = ipu.ipu_strategy.IPUStrategy(), tf.distribute.get_strategy
    with strategy.scope():
        with strategy.scope():
            inside = current()
        around = current()
    with strategy.scope():
        after = current()

    check.equal(actual=[inside, around, after], expected=[strategy] * 3, what="the current strategy")


def test_scopes_of_two_strategies_do_not_nest(ipu: Any) -> None:
    """A second strategy cannot be entered inside the scope of a first."""
    first, second = ipu.ipu_strategy.IPUStrategy(), ipu.ipu_strategy.IPUStrategy()
    refused = check.raises(RuntimeError, match="Mixing different", what="the scope of a second strategy")
    with first.scope(), refused, second.scope():
        pass


def test_the_scope_belongs_to_its_thread(tf: Any, ipu: Any) -> None:
    """A scope that one thread has entered is not current in another."""
    seen = []
    with ipu.ipu_strategy.IPUStrategy().scope():
        thread = threading.Thread(target=lambda: seen.append(tf.distribute.has_strategy()))
        thread.start()
        thread.join()

    check.equal(actual=seen, expected=[False], what="has_strategy in another thread")


@pytest.mark.parametrize("ipus", [1, 2, 4])
def test_replicas_in_sync_stay_one(strategy_on: Any, ipus: int) -> None:
    """The replicas that IPUs make are not TensorFlow's: num_replicas_in_sync is 1 on any number of IPUs."""
    check.equal(actual=strategy_on(ipus).num_replicas_in_sync, expected=1, what=f"num_replicas_in_sync on {ipus} IPUs")


@pytest.mark.parametrize("device", ["/device:IPU:0", "/device:IPU:1"])
def test_the_worker_is_the_named_device(ipu: Any, device: str) -> None:
    """Workers and parameters are on the IPU device that the strategy was made for."""
    extended = ipu.ipu_strategy.IPUStrategy(ipu_device=device).extended

    for devices in (extended.worker_devices, extended.parameter_devices):
        one = [name.endswith(device[1:]) for name in devices] == [True]
        check.holds(one, f"The devices of a strategy for {device} are {devices}.")


def test_one_worker_does_what_one_worker_must(ipu: Any) -> None:
    """There is one worker: it saves checkpoints and summaries, in one graph."""
    extended = ipu.ipu_strategy.IPUStrategy().extended

    expected = {"should_checkpoint": True, "should_save_summary": True, "experimental_between_graph": False}
    check.equal(actual={name: getattr(extended, name) for name in expected}, expected=expected, what="the strategy")


def test_variables_of_the_scope_belong_to_the_strategy(tf: Any, strategy: Any) -> None:
    """A variable knows whether it was made in the scope; a Keras model's does, and the model keeps the strategy."""
    outside = tf.Variable(1.0)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
        created = [*map(strategy.extended.variable_created_in_scope, (tf.Variable(1.0), outside, *model.weights))]

    check.equal(actual=created, expected=[True, False, True, True], what="variable_created_in_scope of variables")
    check.equal(actual=model.distribute_strategy, expected=strategy, what="the distribute_strategy of the model")


@pytest.mark.parametrize("trainable", [True, False])
def test_variables_of_the_scope_are_variables(tf: Any, strategy: Any, trainable: bool) -> None:
    """A variable of the scope keeps its value, its type and its name, and can be assigned to."""
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0], name="weights", trainable=trainable)
        variable.assign_add([1.0, 1.0])

    check.instance(actual=variable, expected=tf.Variable, what="the variable")
    actual = variable.name, variable.trainable, variable.numpy().tolist()
    check.equal(actual=actual, expected=("weights:0", trainable, [2.0, 3.0]), what="its name, trainable and value")


def one() -> float:
    """What is not compiled."""
    return 1.0


EAGER = {"function": one, "lambda": lambda: 1.0, "method": threading.Event().is_set, "partial": functools.partial(one)}


@pytest.mark.parametrize("kind", EAGER)
def test_eager_functions_are_refused(strategy: Any, kind: str) -> None:
    """What is not compiled cannot be run by a strategy in eager execution."""
    with check.raises(Exception, match="eager execution", what=f"run of a {kind} that is not compiled"):
        strategy.run(EAGER[kind])


@pytest.mark.parametrize("compiled", [None, True, False])
def test_a_compiled_function_is_run(tf: Any, strategy: Any, compiled: Any) -> None:
    """A tf.function is run with its arguments, whatever it says of XLA."""
    scaled = tf.function(lambda value, *, factor=5.0: value * factor, jit_compile=compiled)
    result = strategy.run(scaled, args=(tf.constant(3.0),), kwargs={"factor": tf.constant(2.0)})

    check.equal(actual=float(result), expected=6.0, what="3 times 2")


def test_a_plain_function_is_run_inside_a_compiled_one(tf: Any, strategy: Any) -> None:
    """Inside a tf.function a strategy runs any Python function."""
    outer = tf.function(lambda value: strategy.run(lambda inner: inner + 1, args=(value,)))

    check.equal(actual=float(outer(tf.constant(1.0))), expected=2.0, what="1 and 1")


STRUCTURES: Dict[str, Callable[[Any], Any]] = {
    "tuple": lambda value: (value, value + 1),
    "dict": lambda value: {"a": value, "b": value + 1},
    "nested": lambda value: [{"a": (value,)}, value + 1],
    "nothing": lambda value: None,
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_results_keep_their_structure(tf: Any, strategy: Any, structure: str) -> None:
    """What a function returns comes back in the structure that it was returned in."""
    make = STRUCTURES[structure]
    result = strategy.run(tf.function(make), args=(tf.constant(1.0),))

    numbers = tf.nest.map_structure(lambda item: None if item is None else float(item), result)
    check.equal(actual=numbers, expected=make(1.0), what="the result")


def test_a_function_runs_in_replica_context(tf: Any, strategy: Any) -> None:
    """Inside run the context is that of a replica, outside that of the strategy."""
    seen = []

    def look() -> None:
        seen.append((tf.distribute.in_cross_replica_context(), tf.distribute.get_strategy() is strategy))

    strategy.run(tf.function(look))
    with strategy.scope():
        look()

    what = "in_cross_replica_context and whether the strategy is current, in run and in the scope"
    check.equal(actual=seen, expected=[(False, True), (True, True)], what=what)


def test_a_function_changes_the_variables_of_the_scope(tf: Any, strategy: Any) -> None:
    """The host sees assignments inside run."""
    with strategy.scope():
        counter = tf.Variable(0.0)
    count = tf.function(lambda: counter.assign_add(1.0))
    for _ in range(3):
        strategy.run(count)

    check.equal(actual=float(counter), expected=3.0, what="the variable after three runs that add 1")


@pytest.fixture
def elements(tf: Any) -> Any:
    """An iterator over 0, 1, 2 and so on."""
    return iter(tf.data.Dataset.range(100))


def test_a_function_takes_from_an_iterator(tf: Any, strategy: Any, elements: Any) -> None:
    """An iterator that is passed to run gives its elements in order, from call to call."""

    @tf.function
    def taken(elements: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for _ in tf.range(3):
            total += next(elements)
        return total

    sums = [int(strategy.run(taken, args=(elements,))) for _ in range(3)]
    check.equal(actual=sums, expected=[0 + 1 + 2, 3 + 4 + 5, 6 + 7 + 8], what="the sums of three elements by run")


@pytest.mark.parametrize("ipus", [2, 4])
@pytest.mark.parametrize("steps", [1, 3])
def test_replicas_take_neighbouring_elements(
    tf: Any, ipu: Any, strategy_on: Any, elements: Any, ipus: int, steps: int
) -> None:
    """In step i replica r takes element i·R + r: the first replica's are R apart."""
    strategy = strategy_on(ipus)
    with strategy.scope():
        seen = tf.Variable(tf.zeros([steps], tf.int64))
    out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def taken(elements: Any) -> None:
        for step in tf.range(steps):
            element = next(elements)
            seen.scatter_nd_update([[step]], [element])
            out.enqueue(tf.cast(element, tf.int32))

    strategy.run(taken, args=(elements,))

    everyone = np.arange(steps * ipus).reshape(steps, ipus)
    check.identical(actual=seen.numpy(), expected=everyone[:, 0], what="the elements of replica 0 by step")
    check.equal(actual=int(next(elements)), expected=steps * ipus, what="the first element after the run")
    by_replica = out.dequeue().numpy()
    check.identical(actual=by_replica, expected=everyone.astype(np.int32), what="the elements by step and replica")


@pytest.mark.parametrize("ipus", [1, 2, 4])
def test_the_result_is_that_of_the_first_replica(tf: Any, strategy_on: Any, ipus: int) -> None:
    """Of what the replicas return the host gets the first one's."""
    elements = iter(tf.data.Dataset.range(7, 100))
    result = strategy_on(ipus).run(tf.function(lambda iterator: next(iterator)), args=(elements,))

    check.equal(actual=int(result), expected=7, what=f"the result of a run on {ipus} IPUs")


@pytest.mark.parametrize("called", [False, True], ids=["own", "called"])
def test_replicas_have_variables_of_their_own(tf: Any, strategy_on: Any, elements: Any, called: bool) -> None:
    """What one replica assigns, in a tf.function that it calls too, is not seen by another: the first keeps its own."""
    strategy = strategy_on(2)
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)
    add = tf.function(lambda value: total.assign_add(value)) if called else total.assign_add

    @tf.function
    def step(elements: Any) -> Any:
        add(next(elements))
        return total.read_value()

    totals = [int(strategy.run(step, args=(elements,))) for _ in range(3)]
    check.equal(actual=totals, expected=[0, 0 + 2, 0 + 2 + 4], what="the sum of replica 0's elements by run")
    check.equal(actual=int(total), expected=0 + 2 + 4, what="the variable on the host")


@pytest.mark.parametrize("ipus", [1, 2])
def test_a_training_step_of_ones_own_trains(tf: Any, strategy_on: Any, ipus: int) -> None:
    """Gradients and updates inside run are those of the element that the replica takes."""
    strategy = strategy_on(ipus)
    iterator = iter(tf.data.Dataset.from_tensor_slices(np.arange(1, 7, dtype=np.float32)))
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

    first, second = 1.0, 1.0 + ipus
    expected = (1.0 - 0.5 * first) * second, 1.0 - 0.5 * (first + second)
    check.equal(actual=(float(loss), float(weight)), expected=expected, what="replica 0's last loss and weight")


@pytest.mark.parametrize(("reduction", "axis", "expected"), [
    ("SUM", None, [1.0, 3.0]), ("MEAN", None, [1.0, 3.0]), ("SUM", 0, 4.0), ("MEAN", 0, 2.0),
])  # fmt: skip
def test_reduce_leaves_the_one_value(tf: Any, strategy: Any, reduction: str, axis: Any, expected: Any) -> None:
    """With one replica in sync a reduction over replicas is the value itself; one over an axis reduces inside it."""
    with strategy.scope():
        result = strategy.reduce(getattr(tf.distribute.ReduceOp, reduction), tf.constant([1.0, 3.0]), axis=axis)

    check.equal(actual=result.numpy().tolist(), expected=expected, what=f"{reduction} of [1, 3] over the axis {axis}")


HOSTED: Dict[str, Tuple[Callable[[Any, Any], Any], Any]] = {
    "local": (lambda tf, own: own.experimental_local_results(tf.constant(5.0)), [5.0]),
    "dataset": (lambda tf, own: own.experimental_distribute_dataset(tf.data.Dataset.range(6).batch(4)),
                [[0, 1, 2, 3], [4, 5]]),
    "arrays": (lambda tf, own: own.experimental_make_numpy_dataset(np.asarray([[1, 2], [3, 4]], np.float32)),
               [[1.0, 2.0], [3.0, 4.0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTED)
def test_a_dataset_is_not_split(tf: Any, strategy: Any, name: str) -> None:
    """There is one local result; a data set gives every element whole, and arrays become one of their rows."""
    make, expected = HOSTED[name]
    with strategy.scope():
        elements = [element.numpy().tolist() for element in make(tf, strategy)]

    check.equal(actual=elements, expected=expected, what=f"the elements of what the strategy gives ({name})")


def test_a_dataset_function_is_called_once(tf: Any, strategy: Any) -> None:
    """A data set that is made by a function is made for one worker."""
    seen = []

    def make(context: Any) -> Any:
        seen.append((context.num_input_pipelines, context.input_pipeline_id))
        return tf.data.Dataset.range(3)

    parts = [int(item) for item in strategy.distribute_datasets_from_function(make)]

    check.equal(actual=parts, expected=[0, 1, 2], what="the elements of the distributed data set")
    check.equal(actual=seen, expected=[(1, 0)], what="num_input_pipelines and input_pipeline_id of each call")


def test_checkpoints_go_through_the_scope(tf: Any, strategy: Any, tmp_path: Any) -> None:
    """A variable of the scope is saved and restored."""
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    saved = tf.train.Checkpoint(variable=variable).save(str(tmp_path / "checkpoint"))
    variable.assign([0.0, 0.0])
    tf.train.Checkpoint(variable=variable).restore(saved)

    check.equal(actual=variable.numpy().tolist(), expected=[1.0, 2.0], what="the restored variable")


def test_a_device_that_is_no_ipu_is_refused(ipu: Any) -> None:
    """A strategy is made for an IPU device."""
    with check.raises(ValueError, match="CPU", what="a strategy for a CPU"):
        ipu.ipu_strategy.IPUStrategy(ipu_device="/device:CPU:0")


def test_two_devices_have_strategies_of_their_own(ipu: Any, tf: Any, configure: Any, elements: Any) -> None:
    """A strategy uses the IPUs of its own device: one replica on the first, two on the second."""
    configure([1, 2])
    first, second = (ipu.ipu_strategy.IPUStrategy(ipu_device=f"/device:IPU:{device}") for device in (0, 1))

    take = tf.function(lambda iterator: next(iterator))
    taken = [int(strategy.run(take, args=(elements,))) for strategy in (first, second, first)]
    check.equal(actual=taken, expected=[0, 1, 3], what="the elements of the first, the second and the first device")


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

        products = [int(session.run(result)) for _ in range(3)]
    check.equal(actual=products, expected=[10, 12, 14], what="twice the elements by run")
