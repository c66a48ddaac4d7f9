"""Replicas that are built into one graph: turns, meetings, errors, and what they see of their surroundings."""

from __future__ import annotations

import threading
from typing import Any, Iterator, List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.tensorflow.run import collectives, replicas, variables
from ipu_conformance.emulator.tensorflow.run.replicas import ReplicaError
from tests.unit.examples import at_most

pytestmark = pytest.mark.usefixtures("tf_of_file")

tf: Any = None


def test_every_replica_knows_its_number() -> None:
    """A function is called once per replica with arguments of its own."""
    seen = replicas.run(lambda word: (replicas.current(), replicas.count(), word), [("a",), ("b",), ("c",)])

    assert seen == [(0, 3, "a"), (1, 3, "b"), (2, 3, "c")]


def test_outside_of_replicas_there_is_one() -> None:
    """The host is no replica, and counts as the first of one."""
    assert (replicas.current(), replicas.count(), replicas.inside()) == (0, 1, False)


def test_replicas_take_turns() -> None:
    """Only one replica runs at a time, and it hands over nowhere but where all meet."""
    events: List[str] = []

    def program() -> None:
        for part in "ab":
            events.append(f"{part}{replicas.current()}")
            replicas.exchange(None, lambda all_: all_, "a meeting")

    replicas.run(program, [()] * 3)

    assert events == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_an_error_of_one_replica_ends_all() -> None:
    """What a replica raises is raised by run, and no thread is left waiting."""
    before = threading.active_count()

    def program() -> None:
        if replicas.current() == 1:
            raise KeyError("mine")
        replicas.exchange(None, lambda all_: all_, "a meeting")

    with pytest.raises(KeyError, match="mine"):
        replicas.run(program, [()] * 3)
    assert threading.active_count() == before


def test_a_replica_that_ends_too_early_is_an_error() -> None:
    """Every replica must come to every meeting."""

    def program() -> None:
        if replicas.current() == 0:
            replicas.exchange(None, lambda all_: all_, "a sum")

    with pytest.raises(ReplicaError, match="replica 0 waits in a sum and replica 1 has ended"):
        replicas.run(program, [()] * 2)


def test_replicas_that_meet_in_different_operations_are_an_error() -> None:
    """A meeting is of one kind for all."""

    def program() -> None:
        replicas.exchange(None, lambda all_: all_, f"operation {replicas.current()}")

    with pytest.raises(ReplicaError, match="operation 0, operation 1"):
        replicas.run(program, [()] * 2)


def test_replicas_cannot_meet_inside_a_condition() -> None:
    """The graph of a condition belongs to one replica."""

    def program(flag: Any) -> Any:
        return tf.cond(flag, lambda: collectives.all_reduce(1.0), lambda: 0.0)

    @tf.function(autograph=False)
    def built(flag: Any) -> Any:
        return replicas.run(program, [(flag,), (flag,)])

    with pytest.raises(ReplicaError, match="inside a loop, a condition"):
        built(tf.constant(True))


def test_a_meeting_may_run_replicas_again() -> None:
    """What combines runs outside of replicas, and may start them anew, for instance in a loop that all share."""

    def combine(values: List[Any]) -> List[Any]:
        return replicas.run(lambda value: value * (replicas.current() + 1), [(value,) for value in values])

    assert replicas.run(lambda: replicas.exchange(10, combine, "nested"), [()] * 3) == [10, 20, 30]


@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from(["sum", "mean", "max", "min", "product"]))
@at_most(12)
def test_groups_of_neighbours_reduce(groups: int, size: int, reduction: str) -> None:
    """A reduction over groups is that of consecutive replicas."""
    values = np.arange(1.0, groups * size + 1)
    function: Any = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "product": np.prod}[reduction]
    got = replicas.run(lambda value: collectives.all_reduce(value, reduction, size), [(value,) for value in values])
    want = np.repeat(function(values.reshape(groups, size), axis=1), size)

    assert [float(value) for value in got] == want.tolist()


