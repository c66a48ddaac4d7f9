"""Checks of two arrays: shape, then dtype, then where they are not finite, then the values."""

from __future__ import annotations

from typing import Any, Optional, Protocol, Tuple, runtime_checkable

import numpy as np

from ipu_conformance import notes
from ipu_conformance.check.failure import CheckMisuseError, failure
from ipu_conformance.check.places import Index, Where

_KINDS = {"b": "boolean", "i": "integer", "u": "integer", "f": "floating", "c": "complex", "V": "floating"}


@runtime_checkable
class ToleranceLike(Protocol):
    """A derived tolerance: the difference allowed at each element, and the reason in words."""

    @property
    def allowed(self) -> Any:
        """The largest allowed absolute difference, in a shape that broadcasts to the expected values."""

    def explain(self) -> str:
        """Where the tolerance comes from."""


def require(tolerance: Any) -> ToleranceLike:
    """``tolerance`` itself if it explains itself; a bare number or anything else is refused."""
    if isinstance(tolerance, ToleranceLike):
        return tolerance
    raise TypeError(
        f"tolerance is {tolerance!r}; a check takes a derived tolerance with .allowed and .explain(), "
        "such as ipu_conformance.oracle.tolerance.ops gives, never a bare number"
    )


def shape(*, actual: Any, expected: Tuple[int, ...], what: str) -> None:
    """The array has exactly this shape."""
    __tracebackhide__ = True
    got = as_array(actual, what=what).shape
    if got != tuple(expected):
        raise failure(f"{what} has shape {list(got)} where {list(expected)} is expected.")


def dtype(*, actual: Any, expected: Any, what: str) -> None:
    """The array has exactly this dtype."""
    __tracebackhide__ = True
    got = as_array(actual, what=what).dtype
    if got != np.dtype(expected):
        raise failure(f"{what} has dtype {got} where {np.dtype(expected)} is expected.")


def identical(
    *,
    actual: Any,
    expected: Any,
    what: str,
    because: str = "bit-identical by specification",
    where: Optional[Where] = None,
) -> None:
    """Two arrays have the same shape, the same dtype and the same bits; any NaN equals any NaN.

    ``where(index)`` names a single value in words that mean more than ``what`` and an index.
    """
    __tracebackhide__ = True
    got, want = as_array(actual, what=what), as_array(expected, what=what)
    shape(actual=got, expected=want.shape, what=what)
    dtype(actual=got, expected=want.dtype, what=what)
    different = different_bits(got, want)
    if different.any():
        index = first(different)
        raise failure(
            f"{differing(what, index, where)}: actual {number(got[index])}, expected {number(want[index])}; "
            f"{count(different)}, {largest_difference(got, want)}, allowed 0 ({because})."
        )


def close(
    *,
    actual: Any,
    expected: Any,
    tolerance: ToleranceLike,
    what: str,
    dtype: Optional[Any] = None,
    where: Optional[Where] = None,
) -> None:
    """Every value is within its own tolerance of what is expected.

    ``where(index)`` names a single value in words that mean more than ``what`` and an index. Infinities are in the same
    places with the same sign and NaN in the same places. ``dtype`` is the exact one when it is specified; otherwise the
    kind (floating, integer, boolean) must agree, as the oracle computes in float64.
    """
    __tracebackhide__ = True
    require(tolerance)
    got, want = as_array(actual, what=what), as_array(expected, what=what)
    shape(actual=got, expected=want.shape, what=what)
    _same_kind(got, want, dtype, what)
    if want.dtype.kind in "biu":
        _same_numbers(got, want, what)
        return
    precise_got, precise_want = precise(got), precise(want)
    _same_non_finite(precise_got, precise_want, what, where)
    allowed = allowed_for(tolerance, precise_want.shape, what)
    finite = np.isfinite(precise_want)
    difference = np.zeros(precise_want.shape)
    difference[finite] = np.abs(precise_got[finite] - precise_want[finite])
    outside = difference > allowed
    if notes.wanted():
        _tell_margin(difference, allowed, what)
    if outside.any():
        index = worst(difference, allowed)
        raise failure(
            f"{differing(what, index, where)}: actual {number(got[index])}, expected {number(want[index])}, "
            f"difference {difference[index]:.2g}, allowed {allowed[index]:.2g} ({tolerance.explain()}); "
            f"{count(outside)} outside."
        )
    _close_on_average(difference[finite], tolerance, what)


