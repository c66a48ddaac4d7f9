"""Checks of order: every output belongs to its own micro-batch, and every micro-batch is used once."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, Hashable, List, Mapping, Optional, Sequence

import numpy as np

from ipu_conformance.check.failure import CheckMisuseError, failure
from ipu_conformance.check.values import ToleranceLike, allowed_for, as_array, close, precise, require

_MOST_NAMED = 4


def outputs_in_order(
    *, actual: Any, expected: Any, tolerance: ToleranceLike, what: str, factors: Optional[Mapping[str, int]] = None
) -> None:
    """The outputs along the first axis are those of the micro-batches 0, 1, 2, … in that order.

    ``factors`` names what the first axis runs through, slowest first: ``{"device iteration": 2, "accumulation": 3}``.
    With it, a permutation that is a transposition of those factors is called so.
    """
    __tracebackhide__ = True
    require(tolerance)
    got, want = as_array(actual, what=what), as_array(expected, what=what)
    if want.ndim == 0 or want.shape[0] < 2:
        raise CheckMisuseError(f"{what} has shape {list(want.shape)}, and an order needs at least 2 micro-batches")
    sizes = {} if factors is None else dict(factors)
    if sizes and int(np.prod(list(sizes.values()))) != want.shape[0]:
        raise CheckMisuseError(f"the factors {sizes} of {what} do not multiply to its {want.shape[0]} micro-batches")
    if got.shape[1:] == want.shape[1:]:
        allowed = allowed_for(tolerance, want.shape, what)
        _require_distinct(want, allowed, what)
        sources = [_source(value, want, allowed) for value in got]
        if sources != list(range(want.shape[0])) and None not in sources:
            raise failure(f"{what} {_describe([s for s in sources if s is not None], want.shape[0], sizes)}.")
    close(actual=got, expected=want, tolerance=tolerance, what=what)


def micro_batches_once(*, seen: Sequence[Hashable], expected: Sequence[Hashable], what: str = "the run") -> None:
    """Every expected micro-batch is used exactly once, and nothing else is; the order does not matter."""
    __tracebackhide__ = True
    if not expected:
        raise CheckMisuseError(f"no micro-batches are expected of {what}, so that the check could not fail")
    times, wanted = Counter(seen), Counter(expected)
    repeated_on_purpose = [key for key, number in wanted.items() if number > 1]
    if repeated_on_purpose:
        raise CheckMisuseError(f"micro-batch {repeated_on_purpose[0]} is expected twice; give distinct micro-batches")
    dropped = [f"{key}" for key in wanted if key not in times]
    repeated = [f"{key} ({number} times)" for key, number in times.items() if number > 1 and key in wanted]
    unknown = [f"{key}" for key in times if key not in wanted]
    faults = [
        f"{verb} micro-batch{'' if len(keys) == 1 else 'es'} {_listed(keys)}"
        for verb, keys in (("drops", dropped), ("repeats", repeated), ("uses the unknown", unknown))
        if keys
    ]
    if faults:
        raise failure(f"{what} {' and '.join(faults)}: each of {len(wanted)} is used once by specification.")


def _require_distinct(want: np.ndarray, allowed: np.ndarray, what: str) -> None:
    exact = precise(want)
    for i in range(len(exact) - 1):
        others = exact[i + 1 :]
        apart = np.abs(others - exact[i]) > allowed[i + 1 :] + allowed[i]
        same = ~apart.reshape(len(others), -1).any(axis=1)
        if same.any():
            j = i + 1 + int(np.argmax(same))
            raise CheckMisuseError(
                f"micro-batches {i} and {j} of {what} are equal within the tolerance, so that their order cannot be "
                "checked; give distinct data"
            )


def _source(value: np.ndarray, want: np.ndarray, allowed: np.ndarray) -> Optional[int]:
    """The micro-batch that ``value`` is the output of, None if it is of none of them."""
    inside = np.abs(precise(want) - precise(value)) <= allowed
    matching = np.flatnonzero(inside.reshape(len(want), -1).all(axis=1))
    return int(matching[0]) if matching.size else None


def _describe(sources: List[int], number: int, sizes: Mapping[str, int]) -> str:
    """What is wrong with outputs that each are some micro-batch's, but not in order."""
    if sorted(sources) != list(range(number)):
        return _describe_lost(sources, number)
    displaced = [place for place, source in enumerate(sources) if place != source]
    named = f"output {displaced[0]} is micro-batch {sources[displaced[0]]}"
    return f"is in the wrong order: {named}, {len(displaced)} of {number} are displaced{_pattern(sources, sizes)}"


def _describe_lost(sources: List[int], number: int) -> str:
    times = Counter(sources)
    dropped = [str(key) for key in range(number) if key not in times]
    repeated = [
        f"{key} is there {times[key]} times (outputs {_listed([str(i) for i, s in enumerate(sources) if s == key])})"
        for key in sorted(times)
        if times[key] > 1
    ]
    parts = [f"micro-batch {repeat}" for repeat in repeated[:_MOST_NAMED]]
    if dropped:
        parts.append(f"micro-batch{'' if len(dropped) == 1 else 'es'} {_listed(dropped)} missing")
    return f"has {len(sources)} outputs for {number} micro-batches: {', '.join(parts)}"


def _pattern(sources: List[int], sizes: Mapping[str, int]) -> str:
    """The rule behind a permutation, in words, where there is a simple one."""
    number = len(sources)
    order = np.arange(number)
    names = list(sizes)
    grid = order.reshape([sizes[name] for name in names] or [number])
    for axes in itertools.permutations(range(grid.ndim)):
        if names and sources == grid.transpose(axes).ravel().tolist():
            was = ", ".join(names[axis] for axis in axes)
            return f"; looks transposed: [{was}] instead of [{', '.join(names)}]"
    if sources == order[::-1].tolist():
        return "; looks reversed"
    shift = sources[0]
    if sources == np.roll(order, -shift).tolist():
        late, early = number - shift, shift
        return f"; looks rotated: {late} late" if late <= early else f"; looks rotated: {early} early"
    return ""


def _listed(keys: Sequence[str]) -> str:
    shown = list(keys[:_MOST_NAMED])
    rest = len(keys) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {rest} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
