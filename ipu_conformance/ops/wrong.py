"""Wrong ops by construction: from an op's row follow the ways in which a device can compute it wrongly.

Nothing here is written for one op. A region of numbers, a word for the geometry of a call, an attribute, an input with
a gradient and a precision each give a wrong op; one that changes no call which the op can have does not apply.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from ipu_conformance.ops.choosers import EVEN, ODD, MicroBatch, Stretched
from ipu_conformance.ops.dtypes import FORMATS
from ipu_conformance.ops.features import LONG_AXIS, features
from ipu_conformance.ops.row import Row
from ipu_conformance.ops.sampling import MOVEMENT, first_of, is_pointwise, seed_of, stretched
from ipu_conformance.ops.variants import LONG, edges, is_floating, special
from ipu_conformance.oracle.op import Array, Op, as_tuple
from ipu_conformance.oracle.sample import Sample

SEEDS = 160
"""Samples that tell what calls of an op can be like: more than those among which the suite's own are chosen."""
STRETCHED_SEEDS = 20
LARGEST_HELD = 1200
FAR = 50.0
REDUCING = ("reduction", "matmul", "convolution", "pooling", "loss", "normalization", "recurrent", "attention")

Forward = Callable[..., Any]
Gradient = Callable[..., Sequence[Optional[Array]]]


@dataclass(frozen=True)
class WrongOp:
    """A way to compute an op wrongly: another forward function, or another gradient."""

    op: str
    name: str
    forward: Optional[Forward] = None
    gradient: Optional[Gradient] = None
    dtypes: Tuple[str, ...] = tuple(FORMATS)
    """The types of numbers in which it is wrong."""

    def __str__(self) -> str:
        return f"{self.op}: {self.name}"


def wrong_ops(row: Row) -> Iterator[WrongOp]:
    """Every way to compute an op wrongly that follows from its row."""
    yield from _regions(row)
    yield from _geometry(row)
    yield from fixed_attributes(row)
    yield from _gradients(row)
    yield from _precision(row)
    yield from mistaken(row)


def mistaken(row: Row) -> Iterator[WrongOp]:
    """The op of operands, indices, attributes or functions that are taken for others."""
    yield from _operands(row)
    yield from _indices(row)
    yield from _attributes(row)
    yield from _named(row)


def possible(row: Row, wrong: WrongOp) -> bool:
    """Whether some sample of ordinary numbers that the op can have shows that it is wrong."""
    for sample in _samples(row):
        with np.errstate(all="ignore"):
            right = as_tuple(row.op.forward(*sample.inputs, **sample.attributes))
            if wrong.forward is not None:
                other = as_tuple(wrong.forward(*sample.inputs, **sample.attributes))
            elif row.op.vjp is not None:
                held = right if len(right) > 1 else right[0]
                right = _known(row.op.vjp(held, *sample.inputs, **sample.attributes))
                assert wrong.gradient is not None
                other = _known(wrong.gradient(held, *sample.inputs, **sample.attributes))
            if len(right) != len(other) or not all(map(_close, right, other)):
                return True
    return False


def _close(left: Any, right: Any) -> bool:
    return np.shape(left) == np.shape(right) and np.allclose(left, right, equal_nan=True)


def _known(gradients: Sequence[Optional[Array]]) -> Tuple[Array, ...]:
    return tuple(value for value in gradients if value is not None)


# Regions of numbers


