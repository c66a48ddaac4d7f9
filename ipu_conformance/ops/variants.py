"""What is asked of an op: samples that cover its geometry, and the edges of its domain, by rule.

An *edge* is a word such as "large" or "size-one". Every edge of an op is one or more calls, each with one sample for
every micro-batch; micro-batches share shapes and attributes and differ in their values.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import AbstractSet, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from ipu_conformance.ops.choosers import DEEP, EVEN, ODD, Empty, Least, MicroBatch, Stretched
from ipu_conformance.ops.dtypes import FORMATS
from ipu_conformance.ops.features import BLOCK, FIRST_BLOCKS, FROM_THE_LEFT, LAST_BLOCKS, LONG_AXIS, features
from ipu_conformance.ops.open import OUTSIDE
from ipu_conformance.ops.row import Row
from ipu_conformance.oracle.op import Op, as_tuple
from ipu_conformance.oracle.sample import Chooser, Sample

MICRO_BATCHES = 2
SEEDS = 48
"""Samples among which those of a new op are chosen."""
DRAWS = Path(__file__).with_name("draws.json")
ROOM = 20
"""Elements of an input into which special numbers are spliced."""

POINTWISE = ("elementwise", "activation", "compare")
MOVEMENT = ("shape", "indexing", "embedding", "cast")
PRODUCTS = ("matmul", "convolution")
"""Families whose second input is a factor like the first."""
NOT_POINTWISE = ("prelu", "glu")
INDEXED = ("sort", "topk", "argsort", "argmax", "argmin")
SUMMED_EMPTY = ("sum", "prod", "any", "all")
"""Reductions that have a value of no elements."""
EMPTY_SEEDS = 12
SUMMED = ("cumsum", "scatter_add", "scatter_nd_add")

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
CAST_TO: Mapping[str, Mapping[str, str]] = {
    "cast": {"float32": "float16", "float16": "float32", "int32": "float32", "bool": "float32"}
}
"""What each type of number is cast to: the oracle draws 64 bits, where its gradient has a difference quotient."""


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
    return _call(row.op, lambda number: MicroBatch(seed, number), "drawn").samples


@functools.lru_cache(maxsize=None)
def stretched(row: Row, seed: int, last: int, deep: bool = False) -> Optional[Call]:
    """The call that follows from a seed with a long last axis; None where the op's shapes are not drawn whole."""
    if row.name in UNSTRETCHED:
        return None
    try:
        call = _call(row.op, partial(Stretched, seed, last, deep=deep), "drawn")
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
            call = _emptied(row, seed) if row.name in SUMMED_EMPTY else _call(row.op, partial(Empty, seed), "empty")
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


def _call(op: Op, chooser: Callable[[int], Chooser], edge: str) -> Call:
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


@functools.lru_cache(maxsize=None)
def is_floating(op: Op) -> bool:
    """Whether an op takes floating-point numbers."""
    return any(x.dtype.kind == "f" for x in op.draw(Least(0)).inputs)


def is_pointwise(op: Op) -> bool:
    """Whether every element of the result follows from one element of each floating-point input."""
    return op.family in POINTWISE and op.name not in NOT_POINTWISE


def edges(row: Row, dtype: str) -> Tuple[str, ...]:
    """The edges of an op in a type of number, besides what is drawn."""
    op = row.op
    if dtype not in FORMATS or not is_floating(op):
        return ("size-one",)
    names = ["size-one", "empty"] if dtype == "float32" and empty(row) is not None else ["size-one"]
    if row.name in LONG:
        names.append("long")
    if op.family in MOVEMENT and op.name not in (*INDEXED, *SUMMED):
        names.append("bits")
    elif op.name in INDEXED:
        names.append("large")
    else:
        names.extend(special(row) if dtype == "float32" else (ALL_SPECIAL,))
    return tuple(names)


def special(row: Row) -> Tuple[str, ...]:
    """The edges of special numbers that lie in an op's domain."""
    return tuple(edge for edge in SPECIAL if edge not in OUTSIDE.get(row.name, ()))


