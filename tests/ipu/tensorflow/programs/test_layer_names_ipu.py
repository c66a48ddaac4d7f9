"""Variables that programs of graphs make: layers without a name of their own are numbered through a graph.

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


COUNT = 4


def piped(graph: Device, stages: List[Any], **settings: Any) -> Any:
    """What micro-batches 1, 2, 3 and 4 leave, and the names and values of the variables."""
    queue, out = graph.open(2).infeed(np.arange(1, COUNT + 1, dtype=np.int32)), graph.outfeed()
    settings.update(infeed_queue=queue, outfeed_queue=out)
    go = graph.compile(lambda: graph.ipu.pipelining_ops.pipeline(stages, **settings))
    taken = out.dequeue()
    go()
    values = {variable.name: variable for variable in graph.tf.compat.v1.global_variables()}
    return np.ravel(graph.session.run(taken)).tolist(), graph.session.run(values)


def adding(tf: Any, name: str, value: int) -> Any:
    """A stage that makes a variable of whole numbers, as programs of TensorFlow 1 do, and adds it."""
    return lambda x: x + tf.compat.v1.get_variable(name, initializer=value, use_resource=True)


@pytest.mark.parametrize("scope", ["", "inner"])
def test_stages_make_variables_of_whole_numbers(tf: Any, graph: Device, scope: str) -> None:
    """A stage that is built for several micro-batches makes its variable once, whatever the type of its first value."""
    add = adding(tf, "w", 3)

    def first(x: Any) -> Any:
        with tf.compat.v1.variable_scope(scope or tf.compat.v1.get_variable_scope()):
            return add(x)

    found = piped(graph, [first, adding(tf, "v", 5)], gradient_accumulation_count=COUNT)

    expected = [9, 10, 11, 12], {f"{scope}/w:0" if scope else "w:0": 3, "v:0": 5}
    check.equal(actual=found, expected=expected, what="what the pipeline leaves, and its variables")


@pytest.mark.emulator
def test_the_count_has_an_old_name(tf: Any, graph: Device) -> None:
    """Programs of SDK 1.x call the number of micro-batches ``pipeline_depth``."""
    found, _ = piped(graph, [adding(tf, "w", 3), adding(tf, "v", 5)], pipeline_depth=COUNT)

    check.equal(actual=found, expected=[9, 10, 11, 12], what="what the pipeline leaves")


def test_a_pipeline_that_does_not_fit_has_its_outfeed(tf: Any, graph: Device) -> None:
    """A dequeue can be built before the run; the run fails by its count, and leaves nothing."""
    stages, error = [adding(tf, "w", 3), adding(tf, "v", 5)], tf.errors.FailedPreconditionError
    with check.raises(error, match="must be a multiple of 2", what="a run of 3 micro-batches"):
        piped(graph, stages, gradient_accumulation_count=3)
