"""Executes the dump of a training with the oracle's functions: a record of the run as the dump tells it."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check, frameworks, interpreter, notes
from ipu_conformance.frameworks import orient
from ipu_conformance.interpreter import ExecutionError, Outcome
from ipu_conformance.ir import Graph
from ipu_conformance.nets import Data, Net
from ipu_conformance.oracle.training.outputs import returned
from ipu_conformance.oracle.training.schedules import rate
from ipu_conformance.run import Array, RunConfig, RunRecord

from . import whole_runs

Axes = Mapping[str, Tuple[int, ...]]
SEED = "Gradient___"
"""What PopART calls the gradient of a tensor: that of the loss is the loss scale."""
COUNTER = "num_batches_tracked"
"""How often a batch norm of torch was trained: nothing is computed from it."""
STATE = (SEED, "Acc", "Step___")
"""How names begin of what a training adds: the gradient of the loss, accumulators and the optimizer's state."""
SQUARES = "Accl1___"
"""PopART's name for the mean or the sum of squared gradients; Adagrad says what it begins with."""
THROUGH = frozenset(
    ("Cast", "Flatten", "Identity", "IpuCopy", "Log", "LogSoftmax", "Nll", "ReduceMean", "ReduceSum", "Reshape",
     "Softmax", "Squeeze", "Transpose", "Unsqueeze")
)  # fmt: skip
"""What may stand between a net's output and its loss."""


def dump_of(record: RunRecord, net: Net) -> Optional[Graph]:
    """The compiled program that the target has shown, or the function that the framework gives to a compiler."""
    if record.ir is not None:
        return record.ir() if callable(record.ir) else record.ir
    given = getattr(frameworks.load(record.framework), "dump", None)
    return None if given is None else given(net, record.config)


def told(record: RunRecord, net: Net, data: Data, engine: str = "oracle", kept: Optional[Array] = None) -> RunRecord:
    """The record as its dump tells it; a dump that cannot be executed is a failure, one that is not shown a skip."""
    __tracebackhide__ = True
    dump = shown(dump_of(record, net))
    with executable():
        return executed(record, dump, net, data, engine, kept)


def shown(dump: Optional[Graph]) -> Graph:
    """A dump; where the target shows none, the case is skipped."""
    if dump is None:
        pytest.skip(f"{notes.NOT_SHOWN}its compiled program")
    return dump


@contextlib.contextmanager
def executable() -> Iterator[None]:
    """Fails where a dump cannot be executed."""
    __tracebackhide__ = True
    problem = None
    try:
        yield
    except ExecutionError as error:
        problem = str(error)
    check.holds(problem is None, f"the dump cannot be executed: {problem}")


def executed(
    record: RunRecord, graph: Graph, net: Net, data: Data, engine: str = "oracle", kept: Optional[Array] = None
) -> RunRecord:
    """The record of a run as the graph of its dump tells it: losses, outputs and, after a training, the weights.

    Every Dropout keeps what ``kept`` says: step, device iteration, accumulation, replica, sample, position.
    """
    config = record.config
    driver = frameworks.load(record.framework)
    if record.framework == "tensorflow" and record.ir is not None:
        return whole_runs.executed(record, graph, net, data, driver, kept)
    axes: Axes = getattr(driver, "AXES", {})
    loss, logits = _ends(graph)
    given = {**_held(graph, net, config, axes), **_streams(graph, net, data, config, driver), **_masks(graph, kept)}
    outcome = interpreter.execute(
        graph,
        given,
        engine=engine,
        schedule=config.schedule,
        fetches=[name for name in (loss, logits) if name],
        rates=_rates(config),
    )
    held = outcome.variables[0]
    return RunRecord(
        config,
        net.name,
        tuple(_steps(outcome, loss, config)) if loss else (),
        tuple(_classes_first(step, record, net) for step in _steps(outcome, logits, config)),
        weights={each.name: orient(net, each.name, held[each.name], axes, back=True) for each in net.weights}
        if config.training
        else None,
        framework=record.framework,
        target="dump",
    )


class Told(NamedTuple):
    """What a workload's dump tells: losses and outputs with axes for updates, turns of an update and replicas."""

    losses: Array
    outputs: Array
    variables: Mapping[str, Array]
    """What the first replica holds at the end."""