def _where(region: Callable[[Array], Array], other: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def replaced(x: Array) -> Array:
        return np.where(region(x), other(x), x) if x.dtype.kind == "f" else x

    return replaced


REGIONS: Mapping[str, Tuple[str, Callable[[Array], Array]]] = {
    "a zero is a small number": ("zeros", _where(lambda x: x == 0, lambda x: np.full_like(x, 2.0**-4))),
    "a large number is infinite": ("large", _where(lambda x: np.abs(x) >= FAR, lambda x: np.copysign(np.inf, x))),
    "an infinity has the other sign": ("infinities", _where(np.isinf, np.negative)),
    "an infinity is a number": ("infinities", _where(np.isinf, lambda x: np.copysign(3.0, x))),
    "NaN is zero": ("nan", _where(np.isnan, np.zeros_like)),
    "a tie is broken": ("ties", _where(lambda x: x == np.round(2 * x) / 2, lambda x: x * 1.03125)),
}


def _regions(row: Row) -> Iterator[WrongOp]:
    if not is_floating(row.op) or row.op.family == "cast":  # whose regions are where another type ends
        return
    for name, (edge, change) in REGIONS.items():
        if edge in special(row):

            def forward(*inputs: Array, _change: Callable[[Array], Array] = change, **attributes: Any) -> Any:
                return row.op.forward(*map(_change, inputs), **attributes)

            yield WrongOp(row.name, name, forward)


# Geometry: where a word holds of a call, one element of the result is wrong


FORMS = ((ODD, False), (EVEN, False), (ODD, True))
"""The last axes of stretched samples, and whether those have many axes, which pointwise ops have alone."""


class _Outline(MicroBatch):
    """The same structure with one number instead of many: sources of numbers take longer to make than all else."""

    def array(
        self, shape: Sequence[int], low: float = -2.0, high: float = 2.0, avoid: Sequence[float] = ()
    ) -> np.ndarray:
        self.integer(0, 2**32 - 1)  # the seed of the source
        return np.full(tuple(shape), high)

    def distinct(self, shape: Sequence[int], low: float = -3.0, high: float = 3.0) -> np.ndarray:
        return self.array(shape, low, high)


class _LongOutline(_Outline, Stretched):
    """The outline of a stretched sample."""


def _lengthened(row: Row) -> List[Tuple[int, int, bool]]:
    forms = FORMS if is_pointwise(row.op) else FORMS[:2]
    return [(seed_of(row, number), last, deep) for number in range(STRETCHED_SEEDS) for last, deep in forms]


@functools.lru_cache(maxsize=None)
def _samples(row: Row) -> Tuple[Sample, ...]:
    calls = (stretched(row, *form) for form in _lengthened(row))
    return (
        *(first_of(row, seed_of(row, number)) for number in range(SEEDS)),
        *(call.samples[0] for call in calls if call is not None),
    )


@functools.lru_cache(maxsize=None)
def _outlines(row: Row) -> Tuple[Sample, ...]:
    """What the samples are like, whatever their numbers are; of the stretched ones the last, and what says more."""
    outlines = [row.op.draw(_Outline(seed_of(row, number), 0)) for number in range(SEEDS)]
    seen: Set[str] = set().union(*(features(row.op, each) for each in outlines))
    longer: List[Sample] = []
    for form in reversed(_lengthened(row)):
        words = _long_words(row, *form)
        if words and not (longer and words <= seen):
            call = stretched(row, *form)
            if call is not None:
                longer.append(call.samples[0])
                seen |= features(row.op, call.samples[0])
    return (*outlines, *reversed(longer))


def _long_words(row: Row, seed: int, last: int, deep: bool) -> Set[str]:
    """What a stretched sample exercises; nothing where it cannot be long."""
    try:
        outline = row.op.draw(_LongOutline(seed, last, 0, deep))
    except Exception:  # an attribute that goes with shorter axes alone
        return set()
    return features(row.op, outline) if outline.inputs[0].shape[-1:] > (LONG_AXIS,) else set()


def _words(row: Row) -> Set[str]:
    words = [features(row.op, sample) for sample in _outlines(row) if sample.inputs and sample.inputs[0].size]
    return set().union(*words)


def _one_element_off(values: Any, place: int = -1) -> Any:
    first, *others = (np.array(value, order="C") for value in as_tuple(values))
    flat = first.reshape(-1)
    if flat.size:
        if first.dtype.kind == "b":
            flat[place] = ~flat[place]
        elif first.dtype.kind == "f":
            flat[place] += np.abs(flat[place]) / 32 + 2.0**-6
        else:
            flat[place] += 1
    return (first, *others) if others else first


def _geometry(row: Row) -> Iterator[WrongOp]:
    op = row.op
    for word in sorted(_words(row)):

        def forward(*inputs: Array, _word: str = word, **attributes: Any) -> Any:
            right = op.forward(*inputs, **attributes)
            return _one_element_off(right) if _word in features(op, Sample(inputs, attributes)) else right

        def gradient(held: Any, *inputs: Array, _word: str = word, **attributes: Any) -> Any:
            assert op.vjp is not None
            right = list(op.vjp(held, *inputs, **attributes))
            if _word in features(op, Sample(inputs, attributes)):
                right = [value if value is None else _one_element_off(value) for value in right]
            return right

        yield WrongOp(row.name, f"the last element is off with {word}", forward)
        if op.vjp is not None:
            yield WrongOp(row.name, f"gradients are off with {word}", gradient=gradient)
    yield WrongOp(row.name, "the first element is off", lambda *x, **a: _one_element_off(op.forward(*x, **a), 0))
    if op.family in REDUCING:
        yield WrongOp(row.name, "the last term is left out", functools.partial(_without_last, op))


def _without_last(op: Op, *inputs: Array, **attributes: Any) -> Any:
    first = np.array(inputs[0], order="C")
    if first.size and first.dtype.kind == "f":
        first.reshape(-1)[-1] = 0.0
    return op.forward(first, *inputs[1:], **attributes)


# Attributes that have no effect


def fixed_attributes(row: Row) -> Iterator[WrongOp]:
    """The op with one attribute that always has one of the first values it was seen with."""
    values: Dict[str, List[Any]] = {}
    for sample in _outlines(row):
        for key, value in sample.attributes.items():
            seen = values.setdefault(key, [])
            if not any(_equal(value, other) for other in seen):
                seen.append(value)
    for key, seen in values.items():
        for number, fixed in enumerate(seen[:3]):

            def forward(*inputs: Array, _key: str = key, _fixed: Any = fixed, **attributes: Any) -> Any:
                try:
                    return row.op.forward(*inputs, **{**attributes, _key: _fixed})
                except Exception:  # the value does not go with these shapes: nothing to be wrong with
                    return row.op.forward(*inputs, **attributes)

            if len(seen) > 1:
                yield WrongOp(row.name, f"{key} is always its value {number} ({fixed!r:.30})", forward)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, (bool, int, float, str)):
        return type(left) is type(right) and bool(left == right)
    return type(left) is type(right) and bool(np.array_equal(np.asarray(left), np.asarray(right)))


