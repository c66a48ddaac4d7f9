"""Runs calls of ops on a framework, many in one program, and keeps what came of each."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Dict, Iterable, List, Mapping, Sequence, Tuple, Union

import numpy as np

from ipu_conformance.draws import is_expressible
from ipu_conformance.frameworks import Driver, OpCall, OpResult
from ipu_conformance.ops.dtypes import FORMATS, held
from ipu_conformance.ops.expectation import has_gradient
from ipu_conformance.ops.row import LIBRARIES, Row
from ipu_conformance.ops.sampling import Call, is_pointwise
from ipu_conformance.ops.unhandled import why_unhandled
from ipu_conformance.ops.variants import ALL_SPECIAL, JOINED, SPECIAL, calls, joined, special
from ipu_conformance.oracle.op import Outputs, as_tuple
from ipu_conformance.oracle.sample import Sample, round_to

TOGETHER = 48
"""Calls in one program: enough to share the cost of compiling, few enough for the memory of one IPU."""

Key = Tuple[str, str]
"""An op and an edge."""


@dataclass(frozen=True)
class Trial:
    """A call as it was made, the factors of its outputs in the loss, and what the device made of it."""

    call: Call
    cotangents: Tuple[Outputs, ...]
    asked: OpCall
    result: Union[OpResult, Exception, None] = None


class Bench:
    """The calls of one framework in one type of number, run in programs of many when the first of them is asked for."""

    def __init__(
        self, framework: str, driver: Driver, dtype: str, asked: Iterable[Tuple[Row, str]], *, every: bool = True
    ) -> None:
        """``every`` is whether calls are made, too, that the framework's public sources do not take."""
        self.framework = framework
        self._every = every
        self._library = LIBRARIES[framework]
        self._driver = driver
        self.dtype = dtype
        self._floating = dtype if dtype in FORMATS else "float32"
        single = ((row, each) for row, edge in asked for each in (special(row) if edge == ALL_SPECIAL else (edge,)))
        self._rows = dict.fromkeys((row, _key(row, edge)[1]) for row, edge in single)
        self._results: Dict[Key, List[Trial]] = {}
        self._joined: Dict[Row, Tuple[Call, Mapping[str, slice]]] = {}

    def trials(self, row: Row, edge: str) -> List[Trial]:
        """What came of the calls of an edge; they run together with others that have not been run yet."""
        if edge == ALL_SPECIAL:
            return [trial for each in special(row) for trial in self.trials(row, each)]
        key = _key(row, edge)
        if key not in self._results:
            self._run(self._chunk(row, key[1]))
        if key[1] != JOINED:
            return self._results[key]
        region = self._regions(row)[1][edge]
        return [_restricted(trial, edge, region) for trial in self._results[key]]

    def _regions(self, row: Row) -> Tuple[Call, Mapping[str, slice]]:
        if row not in self._joined:
            taken = partial(self._taken, row)
            every = [call for edge in special(row) for call in calls(row, edge, self.dtype, self.framework, taken)]
            self._joined[row] = joined(every)
        return self._joined[row]

    def _chunk(self, row: Row, edge: str) -> Dict[Key, List[Trial]]:
        """The trials of an edge and of those that follow it, as many as fit into one program."""
        chunk: Dict[Key, List[Trial]] = {}
        order = list(self._rows)
        start = next(place for place, (each, word) in enumerate(order) if (each.name, word) == (row.name, edge))
        for each, word in order[start:]:
            if (each.name, word) in self._results:
                continue
            chunk[each.name, word] = self._prepared(each, word)
            if sum(map(len, chunk.values())) >= TOGETHER:
                break
        return chunk

    def _prepared(self, row: Row, edge: str) -> List[Trial]:
        if edge == JOINED:
            chosen = [self._regions(row)[0]]
        else:
            chosen = calls(row, edge, self.dtype, self.framework, lambda call: self._expressible(row, call))
        return [self._trial(row, call, number) for number, call in enumerate(chosen) if self._taken(row, call)]

    def _taken(self, row: Row, call: Call) -> bool:
        return self._every or not why_unhandled(row.name, self.framework, call.samples)

    def _expressible(self, row: Row, call: Call) -> bool:
        return self._taken(row, call) and is_expressible(row, self.framework, self._driver, call, self.dtype)

    def _trial(self, row: Row, call: Call, number: int) -> Trial:
        made = Call(call.edge, tuple(held(sample, self.dtype) for sample in call.samples))
        differentiable = has_gradient(row, self.framework, self.dtype, call.edge)
        cotangents = (
            tuple(
                _cotangents(row, sample, self.dtype, f"{row.name} {call.edge} {number} {micro_batch}")
                for micro_batch, sample in enumerate(made.samples)
            )
            if differentiable
            else ()
        )
        wanted: Tuple[int, ...] = ()
        if differentiable:
            assert row.op.vjp is not None  # or it would have no gradient
            with np.errstate(all="ignore"):
                pulled = row.op.vjp(cotangents[0], *made.samples[0].inputs, **made.attributes)
            wanted = tuple(place for place, gradient in enumerate(pulled) if gradient is not None)
        asked = OpCall(
            row.call(self._library),
            tuple(sample.inputs for sample in made.samples),
            made.attributes,
            tuple(as_tuple(each) for each in cotangents),
            wanted,
        )
        return Trial(made, cotangents, asked)

    def try_calls(self, asked: Sequence[Tuple[Row, Call]]) -> List[Tuple[Row, Trial]]:
        """What comes of calls in one program; those that the framework cannot express are left out."""
        trials = [
            (row, self._trial(row, call, number))
            for number, (row, call) in enumerate(asked)
            if self._expressible(row, call)
        ]
        results = self._results_of([trial.asked for _, trial in trials])
        return [(row, replace(trial, result=result)) for (row, trial), result in zip(trials, results)]

    def _run(self, chunk: Dict[Key, List[Trial]]) -> None:
        trials = [(key, trial) for key, of_key in chunk.items() for trial in of_key]
        results = self._results_of([trial.asked for _, trial in trials])
        self._results.update({key: [] for key in chunk})
        for (key, trial), result in zip(trials, results):
            self._results[key].append(replace(trial, result=result))

    def _results_of(self, asked: Sequence[OpCall]) -> List[Union[OpResult, Exception]]:
        """What came of calls in one program; where that fails, of each half in its own, down to the one at fault."""
        if not asked:
            return []
        try:
            return list(self._driver.run_ops(asked, self._floating))
        except Exception as error:
            if len(asked) == 1:
                return [error]
        middle = len(asked) // 2
        return self._results_of(asked[:middle]) + self._results_of(asked[middle:])


