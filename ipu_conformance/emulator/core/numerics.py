"""How the device rounds, accumulates, narrows and traps: NumPy arrays in, NumPy arrays out.

The rules, from the vendor's public documents:

- float16 is IEEE binary16 with subnormals. A finite value beyond the range saturates to ±65504; with ``nanoo`` it
  becomes NaN instead and counts as an invalid operation. Infinities and NaN that are already there stay.
- Rounding is to nearest, ties to even, or stochastic: up with the probability of the distance covered, so that the
  expected rounding error is zero. Exact values never change.
- Matrix products hold their partial sums in float32 or in float16, whatever the type of the operands.
- Host arrays of 64 bits are narrowed to 32 (integers wrap modulo 2^32, as a cast does), bfloat16 is widened to float32.
- Invalid operations, divisions by zero and overflows stop the program where the matching trap is on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union

import numpy as np

from ipu_conformance.emulator import faults
from ipu_conformance.errors import ConformanceError

Array = np.ndarray
Seed = Union[int, np.random.Generator]

FLOAT16_MAX = float(np.finfo(np.float16).max)
PARTIALS = ("float32", "float16")
BLOCK = 16
"""Terms that the matrix unit sums before it rounds its partial sum, in the model of ``dot``."""

_SMALLEST_NORMAL = float(np.finfo(np.float16).tiny)
_EPSILON = float(np.finfo(np.float16).eps)
_CHUNK = 1 << 15
_EXPONENT_BITS = np.int64(0x7FF0000000000000)
_NARROWER: Dict[str, str] = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


class NumericsError(ConformanceError):
    """A value cannot be represented or an operation trapped."""


@dataclass(frozen=True)
class Traps:
    """Which floating-point conditions stop the program, and whether float16 overflow gives NaN, by the vendor's names.

    ``inv`` invalid operation or NaN operand; ``div0`` division of a finite number by zero; ``oflo`` overflow;
    ``nanoo`` NaN on float16 overflow rather than saturation.
    """

    inv: bool = False
    div0: bool = False
    oflo: bool = False
    nanoo: bool = False


NO_TRAPS = Traps()


def to_float16(
    array: Any, *, seed: Optional[Seed] = None, traps: Traps = NO_TRAPS, op: str = "cast to float16"
) -> Array:
    """The array as the device holds it in float16: rounded to nearest even, or stochastically when a seed is given.

    ``seed`` is an integer (the same seed gives the same bits) or a generator to draw from. Values are rounded
    independently of one another.
    """
    exact = np.asarray(array)
    if exact.dtype == np.float16:
        return exact
    rounded = _nearest(exact) if seed is None else _stochastic(exact, np.random.default_rng(seed))
    overflow = np.isinf(rounded)
    if overflow.any():
        # Infinities that were there before do not count as overflow.
        overflow &= np.isfinite(exact)
        rounded = _overflowed(rounded, overflow, exact, traps, op)
    return faults.at("numerics.round", rounded, exact=exact, stochastic=seed is not None)


def _nearest(exact: Array) -> Array:
    """NumPy casts float32 and float64 to float16 in one rounding, to nearest even."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return exact.astype(np.float16)


def _stochastic(exact: Array, generator: np.random.Generator) -> Array:
    """Every element rounded at random to one of its two float16 neighbours, in chunks that fit the cache."""
    flat = exact.reshape(-1)
    rounded = np.empty(flat.shape, np.float16)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, flat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            rounded[part] = _round_at_random(flat[part].astype(np.float64), generator)
    return rounded.reshape(exact.shape)


def _round_at_random(values: Array, generator: np.random.Generator) -> Array:
    """Scale so that float16 neighbours are consecutive integers, go up with the probability of the fraction.

    Scaling by a power of two and the floor are exact in float64, so only the draw (53 bits) is approximate. A value
    past the largest float16 may round to 65536, which the cast turns into the infinity that marks overflow.
    """
    magnitude = np.abs(values)
    power = (magnitude.view(np.int64) & _EXPONENT_BITS).view(np.float64)
    quantum = np.maximum(power, _SMALLEST_NORMAL) * _EPSILON
    scaled = magnitude / quantum
    whole = np.floor(scaled)
    whole += generator.random(magnitude.shape) < scaled - whole
    rounded = np.copysign(whole * quantum, values)
    # Infinities and NaN have no neighbours.
    return np.where(np.isfinite(values), rounded, values).astype(np.float16)


