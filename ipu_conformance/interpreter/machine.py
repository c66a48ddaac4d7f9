"""Runs a graph as a device would: replicas side by side, micro-batch by micro-batch, stages in the plan's order.

Replicas run in step, and meet where gradients are reduced. In a pipeline a stage works on one micro-batch at a time,
and what it copies to another IPU arrives when the stage is done. All numbers are float64.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from ipu_conformance.interpreter import soundness
from ipu_conformance.interpreter.calls import Array, Call, ExecutionError, Table, placed
from ipu_conformance.interpreter.forward import FORWARD, MASK
from ipu_conformance.interpreter.gradients import GRADIENTS
from ipu_conformance.interpreter.inputs import DROPOUT, KEPT, UNIFORM, Feed, feed
from ipu_conformance.interpreter.recurrent import RECURRENT
from ipu_conformance.interpreter.tensorflow import ASSIGNMENTS, TENSORFLOW
from ipu_conformance.interpreter.updates import ACCUMULATORS, COUNTING, REDUCTIONS, UPDATES, at_rate
from ipu_conformance.interpreter.updates import CHANGING as UPDATING
from ipu_conformance.ir.graph import Graph, Op
from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.training.execution import slots

TABLE: Table = {
    **FORWARD,
    **GRADIENTS,
    **RECURRENT,
    **UPDATES,
    **TENSORFLOW,
    **dict.fromkeys(REDUCTIONS, lambda call: call.x),
}
"""Every op that the oracle's engine knows."""
CHANGING = {**UPDATING, **ASSIGNMENTS}
"""The ops among them that change a variable, their first input."""
NORM, STATISTICS = "BatchNormalization", slice(3, 5)
"""The op whose second and third results are its running mean and variance after it, and where it reads them."""
COUNTER = 8
"""The accumulation whose factor counts what was accumulated before."""

Values = Dict[str, Array]
Slot = Tuple[Sequence[Op], int]
"""The ops that run, and the micro-batch that they run for."""


@dataclass(frozen=True)
class Outcome:
    """What a graph has computed: outputs have axes for updates, turns and replicas in front."""

    outputs: Mapping[str, Array]
    variables: Tuple[Mapping[str, Array], ...]
    """What each replica holds at the end: weights, the optimizer's state, statistics."""
    changed: Tuple[str, ...] = ()
    """The variables that the first replica holds otherwise than at the start."""


def run(
    graph: Graph,
    given: Mapping[str, Array],
    *,
    schedule: str = "grouped",
    fetches: Iterable[str] = (),
    rates: Optional[Sequence[float]] = None,
) -> Outcome:
    """Execute a graph on what it is given; ``fetches`` are values to return beside the graph's outputs."""
    soundness.require_known(graph, TABLE, "oracle")
    soundness.require_types(graph)
    soundness.require_places(graph)
    wanted = list(dict.fromkeys((*graph.outputs, *fetches)))
    lacking = [name for name in wanted if name not in graph.tensors]
    if lacking:
        raise ExecutionError(f"{lacking[0]!r} is asked for, and graph {graph.name!r} has no such tensor.")
    fed = feed(graph, given)
    if rates is not None and len(rates) != fed.counts[0]:
        raise ExecutionError(f"{len(rates)} learning rates are given for {fed.counts[0]} updates: give one for each.")
    return _Machine(graph, fed, schedule, wanted, rates).run()


