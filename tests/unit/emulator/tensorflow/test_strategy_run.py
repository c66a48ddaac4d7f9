"""How a strategy builds one graph of all replicas: placement, iterators, loops and functions inside functions."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any, Callable, Iterator, Set

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.core.topology import power_of_two
from ipu_conformance.emulator.tensorflow.compile import shards


@pytest.fixture
def strategy(tf: Any) -> Iterator[Any]:
    """A strategy on four IPUs."""
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    yield ipu.ipu_strategy.IPUStrategy()
    ipu.utils.reset_ipu_configuration()


def total(value: Any) -> Any:
    """The sum over all replicas."""
    from ipu_conformance.emulator.tensorflow.run import collectives

    return collectives.all_reduce(value)


@given(st.integers(1, 64), st.sets(st.integers(0, 15)))
def test_replicas_fill_the_device(ipus: int, named: Set[int]) -> None:
    """Each replica takes a power of two of IPUs that holds the highest named one; a rest is refused."""
    size = power_of_two(max(named, default=0) + 1)
    if ipus % size:
        with pytest.raises(shards.ShardError, match=f"requires a multiple of {size} IPUs"):
            shards.replicas(ipus, named)
    else:
        assert shards.replicas(ipus, named) * size == ipus


def test_what_is_noted_belongs_to_its_block_and_thread() -> None:
    """A block knows what was noted inside of it, in blocks inside of it too, and nothing of other threads."""
    with shards.noted() as outer:
        shards.note(0)
        with shards.noted() as inner:
            shards.note(3)
            thread = threading.Thread(target=shards.note, args=(7,))
            thread.start()
            thread.join()
    shards.note(5)

    assert (outer, inner) == ({0, 3}, {3})


@pytest.mark.parametrize(("highest", "replicas"), [(0, 4), (1, 2), (2, 1), (3, 1)])
def test_a_program_on_several_ipus_has_fewer_replicas(tf: Any, strategy: Any, highest: int, replicas: int) -> None:
    """A function that names an IPU of its replica leaves the device fewer replicas."""

    @tf.function
    def count() -> Any:
        shards.note(highest)
        return total(tf.constant(1.0))

    assert float(strategy.run(count)) == replicas
    assert float(tf.function(lambda: strategy.run(count))()) == replicas


def test_a_program_that_does_not_fit_is_refused(tf: Any, strategy: Any) -> None:
    """A function that names an IPU beyond the device is refused with the numbers."""

    @tf.function
    def far() -> Any:
        shards.note(4)
        return tf.constant(1.0)

    with pytest.raises(ValueError, match="has 4 IPUs attached, however the current model requires a multiple of 8"):
        strategy.run(far)


@pytest.mark.parametrize("inside", [False, True])
def test_replicas_meet_inside_loops_and_functions(tf: Any, strategy: Any, inside: bool) -> None:
    """Replicas reduce inside a loop, and inside a function that the loop calls."""
    iterator = iter(tf.data.Dataset.range(100))
    reduce = tf.function(total) if inside else total

    @tf.function
    def loop(elements: Any) -> Any:
        result = tf.constant(0, tf.int64)
        for step in tf.range(3):
            result += reduce(next(elements)) * tf.cast(step + 1, tf.int64)
        return result

    expected = sum((step + 1) * sum(range(4 * step, 4 * step + 4)) for step in range(3))

    assert int(strategy.run(loop, args=(iterator,))) == expected


def test_loops_in_loops(tf: Any, strategy: Any) -> None:
    """Replicas meet in a loop inside a loop, and each counts for itself in a loop where they do not."""
    iterator = iter(tf.data.Dataset.range(1, 100))

    @tf.function
    def nested(elements: Any) -> Any:
        result = tf.constant(0, tf.int64)
        for _ in tf.range(2):
            for _ in tf.range(2):
                own = next(elements)
                doubled = own
                while doubled < 100:
                    doubled *= 2
                result += total(doubled)
        return result

    def doubled(value: int) -> int:
        return value if value >= 100 else doubled(2 * value)

    assert int(strategy.run(nested, args=(iterator,))) == sum(doubled(value) for value in range(1, 17))


def gradient_of_loop(tf: Any, step: Callable[[Any, Any], Any]) -> Any:
    """The gradient through a loop of three steps, each of the result so far and the value."""

    @tf.function
    def gradient(value: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(value)
            result = value
            for _ in tf.range(3):
                result = step(result, value)
        return tape.gradient(result, value)

    return gradient


def test_a_loop_of_ones_own_keeps_its_gradient(tf: Any, strategy: Any) -> None:
    """A loop in which replicas do not meet is differentiated as ever."""
    gradient = gradient_of_loop(tf, lambda result, value: result * value)

    assert float(strategy.run(gradient, args=(tf.constant(2.0),))) == 4 * 2.0**3


def test_a_shared_loop_under_a_tape_is_refused(tf: Any, strategy: Any) -> None:
    """A gradient through a loop in which replicas meet would be lost, so it is refused."""
    gradient = gradient_of_loop(tf, lambda result, value: total(result))

    with pytest.raises(Exception, match="GradientTape"):
        strategy.run(gradient, args=(tf.constant(2.0),))


def test_a_stock_loop_of_one_variable(tf: Any, strategy: Any) -> None:
    """tf.while_loop in its first form gives one variable without a list around it."""

    @tf.function
    def loop() -> Any:
        return tf.compat.v1.while_loop(lambda value: value < 50.0, lambda value: total(value), [tf.constant(1.0)])

    assert float(strategy.run(loop)) == 64.0


@pytest.mark.parametrize("autograph", [True, False])
def test_functions_keep_their_own_conversion(tf: Any, strategy: Any, autograph: bool) -> None:
    """A function that asks not to be converted is not: a condition on a tensor is an error in it."""

    def branching(value: Any) -> Any:
        if value > 0:  # a tensor: Python itself cannot decide
            return value
        return -value

    inner = tf.function(branching, autograph=autograph)
    outer = tf.function(lambda value: inner(value))
    if autograph:
        assert float(strategy.run(outer, args=(tf.constant(-3.0),))) == 3.0
    else:
        with pytest.raises(Exception, match="symbolic"):
            strategy.run(outer, args=(tf.constant(-3.0),))


@pytest.mark.parametrize("kind", [ValueError, shards.ShardError])
def test_an_exception_of_a_replica_is_raised(tf: Any, strategy: Any, kind: Any) -> None:
    """What one replica raises reaches the caller in its own type, with the user's line, and the strategy works on."""

    @tf.function
    def wrong() -> Any:
        raise kind("lost")

    with pytest.raises(kind, match=r"(?s)in user code.*lost") as caught:
        strategy.run(wrong)
    assert type(caught.value) is kind
    assert float(strategy.run(tf.function(lambda: total(tf.constant(2.0))))) == 8.0