def _overflowed(rounded: Array, overflow: Array, exact: Array, traps: Traps, op: str) -> Array:
    if not overflow.any():
        return rounded
    if traps.oflo or (traps.inv and traps.nanoo):
        index = _first(overflow)
        raise NumericsError(
            f"{op} overflows float16 at index {index}: {exact[index]!s} is beyond ±{FLOAT16_MAX:.0f}; "
            f"scale the values down, or turn the {'oflo' if traps.oflo else 'inv'} trap off"
        )
    limit = np.float16(np.nan) if traps.nanoo else np.copysign(np.float16(FLOAT16_MAX), rounded)
    return np.where(overflow, limit, rounded)


def dot(
    a: Any,
    b: Any,
    *,
    partials: str = "float32",
    block: int = BLOCK,
    seed: Optional[Seed] = None,
    traps: Traps = NO_TRAPS,
    op: str = "MatMul",
) -> Array:
    """The matrix product of two float16 or two float32 arrays with the device's partial sums.

    The model: the inner dimension is cut into blocks; a block's products are summed without rounding, added to the
    partial sum, and the partial sum is rounded to ``partials`` once per block. The last partial sum is rounded to the
    type of the operands. Shapes follow ``numpy.matmul``. A seed makes every rounding to float16 stochastic.
    """
    left, right = np.asarray(a), np.asarray(b)
    if left.dtype != right.dtype or left.dtype.name not in PARTIALS:
        raise NumericsError(
            f"{op} of {left.dtype.name} and {right.dtype.name} is not possible on the device; "
            f"give two arrays of one type out of {', '.join(PARTIALS)}"
        )
    if partials not in PARTIALS:
        raise NumericsError(f"{op} asks for partials of {partials!r}; use one of {', '.join(PARTIALS)}")
    if block < 1:
        raise NumericsError(f"{op} asks for blocks of {block} terms; use a positive number")
    inner = left.shape[-1] if left.ndim else None
    if inner is None or not right.ndim or right.shape[-2 if right.ndim > 1 else 0] != inner:
        raise NumericsError(
            f"{op} of shapes {left.shape} and {right.shape} is not possible; "
            f"the last dimension of the first must be the last but one of the second"
        )
    partials = faults.at("numerics.partials", partials)
    generator = None if seed is None else np.random.default_rng(seed)

    def rounded(values: Array, dtype: str) -> Array:
        if dtype == "float16":
            return to_float16(values, seed=generator, traps=traps, op=op).astype(np.float64)
        with np.errstate(over="ignore"):
            return values.astype(np.float32).astype(np.float64)

    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        total = np.matmul(wide_left[..., :0], _rows(wide_right, slice(0, 0)))  # zeros of the result's shape
        for start in range(0, inner, block):
            part = slice(start, start + block)
            total = rounded(total + np.matmul(wide_left[..., part], _rows(wide_right, part)), partials)
    if left.dtype == np.float16:
        result = to_float16(total, seed=generator, traps=traps, op=op)
    else:
        with np.errstate(over="ignore"):
            result = total.astype(np.float32)
    check(op, result, left, right, traps=traps)
    return result


def _rows(matrix: Array, part: slice) -> Array:
    """A part of the inner dimension of ``matmul``'s second operand."""
    return matrix[part] if matrix.ndim == 1 else matrix[..., part, :]


def total(array: Any, *, axis: Optional[int] = None, partials: str = "float32", **options: Any) -> Array:
    """The sum over one axis, or over all elements, with the partial sums of ``dot`` (its options are accepted)."""
    values = np.asarray(array)
    lined = values.reshape(-1) if axis is None else np.moveaxis(values, axis, -1)
    options.setdefault("op", "ReduceSum")
    return dot(lined, np.ones(lined.shape[-1], lined.dtype), partials=partials, **options)