def test_a_group_divides_the_replicas() -> None:
    """Groups that leave some replicas over are refused."""
    with pytest.raises(ReplicaError, match="groups of 2 replicas were given for 3"):
        replicas.run(lambda: collectives.all_reduce(1.0, group=2), [()] * 3)


def test_gathering_stacks_the_replicas() -> None:
    """all_gather gives every replica the values of all under a new axis."""
    got = replicas.run(lambda: collectives.all_gather(tf.fill([2], float(replicas.current()))), [()] * 3)

    assert all(value.numpy().tolist() == [[0, 0], [1, 1], [2, 2]] for value in got)


def test_scattering_cuts_the_sum() -> None:
    """reduce_scatter gives every replica its piece of the sum, the last filled up with zeros."""
    got = replicas.run(lambda: collectives.reduce_scatter(tf.range(5.0)), [()] * 2)

    assert [value.numpy().tolist() for value in got] == [[0, 2, 4], [6, 8, 0]]


def test_rows_are_exchanged() -> None:
    """all_to_all transposes senders and receivers."""
    got = replicas.run(lambda: collectives.all_to_all(tf.range(2.0) + 10.0 * replicas.current()), [()] * 2)

    assert [value.numpy().tolist() for value in got] == [[0, 10], [1, 11]]


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_gradients_pass_collectives(graph: bool) -> None:
    """The gradient of a sum over replicas is the sum of the replicas' gradients."""

    def program(value: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(value)
            total = collectives.all_reduce(value) * (replicas.current() + 1.0)
        return tape.gradient(total, value)

    def build() -> Any:
        return replicas.run(program, [(tf.constant(2.0),), (tf.constant(5.0),)])

    assert [float(value) for value in (tf.function(build, autograph=False) if graph else build)()] == [3.0, 3.0]


def test_variables_have_a_value_for_each_replica() -> None:
    """What a replica writes is its own; the host sees the first replica's and writes to all."""
    with variables.scope():
        variable = tf.Variable(1.0)

    @tf.function(autograph=False)
    def step() -> Any:
        return replicas.run(lambda: variable.assign_add(replicas.current() + 1.0).read_value(), [()] * 3)

    assert [float(value) for value in step()] == [2.0, 3.0, 4.0]
    assert float(variable) == 2.0
    assert float(variables.of_replica(variable, 2)) == 4.0
    variable.assign(7.0)
    assert [float(variables.of_replica(variable, number)) for number in range(3)] == [7.0] * 3


@pytest.mark.parametrize("method", ["assign_add", "assign_sub"])
def test_the_host_changes_all_replicas(method: str) -> None:
    """Additions of the host reach every replica too."""
    with variables.scope():
        variable = tf.Variable(1.0)
    replicas.run(lambda: variable.assign(float(replicas.current())), [()] * 2)
    getattr(variable, method)(1.0)
    change = 1.0 if method == "assign_add" else -1.0

    assert [float(variables.of_replica(variable, number)) for number in range(2)] == [change, 1.0 + change]


def test_a_program_that_is_loaded_begins_with_replica_zero() -> None:
    """A broadcast gives every replica the value of the first."""
    with variables.scope():
        variable = tf.Variable(0.0)
    replicas.run(lambda: variable.assign(5.0 + replicas.current()), [()] * 2)
    variables.broadcast([variable])

    assert float(variables.of_replica(variable, 1)) == 5.0


def test_checkpoints_hold_the_first_replica(tmp_path: Any) -> None:
    """A checkpoint saves the value of replica 0 and restores it on all."""
    with variables.scope():
        variable = tf.Variable(0.0)
    replicas.run(lambda: variable.assign(5.0 + replicas.current()), [()] * 2)
    path = tf.train.Checkpoint(value=variable).save(str(tmp_path / "checkpoint"))
    variable.assign(0.0)
    tf.train.Checkpoint(value=variable).restore(path)

    assert [float(variables.of_replica(variable, number)) for number in range(2)] == [5.0, 5.0]


def test_variables_that_replicas_make_are_replicated() -> None:
    """A variable that is made while replicas are built has a value for each of them."""
    made: List[Any] = []

    def program() -> None:
        if not made:
            made.append(tf.Variable(0.0))
        made[0].assign(1.0 + replicas.current())

    replicas.run(program, [()] * 2)

    assert [float(variables.of_replica(made[0], number)) for number in range(2)] == [1.0, 2.0]


def test_lockstep_training_is_bit_identical() -> None:
    """Replicas that reduce their gradients hold the same bits after every step of a loop on the device."""
    rng = np.random.default_rng(0)
    with variables.scope():
        weight = tf.Variable(rng.normal(size=(3, 2)).astype(np.float32))
    data = iter(tf.data.Dataset.from_tensor_slices(rng.normal(size=(12, 4, 3)).astype(np.float32)))

    def step(batch: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(batch @ weight) - 0.5))
        weight.assign_sub(0.1 * collectives.all_reduce(tape.gradient(loss, weight)))

    @tf.function(autograph=False)
    def train() -> None:
        def body(turn: Any) -> Any:
            replicas.run(step, [(data.get_next(),) for _ in range(3)])
            return (turn + 1,)

        tf.while_loop(lambda turn: turn < 4, body, (tf.constant(0),))

    before = weight.numpy()
    train()

    assert not np.array_equal(weight.numpy(), before)
    for number in (1, 2):
        assert np.array_equal(variables.of_replica(weight, number).numpy(), weight.numpy())