# Gradients and precision


def _gradients(row: Row) -> Iterator[WrongOp]:
    op = row.op
    if op.vjp is None:
        return
    for place in range(max(len(sample.inputs) for sample in _outlines(row))):

        def gradient(held: Any, *inputs: Array, _place: int = place, **attributes: Any) -> Any:
            assert op.vjp is not None
            right = list(op.vjp(held, *inputs, **attributes))
            if _place < len(right) and right[_place] is not None:
                right[_place] = np.asarray(right[_place]) * 1.001
            return right

        yield WrongOp(
            row.name, f"the gradient of input {place} is larger by 0.1 %", gradient=gradient, dtypes=("float32",)
        )


def _precision(row: Row) -> Iterator[WrongOp]:
    if not is_floating(row.op):
        return

    def forward(*inputs: Array, **attributes: Any) -> Any:
        values = [_with_bits(np.asarray(value), 11) for value in as_tuple(row.op.forward(*inputs, **attributes))]
        return tuple(values) if len(values) > 1 else values[0]

    yield WrongOp(row.name, "results have eleven bits", forward, dtypes=("float32",))
    if row.name in LONG:
        yield WrongOp(
            row.name, "long sums have eleven bits", functools.partial(_half_sums, row.op), dtypes=("float16",)
        )


def _with_bits(x: Array, bits: int) -> Array:
    if x.dtype.kind != "f":
        return x
    mantissa, exponent = np.frexp(x)
    return np.where(np.isfinite(x), np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent), x)