def narrow(array: Any, *, overflow: str = "wrap", traps: Traps = NO_TRAPS, op: str = "feed") -> Array:
    """The array in the type in which the device receives it: 64-bit types become 32-bit, bfloat16 becomes float32.

    Integers beyond 32 bits wrap, as the vendor's casts do, or are an error with ``overflow="error"``. A float64 beyond
    float32 becomes infinite. Arrays of other types are returned as they are.
    """
    if overflow not in ("wrap", "error"):
        raise NumericsError(f"{op} asks for overflow={overflow!r}; use 'wrap' or 'error'")
    exact = np.asarray(array)
    if exact.dtype.name == "bfloat16":
        return bfloat16_to_float32(exact.view(np.uint16))
    if exact.dtype.name not in _NARROWER:
        return exact
    with np.errstate(over="ignore"):
        narrowed = exact.astype(_NARROWER[exact.dtype.name])
    if exact.dtype.kind in "iu":
        changed = narrowed != exact
        if overflow == "error" and changed.any():
            index = _first(changed)
            raise NumericsError(
                f"{op} holds {exact[index]} at index {index}, which does not fit {narrowed.dtype.name}; "
                f"the device has no 64-bit integers"
            )
    else:
        check(op, narrowed, exact, traps=traps)
    return faults.at("numerics.narrow", narrowed, exact=exact)


def bfloat16_to_float32(bits: Array) -> Array:
    """The float32 values of bfloat16 bit patterns: exact, the missing sixteen bits of the fraction are zero."""
    return (np.asarray(bits, dtype=np.uint32) << np.uint32(16)).view(np.float32)


def check(op: str, result: Array, *inputs: Array, traps: Traps) -> None:
    """Stop at the first element of ``result`` whose computation meets a condition that is trapped.

    An infinite result of finite operands is a division by zero where the op divides by zero there, and otherwise an
    overflow. Where the shapes of operands and result do not correspond (reductions, products), an infinity anywhere
    among the operands explains the infinities of the result.
    """
    if not (traps.inv or traps.div0 or traps.oflo):
        return
    if traps.inv:
        for what, array in (("a result", result), *(("an operand", array) for array in inputs)):
            _trap("inv", op, f"has {what} that is not a number", np.isnan(array) if _is_float(array) else None)
    if not (traps.div0 or traps.oflo) or not _is_float(result):
        return
    fresh = np.isinf(result) & ~_any_infinite(result.shape, inputs)
    by_zero = fresh & _divides_by_zero(op, result.shape, inputs)
    if traps.div0:
        _trap("div0", op, "divides by zero", by_zero)
    if traps.oflo:
        _trap("oflo", op, f"overflows {result.dtype.name}", fresh & ~by_zero)


def _trap(name: str, op: str, what: str, where: Optional[Array]) -> None:
    if where is not None and where.any():
        raise NumericsError(f"{op} {what} at index {_first(where)}; correct the values, or turn the {name} trap off")


def _is_float(array: Array) -> bool:
    return np.asarray(array).dtype.kind in "fc"


def _any_infinite(shape: Tuple[int, ...], inputs: Tuple[Array, ...]) -> Array:
    infinite = [np.isinf(array) for array in inputs if _is_float(array)]
    try:
        return np.logical_or.reduce([np.broadcast_to(mask, shape) for mask in infinite], axis=0, initial=False)
    except ValueError:
        return np.full(shape, any(mask.any() for mask in infinite))


def _divides_by_zero(op: str, shape: Tuple[int, ...], inputs: Tuple[Array, ...]) -> Array:
    """Where the op's divisor is zero; the logarithm of zero counts, as it does in IEEE 754."""
    none = np.zeros(shape, dtype=bool)
    if op == "Div" and len(inputs) == 2:
        return none | (np.asarray(inputs[1]) == 0)
    if op in ("Reciprocal", "Log") and len(inputs) == 1:
        return none | (np.asarray(inputs[0]) == 0)
    if op == "Pow" and len(inputs) == 2:
        return none | ((np.asarray(inputs[0]) == 0) & (np.asarray(inputs[1]) < 0))
    return none


def _first(mask: Array) -> Tuple[int, ...]:
    """The index of the first true element, in row-major order."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))