@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
def test_a_graph_of_the_host_writes_under_one_name(method: str) -> None:
    """An op's whole name, as Keras gives one to running statistics, is that of the first replica's write."""
    variable = variables.replicated(tf.Variable(1.0))
    for number in (1, 2):
        variable._other(number)

    @tf.function
    def write() -> None:
        getattr(variable, method)(3.0, name="statistics/")

    write()

    expected = {"assign": 3.0, "assign_add": 4.0, "assign_sub": -2.0}[method]
    values = [variable._other(number).numpy() for number in (1, 2)]
    assert [variable.numpy(), *values] == [expected] * 3


@pytest.fixture
def handed_on() -> Iterator[Any]:
    """A graph in which two replicas train a weight, at the rate that its loop hands on: a run at a rate, the weight."""
    from tensorflow.python import ipu

    v1 = tf.compat.v1
    configuration = ipu.config.IPUConfig()
    configuration.auto_select_ipus = 2
    configuration.configure_ipu_system()

    def body(rate: Any) -> Any:
        weight = v1.get_variable("weight", initializer=1.0, use_resource=True)
        inner = ipu.optimizers.MapGradientOptimizer(v1.train.MomentumOptimizer(rate, 0.5), lambda g, _: 3 * g)
        opt = ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(inner, 4)
        with tf.control_dependencies([opt.minimize(weight * 2)]):
            return tf.identity(rate)

    with tf.Graph().as_default():
        rate = v1.placeholder(tf.float32, [])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            trained = ipu.ipu_compiler.compile(lambda start: ipu.loops.repeat(8, body, [start]), [rate])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            yield lambda value: session.run(trained, {rate: value}), lambda: session.run(v1.global_variables()[0])


def test_an_update_takes_a_rate_that_the_loop_hands_on(handed_on: Any) -> None:
    """Every run of the loop updates twice, with momentum, at the rate that it was given."""
    run, weight = handed_on
    expected, velocity = 1.0, 0.0
    for rate in (2.0**-6, 2.0**-8):
        run(rate)
        for _ in range(2):
            velocity = velocity / 2 + 4 * 3 * 2.0
            expected -= rate * velocity

    assert weight() == expected


def test_the_host_holds_the_values_of_all_replicas(handed_on: Any) -> None:
    """TensorFlow warns of each that is asked of a device that it does not have."""
    run, _ = handed_on
    run(0.5)
    handles = [op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == "VarHandleOp"]

    assert sum("replica_1" in op.name for op in handles) == 2
    assert {op.device for op in handles} == {"/device:CPU:0"}
