"""Runs of a workload, and their programs executed with the oracle's functions: what they make of its data.

A program takes the elements of the data set in their order, and is executed until all are taken.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check, frameworks, interpreter, notes
from ipu_conformance.interpreter import ExecutionError, Outcome
from ipu_conformance.ir import Graph
from ipu_conformance.oracle.tolerance.runs import ArrayTolerance

RATE, METRICS = "learning_rate", ("total", "count")
Elements = Sequence[Tuple[np.ndarray, ...]]
Held = Mapping[str, np.ndarray]
Told = Tuple[np.ndarray, Held]
"""The losses of epochs and the variables at the end."""
Reference = Sequence[Tuple[np.ndarray, ArrayTolerance]]
"""Losses of epochs, probabilities of the test set and final weights, each with the tolerance of a device's."""


class Watched(NamedTuple):
    """A run of a workload, and the programs that the device was given for it: to train, and to classify."""

    result: Any
    programs: Tuple[Any, ...]


def watched(train: Callable[[Callable[[Any], None]], Any]) -> Watched:
    """What ``train`` returns; it is given what looks at a model or an estimator."""
    programs: List[Any] = []
    result = train(lambda ran: programs.append(frameworks.ir("tensorflow", ran)))
    return Watched(result, tuple(programs))


def run(workload: str, settings: Any) -> Watched:
    """A run of a workload on the device, with its programs."""
    train = importlib.import_module(f"ipu_conformance.workloads.{workload}.training").train
    return watched(lambda watch: train(settings, native=False, watch=watch))


def remembered(workload: str) -> Callable[[Any], Watched]:
    """Runs on the device, one for all cases that only look at it."""
    return functools.lru_cache(maxsize=None)(functools.partial(run, workload))


class Data(NamedTuple):
    """What a run begins with and takes: initial weights, batches in their order, and test images."""

    initial: List[np.ndarray]
    batches: List[Tuple[np.ndarray, np.ndarray]]
    tests: np.ndarray


def taken(workload: str, settings: Any, updates: int) -> Data:
    """The data of so many updates, from the workload without a device."""
    job = importlib.import_module(f"ipu_conformance.workloads.{workload}.training").job_of(settings)
    sets = importlib.import_module("ipu_conformance.workloads.keras.data")
    batches = sets.training_set(job.data.train, settings.batch_size, settings.seed).take(updates)
    ((tests, _),) = sets.test_set(job.data.test, settings.test_size).as_numpy_iterator()
    weights = [np.array(value) for value in job.build().get_weights()]
    importlib.import_module("tensorflow").keras.backend.clear_session()
    return Data(weights, list(batches.as_numpy_iterator()), tests)


def check_near(actual: Any, reference: Tuple[np.ndarray, ArrayTolerance], what: str) -> None:
    """What the device gives is that of the reference."""
    __tracebackhide__ = True
    expected, tolerance = reference
    check.close(actual=np.asarray(actual), expected=expected, tolerance=tolerance, what=what)


def check_run(result: Any, names: Sequence[str], reference: Reference) -> None:
    """A run has the losses, probabilities and weights of the reference."""
    __tracebackhide__ = True
    whats = ["the loss of each epoch", "the probabilities of the test set", *(f"the {name}" for name in names)]
    for what, value, each in zip(whats, [result.losses, result.probabilities, *result.weights], reference):
        check_near(value, each, what)


def check_told(result: Any, told: Told, testing: Graph, tests: np.ndarray, names: List[str], noise: Reference) -> None:
    """A run has the losses and weights that its program has told, and the probabilities of its program of tests."""
    __tracebackhide__ = True
    losses, end = told
    classified = executed(testing, {name: end[name] for name in names}, [(each,) for each in tests])
    values = [losses, classified.outputs[left_by(testing)[0]], *(end[name] for name in names)]
    pairs = [(np.reshape(value, exact.shape), allowed) for value, (exact, allowed) in zip(values, noise)]
    check_run(result, names, pairs)