def between(
    *,
    actual: Any,
    low: Any,
    high: Any,
    tolerance: ToleranceLike,
    what: str,
    nan: Any = False,
    dtype: Optional[Any] = None,
) -> None:
    """Every value lies between two bounds, which may be infinite, or misses them by its tolerance at most.

    ``nan`` is true where NaN is allowed besides; where a bound is NaN, NaN alone is.
    """
    __tracebackhide__ = True
    require(tolerance)
    got, least, most = (
        as_array(actual, what=what),
        precise(as_array(low, what=what)),
        precise(as_array(high, what=what)),
    )
    shape(actual=got, expected=least.shape, what=what)
    _same_kind(got, least, dtype, what)
    values, allowed = precise(got), allowed_for(tolerance, least.shape, what)
    with np.errstate(invalid="ignore"):
        inside = (values >= least - allowed) & (values <= most + allowed)
    undefined = np.isnan(least) | np.isnan(most)
    inside = np.where(np.isnan(values), np.asarray(nan) | undefined, inside & ~undefined)
    if not inside.all():
        index = first(~inside)
        wanted = f"{number(least[index])}" if least[index] == most[index] else f"{least[index]} to {most[index]}"
        raise failure(
            f"{what} is {number(got[index])} at {place(index)} where {wanted} is expected, allowed "
            f"{allowed[index]:.2g} ({tolerance.explain()}); {count(~inside)} outside."
        )


def apart(*, actual: Any, other: Any, tolerance: ToleranceLike, what: str) -> None:
    """Two arrays of one shape differ somewhere by more than rounding explains."""
    __tracebackhide__ = True
    require(tolerance)
    got, rest = precise(as_array(actual, what=what)), precise(as_array(other, what=what))
    shape(actual=got, expected=rest.shape, what=what)
    allowed = allowed_for(tolerance, rest.shape, what)
    if not (np.abs(got - rest) > allowed).any():
        raise failure(
            f"{what} is the same twice where it must differ: {largest_difference(got, rest)}, of which rounding "
            f"explains {float(allowed.max()):.2g} ({tolerance.explain()})."
        )


def as_array(value: Any, *, what: str) -> np.ndarray:
    """``value`` as a NumPy array of numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in _KINDS or (array.dtype.kind == "V" and array.dtype.names is not None):
        raise TypeError(f"{what} is an array of {array.dtype}, and only numbers can be compared")
    return array


def precise(array: np.ndarray) -> np.ndarray:
    """``array`` in the widest type, so that taking a difference rounds nothing."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is a value like any other here
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def allowed_for(tolerance: ToleranceLike, wanted: Tuple[int, ...], what: str) -> np.ndarray:
    """The tolerance spread over the shape ``wanted``; one that cannot decide anything is refused."""
    try:
        allowed = np.broadcast_to(np.asarray(tolerance.allowed, dtype=np.float64), wanted)
    except ValueError:
        shape = list(np.shape(tolerance.allowed))
        raise CheckMisuseError(f"the tolerance of {what} has shape {shape}, not {list(wanted)}") from None
    if np.isnan(allowed).any() or (allowed < 0).any():
        raise CheckMisuseError(f"the tolerance of {what} is NaN or negative somewhere; it must be 0 or more")
    if allowed.size and np.isinf(allowed).all():
        raise CheckMisuseError(f"the tolerance of {what} allows everything, so that the check could not fail")
    return allowed


