"""Layers without a name of their own are numbered through a graph: each has a weight of its own.

The vendor builds stages, bodies of loops and outlined functions as functions of the graph, in which the numbers of
layers count on.
"""

from __future__ import annotations

from typing import Any, List

import numpy as np
import pytest

from ipu_conformance import check

PRIMES = (2.0, 3.0, 5.0, 7.0, 11.0, 13.0)


def _layer(tf: Any, x: Any) -> Any:
    """Multiplies by a weight, and adds 1."""
    v1 = tf.compat.v1
    with v1.variable_scope(None, default_name="layer"):
        return x * v1.get_variable("w", [], initializer=v1.ones_initializer()) + 1.0


def _values(order: List[int]) -> np.float32:
    """What 1 becomes in layers with these of the primes."""
    value = 1.0
    for number in order:
        value = value * PRIMES[number] + 1.0
    return np.float32(value)


def _programs(tf: Any, ipu: Any, kind: str) -> Any:
    """Programs of one input that apply layers, and the order in which their weights are met, counted in the graph."""
    layer = lambda x: _layer(tf, x)  # noqa: E731
    outlined = ipu.outlined_function(layer)
    repeat = ipu.loops.repeat
    return {
        "loops": ([lambda x: layer(repeat(3, layer, [repeat(2, layer, [x])]))], [[0, 0, 1, 1, 1, 2]]),
        "outlined": ([lambda x: outlined(layer(outlined(x)))], [[0, 1, 2]]),
        "compiled": ([lambda x: layer(layer(x)), lambda x: layer(x), lambda x: layer(layer(x))], [[0, 1], [2], [3, 4]]),
    }[kind]


def _weights(tf: Any, session: Any) -> None:
    """Give every weight its prime; there is one for each number, and no other variable."""
    v1 = tf.compat.v1
    made = [variable.name for variable in v1.global_variables()]
    expected = ["layer/w:0", *(f"layer_{number}/w:0" for number in range(1, len(made)))]
    check.equal(actual=sorted(made), expected=sorted(expected), what="the variables")
    for prime, name in zip(PRIMES, expected):
        next(variable for variable in v1.global_variables() if variable.name == name).load(prime, session)


@pytest.mark.parametrize("ipus", [1, 4])
@pytest.mark.parametrize("kind", ["loops", "outlined", "compiled"])
def test_layers_are_numbered_through_a_graph(tf: Any, ipu: Any, configure: Any, kind: str, ipus: int) -> None:
    """Loops, outlined functions and programs that are compiled one after the other do not share weights."""
    configure(ipus)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        programs, orders = _programs(tf, ipu, kind)
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            compiled = [ipu.ipu_compiler.compile(program, [tf.constant(1.0)]) for program in programs]
        session.run(tf.compat.v1.global_variables_initializer())
        _weights(tf, session)
        results = np.ravel([session.run(one) for one in compiled])

    check.identical(actual=results, expected=np.asarray([_values(order) for order in orders]), what="the results")


@pytest.mark.parametrize("ipus", [4, 8])
def test_stages_number_their_layers(tf: Any, ipu: Any, configure: Any, ipus: int) -> None:
    """The layers of a later stage count on from those of the stages before, however often a stage is built."""
    configure(ipus)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32(1)).repeat())
        out = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        layer = lambda x: _layer(tf, x)  # noqa: E731
        stages = [layer, lambda x: layer(layer(x)), lambda x: x + 0.0, layer]

        def program() -> Any:
            return ipu.pipelining_ops.pipeline(stages, 4, infeed_queue=queue, outfeed_queue=out)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu.ipu_compiler.compile(program)
        taken = out.dequeue()
        session.run([queue.initializer, tf.compat.v1.global_variables_initializer()])
        _weights(tf, session)
        session.run(compiled)
        results = np.ravel(session.run(taken))

    check.identical(actual=results, expected=np.full(ipus, _values([0, 1, 2, 3])), what="the results")