class _Machine:
    def __init__(
        self, graph: Graph, fed: Feed, schedule: str, wanted: Sequence[str], rates: Optional[Sequence[float]] = None
    ) -> None:
        self.rates, self.rate = rates, 1.0
        self.graph, self.fed, self.schedule, self.wanted = graph, fed, schedule, wanted
        self.roots = _roots(graph)
        self.outer = _after_accumulation(graph)
        self.masks = _masks(graph)
        self.by_stage = _by_stage(graph, self.outer)
        self.training = any(op.type in CHANGING for op in graph.ops)
        self.replicas = range(fed.counts[2])
        self.held: List[Values] = [dict(fed.held) for _ in self.replicas]
        self.taken: Dict[str, int] = {}
        """How often each accumulator was added to since it was zero."""
        self.kept: Dict[str, List[Array]] = {name: [] for name in wanted}

    def run(self) -> Outcome:
        updates, turns, _ = self.fed.counts
        # Without training nothing separates the micro-batches of one update from those of the next.
        groups = [[(u, t) for t in range(turns)] for u in range(updates)]
        if not self.training:
            groups = [[place for group in groups for place in group]]
        for places in groups:
            self._group(places)
        shaped = {
            name: np.stack(values).reshape((*self.fed.counts, *values[0].shape)) for name, values in self.kept.items()
        }
        before = self.fed.held
        changed = [name for name, value in self.held[0].items() if not np.array_equal(before[name], value)]
        return Outcome(shaped, tuple(self.held), tuple(changed))

    def _group(self, places: Sequence[Tuple[int, int]]) -> None:
        """All micro-batches between two updates, and the update."""
        self.rate = 1.0 if self.rates is None else self.rates[places[0][0]]
        batches = [
            [{name: value[u, t, r] for name, value in self.fed.streams.items()} for r in self.replicas]
            for u, t in places
        ]
        for ops, number in self._slots(len(batches)):
            self._slot(ops, batches[number])
        after: List[Values] = [{} for _ in self.replicas]
        for op in self.outer:
            self._step(op, after, batches[-1], after)
        for batch in batches:
            for name in self.wanted:
                self.kept[name] += [self._value(name, after[r], batch[r], self.held[r]) for r in self.replicas]

    def _slots(self, count: int) -> Iterator[Slot]:
        by_stage = self.by_stage
        last = max(by_stage, default=0)
        if last == 0:
            yield from ((by_stage.get(0, ()), number) for number in range(count))
            return
        # The backward pass of stage s is stage 2 (F - 1) - s; the last stage goes back as soon as it went forward.
        forward = last // 2 + 1 if self.training else last + 1
        for kind, stage, number in slots(self.schedule, forward, count, self.training):
            if kind == "forward":
                yield by_stage.get(stage, ()), number
            elif stage < forward - 1:
                yield by_stage.get(2 * (forward - 1) - stage, ()), number

    def _slot(self, ops: Sequence[Op], batch: List[Values]) -> None:
        arriving: List[Values] = [{} for _ in self.replicas]
        for op in ops:
            away = op.type == soundness.COPY and op.stage is not None
            self._step(op, batch, batch, arriving if away else batch)
        for values, late in zip(batch, arriving):
            values.update(late)

    def _step(self, op: Op, first: List[Values], second: List[Values], into: List[Values]) -> None:
        """One op on every replica, which reads what is in the first place, else in the second, else held."""
        calls = [self._call(op, first[r], second[r], self.held[r]) for r in self.replicas]
        results = [self._computed(call) for call in calls]
        if op.type in REDUCTIONS:
            total = np.sum([result[0] for result in results], axis=0)
            results = [(total,)] * len(results)
        for r, result in enumerate(results):
            into[r].update((name, value) for name, value in zip(op.outputs, result) if name)
            self._write(op, result, self.held[r])
        root = self.roots.get(op.outputs[0]) if op.outputs else None
        if root is not None:
            self.taken[root] = (
                0 if op.type == "AccumulatorZero" else self.taken.get(root, 0) + (op.type == "Accumulate")
            )

    def _write(self, op: Op, result: Tuple[Array, ...], held: Values) -> None:
        if op.outputs and op.outputs[0] in self.roots:
            held[self.roots[op.outputs[0]]] = result[0]
        if op.type == COUNTING:
            held[op.inputs[3]] = held[op.inputs[3]] + 1
        for name, value in zip(op.inputs[STATISTICS], result[1:3] if op.type == NORM else ()):
            held.update({name: value} if name in held else {})

    def _call(self, op: Op, first: Values, second: Values, held: Values) -> Call:
        inputs = [None if not name else self._value(name, first, second, held, op) for name in op.inputs]
        if op.type == "Accumulate" and len(inputs) == 2 and op.attributes.get("type") == COUNTER:
            inputs.append(np.asarray(self.taken.get(self.roots.get(op.outputs[0], ""), 0)))
        mask = self.masks.get(id(op), "")
        if mask in second or mask in held:
            inputs = [*inputs[:1], *[None] * (MASK - 1), self._value(mask, first, second, held, op)]
        return Call(op if self.rate == 1.0 else at_rate(op, self.rate), tuple(inputs), self.graph)

    def _value(self, name: str, first: Values, second: Values, held: Values, reader: object = None) -> Array:
        if name in first:
            return first[name]
        root = self.roots.get(name)
        # What was accumulated is in the variable: the value of one micro-batch is not the last.
        if root is not None and name in second and first is not second:
            return held[root]
        if name in second:
            return second[name]
        if name in held:
            return held[name]
        who = placed(reader) if isinstance(reader, Op) else "the caller"
        raise ExecutionError(f"{who} reads {name!r} before it is made or has arrived.")

    def _computed(self, call: Call) -> Tuple[Array, ...]:
        try:
            result = TABLE[call.op.type](call)
        except (ValueError, IndexError, TypeError, OracleError) as error:
            raise ExecutionError(f"{call.place} cannot be computed: {error}") from error
        return result if isinstance(result, tuple) else (np.asarray(result),)