def calls(
    row: Row, edge: str, dtype: str, framework: str, expressible: Callable[[Call], bool] = lambda call: True
) -> List[Call]:
    """The calls of an edge that a framework can express."""
    if row.name not in CAST_TO:
        return _calls(row, edge, dtype, framework, expressible)
    target = CAST_TO[row.name][dtype]
    # The special numbers are those of float16: what is beyond them may become infinite or the largest number.
    made = _calls(row, edge, "float16", framework, lambda call: expressible(_cast(call, target)))
    return [_cast(call, target) for call in made]


def _cast(call: Call, dtype: str) -> Call:
    """A call of a cast to another type than the one that was drawn."""
    return Call(call.edge, tuple(Sample(sample.inputs, {"dtype": dtype}) for sample in call.samples))


def _calls(row: Row, edge: str, dtype: str, framework: str, expressible: Callable[[Call], bool]) -> List[Call]:
    if edge == "drawn":
        chosen = _shipped().get(row.name, {}).get(framework)
        shipped = _drawn_calls(row, chosen, expressible) if chosen else []
        return shipped or _drawn_calls(row, _by_features(row, expressible), expressible)
    if edge == "size-one":
        return [call for call in [_call(row.op, Least, edge)] if expressible(call)]
    if edge == "empty":
        return [call for call in [empty(row)] if call is not None and expressible(call)]
    if edge == "long":
        return [Call(edge, tuple(LONG[row.name](number) for number in range(MICRO_BATCHES)))]
    base = _roomy(row, edge, expressible)
    if base is None:
        return []
    place = _grid if is_pointwise(row.op) else _spliced
    numbers = [_numbers(edge, dtype, row, base.attributes, number) for number in range(MICRO_BATCHES)]
    if is_pointwise(row.op) or row.op.family not in PRODUCTS:
        return [Call(edge, tuple(place(edge, sample, each) for sample, each in zip(base.samples, numbers)))]
    # The first factor has them in the first micro-batch, the second one in the other.
    return [Call(edge, tuple(_spliced(edge, *each, factor) for factor, each in enumerate(zip(base.samples, numbers))))]


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


def _drawn_calls(row: Row, numbers: Iterable[int], expressible: Callable[[Call], bool]) -> List[Call]:
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


def _roomy(row: Row, edge: str, expressible: Callable[[Call], bool]) -> Optional[Call]:
    """The first drawn call with room for special numbers beside ordinary ones, else the largest."""
    largest: Optional[Call] = None
    for number in range(SEEDS):
        call = drawn(row, seed_of(row, number), edge)
        if _room(row, call) > (_room(row, largest) if largest else 0) and expressible(call):
            largest = call
            if is_pointwise(row.op) or _room(row, call) >= ROOM:
                break
    return largest


def _room(row: Row, call: Call) -> int:
    """The elements of the first floating-point input, and of the result where data only moves; a cast may have none."""
    sample = call.samples[0]
    given = next((x.size for x in sample.inputs if x.dtype.kind == "f"), 0)
    if row.op.family not in MOVEMENT:
        return given
    outputs = as_tuple(row.op.forward(*sample.inputs, **sample.attributes))
    return min(given, max(np.size(value) for value in outputs))


def joined(parts: Sequence[Call]) -> Tuple[Call, Mapping[str, slice]]:
    """Calls of a pointwise op one behind the other in one call, and the elements of each."""
    lengths = [len(part.samples[0].inputs[0]) for part in parts]
    ends = list(itertools.accumulate(lengths))
    samples = [
        Sample(tuple(map(np.concatenate, zip(*(sample.inputs for sample in of_micro_batch)))), parts[0].attributes)
        for of_micro_batch in zip(*(part.samples for part in parts))
    ]
    regions = {part.edge: slice(end - length, end) for part, length, end in zip(parts, lengths, ends)}
    return Call(JOINED, tuple(samples)), regions


JOINED = "special numbers"
SPECIAL = ("zeros", "ties", "denormals", "large", "infinities", "nan")
"""Edges that are made of special numbers."""
ALL_SPECIAL = "special"
"""All of them in one case: what float32 shows one by one, float16 shows together."""