def _half_sums(op: Op, *inputs: Array, **attributes: Any) -> Any:
    """The error of a running sum in float16 over the terms: about half a unit of the sum for each doubling."""
    values = [np.asarray(value) for value in as_tuple(op.forward(*inputs, **attributes))]
    terms = max(x.size for x in inputs)
    wrong = [value * (1 + 2.0**-11 * terms**0.5) for value in values]
    return tuple(wrong) if len(wrong) > 1 else wrong[0]


# Operands, indices, outputs and attributes that are taken for others


def _changed(row: Row, name: str, change: Callable[..., Tuple[Sequence[Array], Mapping[str, Any]]]) -> WrongOp:
    """The op of other inputs and attributes, where those go together."""

    def forward(*inputs: Array, **attributes: Any) -> Any:
        try:
            others, named = change(inputs, attributes)
            return row.op.forward(*others, **named)
        except Exception:  # they do not go together: nothing to be wrong with
            return row.op.forward(*inputs, **attributes)

    return WrongOp(row.name, name, forward)


def _operands(row: Row) -> Iterator[WrongOp]:
    count = max(len(sample.inputs) for sample in _outlines(row))
    for place in range(count - 1):

        def swap(inputs: Sequence[Array], attributes: Any, _place: int = place) -> Any:
            left, right = inputs[_place : _place + 2]
            if left.shape != right.shape or left.dtype != right.dtype:
                return inputs, attributes
            return (*inputs[:_place], right, left, *inputs[_place + 2 :]), attributes

        yield _changed(row, f"inputs {place} and {place + 1} are swapped", swap)
    if row.op.family in ("elementwise", "compare") and count > 1:
        yield _changed(row, "operands are broadcast from the left", _from_the_left)
    with np.errstate(all="ignore"):
        outputs = [as_tuple(row.op.forward(*each.inputs, **each.attributes)) for each in _outlines(row)[:20]]
    for place in range(1, max(map(len, outputs))):
        yield WrongOp(row.name, f"output {place} is off", functools.partial(_output_off, row.op, place))
    if "bits" in edges(row, "float32") and row.op.family in MOVEMENT:
        for name, change in MOVED_WRONGLY.items():
            yield _changed(row, name, lambda inputs, named, _change=change: (tuple(map(_change, inputs)), named))


MOVED_WRONGLY: Mapping[str, Callable[[Array], Array]] = {
    "the sign of zero is lost": _where(lambda x: x == 0, np.zeros_like),
    "a denormal number is flushed": _where(lambda x: np.abs(x) < 2.0**-14, lambda x: np.copysign(0.0, x)),
    "NaN is zero": _where(np.isnan, np.zeros_like),
    "an infinity is the largest number": _where(np.isinf, lambda x: np.copysign(65504.0, x)),
}


def _from_the_left(inputs: Sequence[Array], attributes: Any) -> Any:
    whole = np.broadcast_shapes(*(x.shape for x in inputs))
    fits = [0 < x.ndim < len(whole) and x.shape == whole[: x.ndim] for x in inputs]
    padded = [x.reshape(x.shape + (1,) * (len(whole) - x.ndim)) if fit else x for x, fit in zip(inputs, fits)]
    return padded, attributes


def _output_off(op: Op, place: int, *inputs: Array, **attributes: Any) -> Any:
    values = list(as_tuple(op.forward(*inputs, **attributes)))
    if place < len(values):
        values[place] = _one_element_off(values[place])
    return tuple(values) if len(values) > 1 else values[0]


def _indices(row: Row) -> Iterator[WrongOp]:
    if not any(x.dtype.kind == "i" for sample in _outlines(row) for x in sample.inputs) or row.op.family == "cast":
        return

    def each(change: Callable[[Array], Array]) -> Callable[..., Any]:
        return lambda inputs, attributes: (
            tuple(change(x) if x.dtype.kind == "i" and x.size else x for x in inputs),
            attributes,
        )

    yield _changed(row, "the largest index is one less", each(lambda x: np.where(x == max(x.max(), 1), x - 1, x)))
    yield _changed(row, "index 0 is 1", each(lambda x: np.where(x == 0, 1, x)))
    yield _changed(row, "a negative index is one more", each(lambda x: np.where(x < 0, x + 1, x)))
    yield _changed(row, "a negative index is its amount", each(np.abs))
    yield _changed(row, "the last index is the first", each(lambda x: np.roll(x.reshape(-1), 1).reshape(x.shape)))
    if row.op.vjp is not None and row.op.family in ("indexing", "embedding"):
        yield WrongOp(row.name, "the last write wins", gradient=functools.partial(_last_wins, row.op))