def _masks(graph: Graph) -> Dict[int, str]:
    """The name of the mask of every Dropout and of its gradient op, which reads the gradient of its result."""
    masks: Dict[int, str] = {}
    results = [op.outputs[0] for op in graph.ops if op.type == DROPOUT and op.outputs]
    for op in graph.ops:
        if op.type in (DROPOUT, UNIFORM) and op.outputs:
            masks[id(op)] = op.outputs[0] + KEPT
        elif op.type == f"{DROPOUT}Grad" and op.inputs:
            gradient = re.sub(r"_c\d+$", "", op.inputs[0])  # a copy from another IPU is numbered
            masks.update((id(op), name + KEPT) for name in results if gradient == f"Gradient___{name}")
    return masks


def _by_stage(graph: Graph, outer: Sequence[Op]) -> Dict[int, List[Op]]:
    """The ops of every stage that run for each micro-batch; without stages all are in the first."""
    late = {id(op) for op in outer}
    inner = [op for op in graph.ops if id(op) not in late]
    by_stage: Dict[int, List[Op]] = {}
    for op, stage in zip(inner, _stages(inner)):
        by_stage.setdefault(stage, []).append(op)
    return by_stage


def _stages(ops: Sequence[Op]) -> List[int]:
    """The stage of every op; one that is in none runs as soon as what it reads is there."""
    last = max((op.stage for op in ops if op.stage is not None), default=0)
    ready: Dict[str, int] = {}
    stages: List[int] = []
    for op in ops:
        stage = op.stage if op.stage is not None else max((ready.get(name, 0) for name in op.inputs), default=0)
        stages.append(stage)
        away = op.type == soundness.COPY and op.stage is not None
        ready.update(dict.fromkeys(op.outputs, min(stage + away, last)))
    return stages


def _roots(graph: Graph) -> Dict[str, str]:
    """The variable behind each value that an op has written over it."""
    roots: Dict[str, str] = {}
    held = {*graph.initializers, *graph.inputs}
    for op in graph.ops:
        if (op.type in CHANGING or op.type == REDUCTIONS[1]) and op.inputs and op.outputs:
            root = roots.get(op.inputs[0], op.inputs[0] if op.inputs[0] in held else "")
            if root:
                roots[op.outputs[0]] = root
    return roots


def _after_accumulation(graph: Graph) -> List[Op]:
    """The ops that run once an update: what follows from accumulated gradients or leads to that, what empties them."""
    made: Set[str] = set()
    late: Set[int] = set()
    for number, op in enumerate(graph.ops):
        into = op.type in CHANGING and op.inputs[0].startswith(ACCUMULATORS)
        if into and op.type == "Accumulate":
            made.update(op.outputs)
        elif into or made.intersection(op.inputs):
            late.add(number)
            made.update(op.outputs)
    # A velocity that decays before the gradient is added to it follows from no gradient.
    read = {name for number in late for name in graph.ops[number].inputs}
    for number, op in enumerate(graph.ops):
        into = bool(op.inputs) and op.inputs[0].startswith(ACCUMULATORS)
        if op.type in CHANGING and not into and read.intersection(op.outputs):
            late.add(number)
    return [graph.ops[number] for number in sorted(late)]