def _numbers(edge: str, dtype: str, row: Row, attributes: Mapping[str, Any], micro_batch: int) -> List[float]:
    """The numbers that an edge is made of, beside ordinary ones; each micro-batch has ordinary ones of its own."""
    limits = FORMATS[dtype]
    largest = float(limits.max) ** (1.0 / row.power) / 4
    far = min(100.0, largest)
    common = 1.5 if micro_batch == 0 else 1.25
    given = [float(x) for value in attributes.values() for x in np.ravel(value) if _is_number(x)]
    near = sorted({-3.0, -1.0, -0.5, 0.5, 1.0, 3.0, 6.0, *(x for x in given if abs(x) < 100)})
    # Powers of two, by which quotients of whole numbers stay exact in float16.
    middle = [number for number in (4.0, -4.0, 16.0, -16.0, 32.0, -32.0) if abs(number) < largest]
    # The squares of such numbers are denormal in float16.
    small = [2.0**-8, -(2.0**-9)] if dtype == "float32" else []
    table: Dict[str, List[float]] = {
        "zeros": [0.0, -0.0, common, -common, *small],
        "ties": near,
        "denormals": [float(limits.tiny) / 2, -float(limits.tiny) / 4, float(limits.smallest_subnormal), common],
        "large": [largest, -largest, far, -far, min(64.0, largest), common, *middle],
        "infinities": [math.inf, -math.inf, common, -common],
        "nan": [math.nan, common, -common],
        "bits": [math.nan, -0.0, -math.inf, float(limits.max), float(limits.tiny) / 2, 0.0],
    }
    return table[edge]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)


def _grid(edge: str, sample: Sample, numbers: Sequence[float]) -> Sample:
    """Every combination of the numbers, one operand each; other inputs are repeated to the same length."""
    places = [place for place, x in enumerate(sample.inputs) if x.dtype.kind == "f"]
    combined = np.array(list(itertools.product(numbers, repeat=len(places))), np.float64)
    inputs = [np.resize(x, len(combined)) for x in sample.inputs]
    for column, place in enumerate(places):
        inputs[place] = combined[:, column]
    return Sample(tuple(inputs), sample.attributes)


def _spliced(edge: str, sample: Sample, numbers: Sequence[float], factor: int = 0) -> Sample:
    """A floating-point input with special numbers at some of its places; ties and moved bits are everywhere."""
    places = [place for place, x in enumerate(sample.inputs) if x.dtype.kind == "f"]
    place = places[min(factor, len(places) - 1)]
    x = sample.inputs[place].copy()
    flat = x.reshape(-1)
    if edge == "ties":
        flat[:] = np.round(flat)
    elif edge == "bits":  # everywhere: an op that moves data may leave most of it behind
        flat[:] = np.random.default_rng(len(flat)).permutation(np.resize(numbers, len(flat)))
    else:
        stride = max(2, len(flat) // len(numbers))
        for number, start in zip(numbers, range(0, len(flat), stride)):
            flat[start] = number
    return Sample((*sample.inputs[:place], x, *sample.inputs[place + 1 :]), sample.attributes)


TERMS = 10_000
"""The terms of a long reduction: with float16 partials it errs by far more than with float32 ones."""


def _long(shape: Sequence[int], *others: Sequence[int], **attributes: Any) -> Callable[[int], Sample]:
    """Positive numbers, so that the partial sums grow; a mean of about 0.6 keeps the sum inside float16."""

    def sample(micro_batch: int) -> Sample:
        generator = np.random.default_rng([29, micro_batch])
        return Sample(tuple(generator.uniform(0.25, 1.0, each) for each in (shape, *others)), attributes)

    return sample


LONG: Mapping[str, Callable[[int], Sample]] = {
    "sum": _long((3, TERMS), axis=1, keepdims=False),
    "mean": _long((3, TERMS), axis=1, keepdims=False),
    "logsumexp": _long((3, TERMS), axis=1, keepdims=False),
    "matmul": _long((2, TERMS), (TERMS, 3), transpose_a=False, transpose_b=False),
    "linear": _long((2, TERMS), (3, TERMS)),
    "softmax": _long((2, TERMS), axis=-1),
    "layer_norm": _long((2, TERMS), (TERMS,), (TERMS,), axes=1, epsilon=2.0**-10),
    "mse_loss": _long((TERMS,), (TERMS,), reduction="mean"),
    "conv": _long(
        (1, 100, 10, 10), (3, 100, 10, 10), stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1
    ),
    "global_avg_pool": _long((1, 2, 100, 100)),
}
"""The reductions that are also asked for 10,000 terms, and their samples by micro-batch."""
