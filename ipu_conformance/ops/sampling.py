"""Samples of an op: drawn from seeds, stretched to long axes, without elements, and the calls that they make."""

from __future__ import annotations

import functools
import itertools
import json
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import AbstractSet, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from ipu_conformance.ops.choosers import DEEP, EVEN, ODD, Empty, MicroBatch, Stretched
from ipu_conformance.ops.features import BLOCK, FIRST_BLOCKS, FROM_THE_LEFT, LAST_BLOCKS, LONG_AXIS, features
from ipu_conformance.ops.row import Row
from ipu_conformance.oracle.op import Op, as_tuple
from ipu_conformance.oracle.sample import Chooser, Sample

MICRO_BATCHES = 2
SEEDS = 48
"""Samples among which those of a new op are chosen."""
DRAWS = Path(__file__).with_name("draws.json")

POINTWISE = ("elementwise", "activation", "compare")
MOVEMENT = ("shape", "indexing", "embedding", "cast")
NOT_POINTWISE = ("prelu", "glu")
SUMMED_EMPTY = ("sum", "prod", "any", "all")
"""Reductions that have a value of no elements."""
EMPTY_SEEDS = 12

UNSTRETCHED = ("glu", "gather", "index_select", "take_along_axis", "reshape")
"""Ops in which a long axis hides what is taken instead of an attribute: it would be refused."""
SHORT_AS_WELL = ("embedding",)
"""Families whose long calls hide what short ones show: rows that are looked up again."""
LARGE_SEEDS = 24
"""Samples among which one that can be large is looked for, where none that was chosen can."""
TIED = ("topk",)
"""Ops that name the places of numbers, which are not all different in float16 where there are many."""
MOST_STRETCHED = 8192
"""Elements of an input of a stretched call at the most."""
MOST = 16
"""Samples of an op that are drawn at the most; few ops need more than six to show all that they can do."""


@dataclass(frozen=True)
class Call:
    """One call of an op: a sample for every micro-batch, all of the same shapes and attributes."""

    edge: str
    samples: Tuple[Sample, ...]

    @property
    def attributes(self) -> Mapping[str, Any]:
        return self.samples[0].attributes

    def describe(self) -> str:
        """The shapes and attributes in words."""
        shapes = " and ".join(str(list(x.shape)) for x in self.samples[0].inputs) or "no inputs"
        named = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"{shapes}{', ' if named else ''}{named}"


def seed_of(row: Row, number: int) -> int:
    """The seed of an op's sample: a function of its name and a number alone."""
    return zlib.crc32(f"{row.name} {number}".encode())


def drawn(row: Row, seed: int, edge: str = "drawn") -> Call:
    """The call that follows from a seed."""
    return Call(edge, _samples(row, seed))


def first_of(row: Row, seed: int) -> Sample:
    """The first micro-batch of the call that follows from a seed, which has its structure."""
    return row.op.draw(MicroBatch(seed, 0))


@functools.lru_cache(maxsize=None)
def _samples(row: Row, seed: int) -> Tuple[Sample, ...]:
    return call_of(row.op, lambda number: MicroBatch(seed, number), "drawn").samples


@functools.lru_cache(maxsize=None)
def stretched(row: Row, seed: int, last: int, deep: bool = False) -> Optional[Call]:
    """The call that follows from a seed with a long last axis; None where the op's shapes are not drawn whole."""
    if row.name in UNSTRETCHED:
        return None
    try:
        call = call_of(row.op, partial(Stretched, seed, last, deep=deep), "drawn")
        with np.errstate(all="ignore"):
            outputs = [as_tuple(row.op.forward(*sample.inputs, **sample.attributes)) for sample in call.samples]
    except Exception:  # an attribute that goes with shorter axes alone
        return None
    inputs = call.samples[0].inputs
    if (
        not inputs[0].ndim
        or inputs[0].shape[-1] <= LONG_AXIS
        or max(x.size for x in inputs) > MOST_STRETCHED
        or not outputs[0][0].size
        or (deep and max(x.ndim for x in inputs) < DEEP)
        or (row.name in TIED and max(inputs[0].shape[:-1], default=0) > BLOCK)
    ):
        return None
    return call