def _last_wins(op: Op, held: Any, *inputs: Array, **attributes: Any) -> Any:
    """What comes back to an element that was taken several times is not added up."""
    assert op.vjp is not None
    right = list(op.vjp(held, *inputs, **attributes))
    if isinstance(held, tuple) or np.size(held) > LARGEST_HELD:
        return right
    wrong: List[Any] = [None if value is None else np.zeros_like(value) for value in right]
    flat = np.asarray(held).reshape(-1)
    for number, value in enumerate(flat):
        one = np.zeros_like(flat)
        one[number] = value
        for place, part in enumerate(op.vjp(one.reshape(np.shape(held)), *inputs, **attributes)):
            if part is not None:
                wrong[place] = np.where(part != 0, part, wrong[place])
    return wrong


def _attributes(row: Row) -> Iterator[WrongOp]:
    known = {key: value for sample in _outlines(row) for key, value in sample.attributes.items()}
    for key, value in known.items():
        if key in ("axis", "axis1", "axis2"):
            yield _changed(row, f"{key} is one more", _with(key, lambda old, x: (old + 1) % x.ndim))
            yield _changed(
                row, f"{key} counts from the other end", _with(key, lambda old, x: x.ndim - 1 - old % x.ndim)
            )
            yield _changed(row, f"a negative {key} is one off", _with(key, lambda old, x: old - 1 if old < 0 else old))
        elif isinstance(value, float):
            yield _changed(row, f"{key} is twice its value", _with(key, lambda old, x: 2 * old))
        elif isinstance(value, tuple) and len(value) > 1:
            yield _changed(row, f"{key} is turned round", _with(key, lambda old, x: tuple(reversed(old))))


def _with(key: str, change: Callable[[Any, Array], Any]) -> Callable[..., Any]:
    return lambda inputs, attributes: (inputs, {**attributes, key: change(attributes[key], inputs[0])})


INSTEAD: Mapping[str, Mapping[str, Forward]] = {
    "round": {"halves go up": lambda x: np.floor(x + 0.5), "it cuts": np.trunc, "it is floor": np.floor},
    "floor": {"it cuts": np.trunc, "it rounds": np.round, "it is ceil less one": lambda x: np.ceil(x) - 1},
    "ceil": {"it cuts": np.trunc, "it is floor and one": lambda x: np.floor(x) + 1},
    "trunc": {"it is floor": np.floor, "it rounds": np.round},
    "sign": {"zero is positive": lambda x: np.where(x < 0, -1.0, 1.0)},
    "floor_div": {"it cuts": lambda x, y: np.trunc(x / y)},
    "trunc_div": {"it is floor": lambda x, y: np.floor(x / y)},
    "floor_mod": {"it has the sign of the dividend": np.fmod},
    "trunc_mod": {"it has the sign of the divisor": np.mod},
    "gelu": {"it is a sigmoid's": lambda x, **_: x / (1 + np.exp(-1.702 * x))},
    "cast_integer": {
        "it saturates": lambda x, dtype: _saturated(x, dtype),
        "it rounds": lambda x, dtype: _converted(np.round(x), dtype),
        "it is floor": lambda x, dtype: _converted(np.floor(x), dtype),
    },
}
"""Neighbours for which an op is mistaken."""


def _saturated(x: Array, dtype: str) -> Array:
    if dtype == "bool":
        return x.astype(bool)
    limits = np.iinfo(dtype)
    return np.clip(x, limits.min, limits.max).astype(dtype)


def _converted(x: Any, dtype: str) -> Array:
    return np.asarray(x).astype(dtype)


def _named(row: Row) -> Iterator[WrongOp]:
    for name, forward in INSTEAD.get(row.name, {}).items():
        yield WrongOp(row.name, name, forward)