def graph_of(program: Any) -> Graph:
    """The graph of a program; where the target shows none, the case is skipped."""
    if program is None:
        pytest.skip(f"{notes.NOT_SHOWN}its compiled program")
    graph: Graph = program() if callable(program) else program
    return graph


def graphs_of(ran: Watched) -> Tuple[Graph, ...]:
    """The graphs of a workload's programs, which the report keeps."""
    graphs = tuple(graph_of(program) for program in ran.programs)
    for graph in graphs:
        frameworks.keep_ir(graph)
    return graphs


def left_by(graph: Graph) -> List[str]:
    """What a program returns, or leaves for the host in an outfeed: every output that is not a variable's new value."""
    assigned = {op.outputs[0] for op in graph.ops if "Assign" in op.type or "Apply" in op.type}
    return [name for name in graph.outputs if name not in assigned]


def weights_of(graph: Graph) -> List[str]:
    """The names of a network's weights in their order."""
    return [name for name in graph.initializers if name.endswith(("/kernel", "/bias")) and "/" not in _layer(name)]


def _layer(name: str) -> str:
    return name.rpartition("/")[0]


def shared(batches: Elements, size: int) -> Elements:
    """Batches in parts of a size, one after the other: what replicas and micro-batches take of them."""
    images, labels = (np.concatenate([batch[part] for batch in batches]) for part in (0, 1))
    return list(zip(images.reshape(-1, size, *images.shape[1:]), labels.reshape(-1, size)))


def executed(graph: Graph, held: Held, elements: Elements) -> Outcome:
    """A program on all elements; what it holds and is not given begins with zeros, on every replica alike."""
    __tracebackhide__ = True
    outcome, problem = None, ""
    try:
        outcome = interpreter.execute(graph, {**_start(graph, held), **_streams(graph, elements)})
    except ExecutionError as error:
        problem = str(error)
    check.holds(outcome is not None, f"the dump cannot be executed: {problem}")
    assert outcome is not None
    return outcome


def epochs(graph: Graph, held: Held, elements: Elements, count: int) -> Iterator[Outcome]:
    """A program of Keras, epoch by epoch: each begins with the variables of the one before, and with empty metrics."""
    size = len(elements) // count
    for number in range(count):
        outcome = executed(graph, held, elements[number * size : (number + 1) * size])
        held = {name: value for name, value in outcome.variables[0].items() if not name.startswith(METRICS)}
        yield outcome


def _start(graph: Graph, held: Held) -> Dict[str, np.ndarray]:
    """A value for every variable: that of its own name, or of the replica's variable."""
    names = [name for name, value in graph.initializers.items() if value is None]
    return {name: held[name] if name in held else _first(graph, name, held) for name in names}


def _first(graph: Graph, name: str, held: Held) -> np.ndarray:
    shape = [length or 0 for length in graph.tensors[name].shape or ()]
    return np.asarray(held.get(name.split("@")[0], np.zeros(shape)))


def _streams(graph: Graph, elements: Elements) -> Dict[str, np.ndarray]:
    """For every input its part of every element that it takes: images and labels are outputs 0 and 1 of one node.

    A program that classifies takes labels, too, and does not read them.
    """
    read = {name for op in graph.ops for name in op.inputs}
    nodes = list(dict.fromkeys(name.partition(":")[0] for name in graph.inputs))
    check.equal(actual=len(elements) % len(nodes), expected=0, what="the elements that no execution takes")
    streams: Dict[str, np.ndarray] = {}
    for name in graph.inputs:
        node, _, part = name.partition(":")
        own = elements[nodes.index(node) :: len(nodes)]
        unread = np.zeros((len(own), *(length or 0 for length in graph.tensors[name].shape or ())))
        streams[name] = np.stack([each[int(part or 0)] for each in own]) if name in read else unread
    return streams