def _key(row: Row, edge: str) -> Key:
    """Where a trial is kept: the special numbers of a pointwise op are all in one call."""
    return row.name, JOINED if edge in SPECIAL and is_pointwise(row.op) else edge


def _restricted(trial: Trial, edge: str, region: slice) -> Trial:
    """The part of a trial of a pointwise op that is about one edge."""
    samples = tuple(Sample(tuple(x[region] for x in s.inputs), s.attributes) for s in trial.call.samples)
    cotangents = tuple(each[region] for each in trial.cotangents)
    result = trial.result
    if isinstance(result, OpResult):
        outputs = tuple(tuple(value[region] for value in values) for values in result.outputs)
        result = OpResult(outputs, {place: value[region] for place, value in result.gradients.items()})
    return Trial(Call(edge, samples), cotangents, trial.asked, result)


def _cotangents(row: Row, sample: Sample, dtype: str, key: str) -> Outputs:
    generator = np.random.default_rng(zlib.crc32(key.encode()))
    with np.errstate(all="ignore"):
        outputs = row.op.forward(*sample.inputs, **sample.attributes)
    if sample.attributes.get("dtype") == "float16":
        dtype = "float16"  # what comes back to a cast is in the type that it has cast to
    drawn = tuple(
        round_to(dtype, np.asarray(generator.uniform(-2.0, 2.0, np.shape(value)))) for value in as_tuple(outputs)
    )
    return drawn if isinstance(outputs, tuple) else drawn[0]