@functools.lru_cache(maxsize=None)
def empty(row: Row) -> Optional[Call]:
    """A call without elements; None where the op has none, or where it would select or divide what is not there."""
    if row.op.family not in (*POINTWISE, *MOVEMENT) and row.name not in SUMMED_EMPTY:
        return None
    for number in range(EMPTY_SEEDS):
        seed = seed_of(row, number)
        try:
            call = _emptied(row, seed) if row.name in SUMMED_EMPTY else call_of(row.op, partial(Empty, seed), "empty")
            sample = call.samples[0]
            outputs = as_tuple(row.op.forward(*sample.inputs, **sample.attributes))
            row.op.error(outputs if len(outputs) > 1 else outputs[0], *sample.inputs, **sample.attributes)
        except Exception:  # an index, an attribute or an error model that needs an element
            continue
        shown = row.name not in SUMMED_EMPTY or outputs[0].size
        if shown and sample.inputs and not sample.inputs[0].size and not any(np.isnan(each).any() for each in outputs):
            return call
    return None


def _emptied(row: Row, seed: int) -> Call:
    """The call of a seed with nothing along the first axis."""
    call = drawn(row, seed)
    return Call("empty", tuple(Sample((sample.inputs[0][:0],), sample.attributes) for sample in call.samples))


def chosen_by(row: Row, chooser: Chooser) -> Call:
    """The call that a chooser makes up; every micro-batch has the same structure and values of its own."""
    first = row.op.draw(chooser)
    again = [np.random.default_rng([23, number]) for number in range(1, MICRO_BATCHES)]
    shuffled = [Sample(tuple(_shuffled(x, generator) for x in first.inputs), first.attributes) for generator in again]
    return Call("drawn", (first, *shuffled))


