"""Executes the dump of a run that is one function: all micro-batches and replicas of an update, and the update.

Its inputs are the elements of the data set in their order, its outputs the logs of the model in the order of their
names. A variable has a value for each replica: that of replica 1 is called ``name@1``.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ipu_conformance import interpreter
from ipu_conformance.frameworks import orient
from ipu_conformance.ir import Graph
from ipu_conformance.nets import Data, Net
from ipu_conformance.oracle.training.schedules import rate
from ipu_conformance.run import Array, RunConfig, RunRecord, Weights

RATE, DRAWING = "learning_rate", "tensorflow::RandomUniform"
SQUARES = "accumulator/"
"""Adagrad's sum of squares, the only state that does not begin with zeros."""


def executed(
    record: RunRecord, graph: Graph, net: Net, data: Data, driver: Any, kept: Optional[Array] = None
) -> RunRecord:
    """The record of a training as the function of its runs tells it; every dropout keeps what ``kept`` says."""
    config, axes = record.config, driver.AXES
    given = {
        **_held(graph, net, config, axes),
        **_elements(graph, driver.images(net, data.inputs), data.labels, config),
        **({} if kept is None else _masks(graph, kept)),
    }
    outcome = interpreter.execute(graph, given)
    logits, _, losses = (outcome.outputs[name][:, 0, 0] for name in graph.outputs[:3])
    held = outcome.variables[0]
    replicas = [_read(net, held, f"@{r}" if r else "", axes) for r in range(config.replicas)]
    return RunRecord(
        config,
        net.name,
        _steps(losses[..., 0], config),
        _steps(np.moveaxis(logits, -1, -1 - len(net.label_shape)), config),
        weights=replicas[0],
        weights_by_replica=tuple(replicas),
        framework=record.framework,
        target="dump",
    )


def _elements(graph: Graph, samples: Array, labels: Array, config: RunConfig) -> Dict[str, Array]:
    """A stream of updates for every input: the samples and the labels of each element, one element after the other."""
    count = len(graph.inputs) // 2
    parts = (samples, labels)
    streams: Dict[str, Array] = {}
    for number, name in enumerate(graph.inputs):
        whole, shape = parts[number % 2], graph.tensors[name].shape or ()
        shaped = whole.reshape((config.steps * config.device_iterations, count, *shape))
        streams[name] = shaped[:, number // 2]
    return streams


def _masks(graph: Graph, kept: Array) -> Dict[str, Array]:
    """What is drawn for every dropout: that of the element that it meets first, as ones and zeros."""
    element: Dict[str, int] = {name: number // 2 for number, name in enumerate(graph.inputs)}
    waiting: Dict[str, List[str]] = {}
    """By tensor, the draws that it follows from, until they meet an element."""
    met: Dict[str, int] = {}
    for op in graph.ops:
        draws = [draw for name in op.inputs for draw in waiting.get(name, ())]
        draws += op.outputs if op.type == DRAWING else ()
        numbers = [element[name] for name in op.inputs if name in element]
        for name in op.outputs:
            if numbers:
                element[name] = numbers[0]
            elif draws:
                waiting[name] = draws
        if numbers:
            met.update((draw, numbers[0]) for draw in draws if draw not in met)
    steps, iterations, accumulation, replicas, *shape = kept.shape
    streams = kept.reshape(steps * iterations, accumulation * replicas, *shape)
    return {f"{name}:kept": streams[:, number] for name, number in met.items()}


def _held(graph: Graph, net: Net, config: RunConfig, axes: Mapping[str, Tuple[int, ...]]) -> Dict[str, Array]:
    """What the replicas hold at the start, and the learning rate that the host sets before each step."""
    start: Dict[str, Array] = {**net.initial_weights(config.seed), **net.initial_statistics()}
    rates = [rate(config.learning_rate, step if config.rate_changes == "run" else 0) for step in range(config.steps)]
    held: Dict[str, Array] = {}
    for name in (each for each, values in graph.initializers.items() if values is None):
        own = name.split("@")[0]
        shape = graph.tensors[name].shape or ()
        if own in start:
            held[name] = orient(net, own, start[own], axes).reshape(shape)
        elif own == RATE:
            held[name] = np.repeat(np.array(rates), config.device_iterations)
        else:
            first = config.optimizer["initial"] if SQUARES in own else 0.0
            held[name] = np.full(shape, first)
    return held


def _read(net: Net, held: Mapping[str, Array], suffix: str, axes: Mapping[str, Tuple[int, ...]]) -> Weights:
    """The weights that a replica holds, in the net's orientation."""
    shapes = {each.name: np.empty(each.shape) for each in net.weights}
    like = {name: orient(net, name, value, axes).shape for name, value in shapes.items()}
    return {name: orient(net, name, held[name + suffix].reshape(like[name]), axes, back=True) for name in like}


def _steps(values: Array, config: RunConfig) -> Tuple[Array, ...]:
    """What callbacks see of every step: what all its runs returned, or the last one."""
    each = values.reshape((config.steps, config.device_iterations, *values.shape[1:]))
    if config.output_mode == "final":
        return tuple(step[-1] for step in each)
    return tuple(step.reshape((-1, *step.shape[2:])) for step in each)