def different_bits(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """True where two arrays of one dtype hold different bits, taking all NaN for one value."""
    if got.dtype.kind in "biu":
        return np.asarray(got != want)
    got, want = precise(got), precise(want)
    same = (got == want) & (np.signbit(got.real) == np.signbit(want.real))
    same &= np.signbit(got.imag) == np.signbit(want.imag)
    return np.asarray(~(same | (np.isnan(got) & np.isnan(want))))


def largest_difference(got: np.ndarray, want: np.ndarray) -> str:
    """The largest finite difference in words."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(precise(got) - precise(want))
    difference = difference[np.isfinite(difference)]
    if not difference.any():
        return "only in the sign of zero" if np.isfinite(precise(got)).all() else "no finite difference"
    return f"largest difference {difference.max():.2g}"


def first(mask: np.ndarray) -> Index:
    """The index of the first True."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


def worst(difference: np.ndarray, allowed: np.ndarray) -> Index:
    """The index at which the difference is the largest multiple of what is allowed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference > allowed, difference / allowed, -1.0)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))


def place(index: Index) -> str:
    """An index in words."""
    return f"[{', '.join(map(str, index))}]" if index else "its only value"


def differing(what: str, index: Index, where: Optional[Where]) -> str:
    """The value at an index as the subject of a sentence."""
    return f"{what} differs at {place(index)}" if where is None else f"{where(index)} differs"


def number(value: Any) -> str:
    """A value with as many digits as its own type needs."""
    return str(value)


def count(mask: np.ndarray) -> str:
    """How many of how many values."""
    return f"{int(np.count_nonzero(mask))} of {mask.size} value{'' if mask.size == 1 else 's'}"


def _a_kind(array: np.ndarray) -> str:
    kind = _KINDS[array.dtype.kind]
    return f"an {kind}" if kind == "integer" else f"a {kind}"


def _same_kind(got: np.ndarray, want: np.ndarray, exact: Optional[Any], what: str) -> None:
    __tracebackhide__ = True
    if exact is not None:
        dtype(actual=got, expected=exact, what=what)
    elif _KINDS[got.dtype.kind] != _KINDS[want.dtype.kind]:
        raise failure(f"{what} has dtype {got.dtype} where {_a_kind(want)} one is expected.")


def _same_numbers(got: np.ndarray, want: np.ndarray, what: str) -> None:
    __tracebackhide__ = True
    different = np.asarray(got != want)
    if different.any():
        index = first(different)
        raise failure(
            f"{what} differs at {place(index)}: actual {number(got[index])}, expected {number(want[index])}; "
            f"{count(different)}, allowed 0 ({_a_kind(want)} result is exact)."
        )


def _same_non_finite(got: np.ndarray, want: np.ndarray, what: str, where: Optional[Where]) -> None:
    __tracebackhide__ = True
    different = ~np.isfinite(got) | ~np.isfinite(want)
    different &= ~((np.isnan(got) & np.isnan(want)) | (got == want))
    if different.any():
        index = first(different)
        subject = f"{what} is {number(got[index])} at {place(index)}"
        if where is not None:
            subject = f"{where(index)} is {number(got[index])}"
        raise failure(
            f"{subject} where {number(want[index])} is expected; "
            f"{count(different)}, allowed 0 (NaN and infinities must be where the specification has them, "
            "with its sign)."
        )


def _tell_margin(difference: np.ndarray, allowed: np.ndarray, what: str) -> None:
    """Tell the largest share of a tolerance that was used; where nothing is allowed there is no margin."""
    counted = (allowed > 0) & np.isfinite(allowed)
    if counted.any():
        with np.errstate(over="ignore"):
            used = float(np.max(difference[counted] / allowed[counted]))
        notes.tell("margin", {"what": what, "used": used})


def _close_on_average(difference: np.ndarray, tolerance: ToleranceLike, what: str) -> None:
    """Where a tolerance also bounds the root mean square, so does the difference.

    An imprecise device is out by a little everywhere before it is out by a lot anywhere.
    """
    __tracebackhide__ = True
    allowed_rms = getattr(tolerance, "allowed_rms", None)
    if allowed_rms is None or not difference.size:
        return
    rms = float(np.sqrt(np.mean(difference**2)))
    if rms > allowed_rms:
        raise failure(
            f"{what} differs on average: root mean square difference {rms:.2g} over {difference.size} values, "
            f"allowed {allowed_rms:.2g} ({tolerance.explain()})."
        )