def told_by(
    graph: Optional[Graph], held: Mapping[str, Array], fed: Sequence[Array], counts: Tuple[int, int, int], **how: Any
) -> Told:
    """What the dump of a workload's training or inference tells; an inference has no losses. The report keeps the dump.

    ``held`` are the values at the start, ``fed`` all samples and all labels in the order in which they are taken.
    """
    __tracebackhide__ = True
    graph = shown(graph)
    frameworks.keep_ir(graph)
    free = [name for name in graph.inputs if not name.startswith(STATE) and name not in held]
    streams = {name: value.reshape((*counts, *(graph.tensors[name].shape or ()))) for name, value in zip(free, fed)}
    known = {name: value for name, value in held.items() if name in graph.tensors}
    ends = _ends(graph)
    with executable():
        outcome = interpreter.execute(graph, {**known, **streams}, fetches=[name for name in ends if name], **how)
    losses, outputs = (outcome.outputs[name] if name else np.zeros(counts) for name in ends)
    return Told(losses, outputs, outcome.variables[0])


def _classes_first(outputs: Array, record: RunRecord, net: Net) -> Array:
    """Scores with their classes before the axes of an image, which TensorFlow has before them."""
    return np.moveaxis(outputs, -1, -1 - len(net.label_shape)) if record.framework == "tensorflow" else outputs


def _rates(config: RunConfig) -> Optional[List[float]]:
    """The learning rate of every update as a share of the last one, which a dump holds; None if all are the same."""
    if not config.training or config.learning_rate.name == "constant":
        return None
    steps = [rate(config.learning_rate, step) for step in range(config.steps)]
    return [each / steps[-1] for each in steps for _ in range(config.device_iterations)]


def _ends(graph: Graph) -> Tuple[str, str]:
    """The names of the loss, empty for inference, and of the net's output."""
    loss = name = loss_of(graph)
    if not loss:  # a function that trains returns both
        return ("", graph.outputs[0]) if len(graph.outputs) == 1 else (graph.outputs[0], graph.outputs[1])
    while name in graph.producers and graph.producers[name].type in THROUGH:
        name = graph.producers[name].inputs[0]
    return loss, name


def loss_of(graph: Graph) -> str:
    """The tensor whose gradient is given, not computed; empty if there is none."""
    made = {name for op in graph.ops for name in op.outputs}
    seeds = [name[len(SEED) :] for name in (*graph.inputs, *graph.initializers) if name.startswith(SEED)]
    return next((name for name in seeds if name in made), "")


def _held(graph: Graph, net: Net, config: RunConfig, axes: Axes) -> Dict[str, Array]:
    """What the device holds at the start, as the framework has it."""
    values: Dict[str, Array] = {**net.initial_weights(config.seed), **net.initial_statistics()}
    held = {
        name: orient(net, name, value, axes).reshape([length or 0 for length in graph.tensors[name].shape or ()])
        for name, value in values.items()
        if name in graph.tensors
    }
    # What a dump does not carry the values of.
    for name in [*graph.inputs, *(each for each, values in graph.initializers.items() if values is None)]:
        if name.endswith(COUNTER):
            held[name] = np.asarray(0)
        elif config.training and config.optimizer.name == "adagrad" and name.startswith(SQUARES):
            shape = [length or 0 for length in graph.tensors[name].shape or ()]
            held[name] = np.full(shape, config.optimizer["initial"])
        elif name in graph.initializers and not name.startswith(STATE) and name not in held:
            # A second bias of a recurrent layer, which a net has no word for.
            held[name] = np.zeros([length or 0 for length in graph.tensors[name].shape or ()])
    return held


def _streams(graph: Graph, net: Net, data: Data, config: RunConfig, driver: Any) -> Dict[str, Array]:
    """The samples and labels of a run with axes for updates, turns and replicas, as the framework takes them."""
    free = [name for name in graph.inputs if not name.startswith(STATE)]
    named = {each.name for each in (*net.weights, *net.statistics)}
    fed = [name for name in free if name not in named and not name.endswith(COUNTER)]
    samples = driver.images(net, data.inputs) if hasattr(driver, "images") else data.inputs
    whole = {name: data.labels if name in fed[1:] else samples for name in fed}
    counts = (config.steps * config.device_iterations, config.gradient_accumulation, config.replicas)
    return {name: value.reshape((*counts, *(graph.tensors[name].shape or ()))) for name, value in whole.items()}


def _masks(graph: Graph, kept: Optional[Array]) -> Dict[str, Array]:
    """The mask of every Dropout that drops."""
    if kept is None:
        return {}
    streams = kept.reshape((-1, *kept.shape[2:]))
    return {f"{op.outputs[0]}:kept": streams for op in graph.ops if op.type == "Dropout"}


def _steps(outcome: Outcome, name: str, config: RunConfig) -> Tuple[Array, ...]:
    """A value for every step, in the form in which the framework returns it."""
    values = outcome.outputs[name]
    each = values.reshape((config.steps, config.device_iterations, *values.shape[1:]))
    return tuple(returned(step, config) for step in each)
