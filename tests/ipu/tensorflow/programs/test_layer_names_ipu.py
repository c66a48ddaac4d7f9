"""Layers without a name of their own are numbered through a graph: each has a weight of its own.

The vendor builds stages, bodies of loops and outlined functions as functions of the graph, in which the numbers of
layers count on.
"""

from __future__ import annotations

import functools
from typing import Any, List

import numpy as np
import pytest

from ipu_conformance import check

from ..device_programs import Device

PRIMES = (2.0, 3.0, 5.0, 7.0, 11.0, 13.0)


def _layer(tf: Any, x: Any) -> Any:
    """Multiplies by a weight, and adds 1."""
    v1 = tf.compat.v1
    with v1.variable_scope(None, default_name="layer"):
        return x * v1.get_variable("w", [], initializer=v1.ones_initializer()) + 1.0


def _values(order: List[int]) -> np.float32:
    """What 1 becomes in layers with these of the primes."""
    return np.float32(functools.reduce(lambda value, number: value * PRIMES[number] + 1.0, order, 1.0))


def _programs(tf: Any, ipu: Any, kind: str) -> Any:
    """Programs of one input that apply layers, and the order in which their weights are met, counted in the graph."""
    layer, repeat = functools.partial(_layer, tf), ipu.loops.repeat
    outlined = ipu.outlined_function(layer)
    return {
        "loops": ([lambda x: layer(repeat(3, layer, [repeat(2, layer, [x])]))], [[0, 0, 1, 1, 1, 2]]),
        "outlined": ([lambda x: outlined(layer(outlined(x)))], [[0, 1, 2]]),
        "compiled": ([lambda x: layer(layer(x)), lambda x: layer(x), lambda x: layer(layer(x))], [[0, 1], [2], [3, 4]]),
    }[kind]


def _weights(graph: Device) -> None:
    """Give every weight its prime; there is one for each number, and no other variable."""
    made = {variable.name: variable for variable in graph.tf.compat.v1.global_variables()}
    expected = ["layer/w:0", *(f"layer_{number}/w:0" for number in range(1, len(made)))]
    check.equal(actual=sorted(made), expected=sorted(expected), what="the variables")
    for prime, name in zip(PRIMES, expected):
        made[name].load(prime, graph.session)


@pytest.mark.parametrize("ipus", [1, 4])
@pytest.mark.parametrize("kind", ["loops", "outlined", "compiled"])
def test_layers_are_numbered_through_a_graph(tf: Any, graph: Device, kind: str, ipus: int) -> None:
    """Loops, outlined functions and programs that are compiled one after the other do not share weights."""
    programs, orders = _programs(tf, graph.open(ipus).ipu, kind)
    with graph.ipu.scopes.ipu_scope("/device:IPU:0"):
        compiled = [graph.ipu.ipu_compiler.compile(program, [tf.constant(1.0)]) for program in programs]
    _weights(graph)
    results = np.ravel([graph.session.run(one) for one in compiled])

    check.identical(actual=results, expected=np.asarray([_values(order) for order in orders]), what="the results")


@pytest.mark.parametrize("ipus", [4, 8])
def test_stages_number_their_layers(tf: Any, graph: Device, ipus: int) -> None:
    """The layers of a later stage count on from those of the stages before, however often a stage is built."""
    queues = {"infeed_queue": graph.open(ipus).infeed(np.ones(ipus, np.float32)), "outfeed_queue": graph.outfeed()}
    layer = functools.partial(_layer, tf)
    stages = [layer, lambda x: layer(layer(x)), lambda x: x + 0.0, layer]
    go = graph.compile(lambda: graph.ipu.pipelining_ops.pipeline(stages, 4, **queues))
    _weights(graph)
    go()

    results = np.ravel(graph.dequeue(queues["outfeed_queue"]))
    check.identical(actual=results, expected=np.full(ipus, _values([0, 1, 2, 3])), what="the results")