def test_replicas_meet_in_a_users_function_inside_a_loop(tf: Any, strategy: Any) -> None:
    """A loop that calls a function of the user's, in which replicas meet, is shared."""

    @tf.function
    def step(value: Any) -> Any:
        if value > 1000.0:
            value = value - 1000.0
        return total(value)

    @tf.function
    def loop() -> Any:
        value = tf.constant(1.0)
        for _ in tf.range(3):
            value = step(value)
        return value

    assert float(strategy.run(loop)) == 4.0**3


def test_a_function_is_built_for_the_configuration_in_force(tf: Any, strategy: Any) -> None:
    """After another configuration the same function runs on as many replicas as there are then."""
    from tensorflow.python import ipu

    count = tf.function(lambda: total(tf.constant(1.0)))
    before = float(strategy.run(count))
    ipu.utils.reset_ipu_configuration()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()

    assert [before, float(strategy.run(count))] == [4.0, 2.0]


def test_a_compiled_function_is_forgotten_with_its_function(tf: Any, strategy: Any) -> None:
    """What is compiled does not keep the user's function, or what it refers to, alive."""
    from ipu_conformance.emulator.tensorflow.run import strategy_run

    gc.collect()
    before = len(strategy_run._COMPILED)
    strategy.run(tf.function(lambda: total(tf.constant(1.0))))
    gc.collect()

    assert len(strategy_run._COMPILED) == before


def test_keyword_iterators_are_shared_too(tf: Any, strategy: Any) -> None:
    """An iterator that is passed by name is taken from in turns as well, and knows its elements' type."""
    iterator = iter(tf.data.Dataset.range(100))

    @tf.function
    def taken(*, elements: Any) -> Any:
        assert elements.element_spec == tf.TensorSpec([], tf.int64)
        first, second = next(elements), elements.get_next()
        return total(first), total(second)

    results = strategy.run(taken, kwargs={"elements": iterator})

    np.testing.assert_array_equal(results, [sum(range(4)), sum(range(4, 8))])


def test_a_restored_variable_reaches_every_replica(tf: Any, strategy: Any, tmp_path: Path) -> None:
    """After a restore all replicas go on from the restored value."""
    with strategy.scope():
        variable = tf.Variable(5.0)
    saved = tf.train.Checkpoint(variable=variable).save(str(tmp_path / "checkpoint"))

    @tf.function
    def double() -> Any:
        variable.assign(variable * 2.0)
        return total(variable.read_value())

    first = float(strategy.run(double))
    second = float(strategy.run(double))
    tf.train.Checkpoint(variable=variable).restore(saved)

    assert [first, second, float(strategy.run(double))] == [4 * 10.0, 4 * 20.0, 4 * 10.0]


@pytest.mark.parametrize("asked", [True, None])
def test_what_a_function_compiles_to_can_be_asked(tf: Any, strategy: Any, asked: Any) -> None:
    """A function that asks for XLA still shows its HLO, though it runs without; any other is refused as ever."""
    function = tf.function(lambda value: value * 2.0, jit_compile=asked)
    if asked:
        assert "multiply" in function.experimental_get_compiler_ir(tf.constant(1.0))(stage="hlo")
    else:
        with pytest.raises(ValueError, match="jit_compile"):
            function.experimental_get_compiler_ir(tf.constant(1.0))
    assert float(strategy.run(function, args=(tf.constant(3.0),))) == 6.0


def test_the_host_holds_variables(tf: Any) -> None:
    """Operations ask for the device and variables for the host, so that no session warns of moving them."""
    from ipu_conformance.emulator.tensorflow.compile import scopes

    with tf.Graph().as_default(), scopes.ipu_scope("/device:IPU:1"):
        weight = tf.compat.v1.get_variable("weight", [2])
        product = weight * 2.0

    assert weight.handle.device == "/device:CPU:0"
    assert product.device == "/device:IPU:1"


def test_a_device_that_is_named_inside_stays(tf: Any) -> None:
    """An inner device comes before that of the scope, for variables too."""
    from ipu_conformance.emulator.tensorflow.compile import scopes

    with tf.Graph().as_default(), scopes.ipu_scope("/device:IPU:1"), tf.device("/device:CPU:3"):
        weight = tf.compat.v1.get_variable("weight", [2])

    assert weight.handle.device == "/device:CPU:3"