def _shuffled(x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The same rows along the first axis in another order: whatever holds of each row still does."""
    return x[generator.permutation(len(x))] if x.ndim else x


def call_of(op: Op, chooser: Callable[[int], Chooser], edge: str) -> Call:
    samples = [op.draw(chooser(number)) for number in range(MICRO_BATCHES)]
    attributes = samples[0].attributes
    return Call(edge, tuple(Sample(sample.inputs, attributes) for sample in samples))


def covering(row: Row, words: Mapping[int, AbstractSet[str]], first: Iterable[int] = ()) -> List[int]:
    """The fewest numbers of an op's samples that exercise all that these samples can, beginning with those ``first``.

    ``words`` has what the sample of each number exercises.
    """
    chosen = list(first)
    known = {number: each for number, each in words.items() if number not in chosen}
    sizes = {number: drawn(row, seed_of(row, number)).samples[0].inputs[0].size for number in known}
    seen: Set[str] = set().union(*(words[number] for number in chosen))
    while known and len(chosen) < MOST:
        # A call without elements exercises nothing; of two that add as much the larger one shows more.
        best = max(known, key=lambda number: (len(known[number] - seen), sizes[number]))
        added = known.pop(best) - seen
        if not added:
            break
        chosen.append(best)
        seen |= added
    return chosen


@functools.lru_cache(maxsize=1)
def _shipped() -> Mapping[str, Mapping[str, Sequence[int]]]:
    """The numbers of the samples of each op by framework, as ``python -m ipu_conformance.draws`` chose them."""
    listed: Dict[str, Dict[str, List[int]]] = json.loads(DRAWS.read_text(encoding="utf-8"))
    return listed


def _by_features(row: Row, expressible: Callable[[Call], bool]) -> List[int]:
    """The samples of a row that nothing was chosen for: it is new, or its call is another one."""
    calls = {number: drawn(row, seed_of(row, number)) for number in range(SEEDS)}
    words = {number: features(row.op, call.samples[0]) for number, call in calls.items() if expressible(call)}
    return covering(row, words)


def is_pointwise(op: Op) -> bool:
    """Whether every element of the result follows from one element of each floating-point input."""
    return op.family in POINTWISE and op.name not in NOT_POINTWISE


def _lengths(row: Row, seeds: Sequence[int]) -> List[Tuple[int, int]]:
    """Seeds whose calls are stretched, and how long their last axis becomes: odd of one, even of another or the same.

    An axis keeps its parity where there is one of each. What shows on which side operands are broadcast stays short.
    """
    lengths: List[Tuple[int, int]] = []
    for last in (ODD, EVEN):
        able = _able(row, seeds, last)
        taken = [seed for seed, _ in lengths]
        alike = [seed for seed in able if drawn(row, seed).samples[0].inputs[0].shape[-1] % 2 == last % 2]
        best = [seed for seed in (*alike, *able[::-1]) if seed not in taken] or able
        lengths += [(seed, last) for seed in best[:1]]
    return lengths


def _able(row: Row, seeds: Iterable[int], last: int) -> List[int]:
    """The seeds whose calls can have a last axis that is long, and odd or even as ``last`` is."""
    return [
        seed
        for seed in seeds
        if _becomes(row, seed, last) and FROM_THE_LEFT not in features(row.op, drawn(row, seed).samples[0])
    ]


def _becomes(row: Row, seed: int, last: int) -> bool:
    call = stretched(row, seed, last)
    return call is not None and call.samples[0].inputs[0].shape[-1] % 2 == last % 2


def _large(row: Row, seeds: Sequence[int], calls: Sequence[Call]) -> List[Call]:
    """A call for each kind of size that none of ``calls`` has, of a chosen seed where one can have it.

    A pointwise op is called with many axes, too; the kernels of others end at four or six.
    """
    shown = {word for call in calls for word in features(row.op, call.samples[0])}
    candidates = dict.fromkeys([*seeds, *(seed_of(row, number) for number in range(LARGE_SEEDS))])
    kinds = [(LAST_BLOCKS, ODD, False), (FIRST_BLOCKS, EVEN, False)]
    kinds += [(f"rank {DEEP}", ODD, True)] if is_pointwise(row.op) else []
    more: List[Call] = []
    for word, last, deep in kinds:
        forms = (stretched(row, seed, last, deep) for seed in (() if word in shown else candidates))
        fitting = (call for call in forms if call is not None and word in features(row.op, call.samples[0]))
        more += itertools.islice(fitting, 1)
    return more


def _called(row: Row, numbers: Iterable[int], expressible: Callable[[Call], bool]) -> List[Call]:
    """The calls of the samples that were chosen, some of them stretched, and some larger ones."""
    seeds = [seed_of(row, number) for number in numbers]
    longer: Dict[int, List[Call]] = {}
    for seed, last in _lengths(row, seeds):
        call = stretched(row, seed, last)
        if call is not None and expressible(call):
            longer.setdefault(seed, []).append(call)
    chosen = [call for seed in seeds for call in longer.get(seed, [drawn(row, seed)])]
    if row.op.family in SHORT_AS_WELL:
        chosen += [drawn(row, seed) for seed in longer]
    chosen += _large(row, seeds, [call for calls in longer.values() for call in calls])
    return [call for call in chosen if expressible(call)]


def drawn_calls(row: Row, framework: str, expressible: Callable[[Call], bool]) -> List[Call]:
    """The calls of the samples that were chosen for a framework; of a new op those that its features choose."""
    chosen = _shipped().get(row.name, {}).get(framework)
    shipped = _called(row, chosen, expressible) if chosen else []
    return shipped or _called(row, _by_features(row, expressible), expressible)
