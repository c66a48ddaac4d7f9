"""What is asked of an op: samples that cover its geometry, and the edges of its domain, by rule.

An *edge* is a word such as "large" or "size-one". Every edge of an op is one or more calls, each with one sample for
every micro-batch; micro-batches share shapes and attributes and differ in their values.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.ops.choosers import Least
from ipu_conformance.ops.dtypes import FORMATS
from ipu_conformance.ops.open import OUTSIDE
from ipu_conformance.ops.row import Row
from ipu_conformance.ops.sampling import (
    MICRO_BATCHES,
    MOVEMENT,
    SEEDS,
    Call,
    call_of,
    drawn,
    drawn_calls,
    empty,
    is_pointwise,
    seed_of,
)
from ipu_conformance.oracle.op import Op, as_tuple
from ipu_conformance.oracle.sample import Sample

ROOM = 20
"""Elements of an input into which special numbers are spliced."""

PRODUCTS = ("matmul", "convolution")
"""Families whose second input is a factor like the first."""
INDEXED = ("sort", "topk", "argsort", "argmax", "argmin")
SUMMED = ("cumsum", "scatter_add", "scatter_nd_add")
CAST_TO: Mapping[str, Mapping[str, str]] = {
    "cast": {"float32": "float16", "float16": "float32", "int32": "float32", "bool": "float32"}
}
"""What each type of number is cast to: the oracle draws 64 bits, where its gradient has a difference quotient."""


@functools.lru_cache(maxsize=None)
def is_floating(op: Op) -> bool:
    """Whether an op takes floating-point numbers."""
    return any(x.dtype.kind == "f" for x in op.draw(Least(0)).inputs)


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
        return drawn_calls(row, framework, expressible)
    if edge == "size-one":
        return [call for call in [call_of(row.op, Least, edge)] if expressible(call)]
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
UNSIGNED = ("poisson_nll_loss",)
"""Sums in which the logarithm of a negative number hides what a device makes of all others."""
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
    return list(dict.fromkeys(map(abs, table[edge]))) if row.name in UNSIGNED else table[edge]


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
