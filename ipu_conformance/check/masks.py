"""Checks of dropout: what it does to values, how often, and that no two masks know of each other.

All tests are exact binomial tests, so their false-alarm rate is a bound and no approximation. A check spends the rate
that it states on all of its comparisons together.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Iterator, NamedTuple, Sequence, Tuple

import numpy as np

from ipu_conformance.check.failure import CheckMisuseError, failure
from ipu_conformance.check.values import ToleranceLike, allowed_for, as_array, first, number, place, precise, require
from ipu_conformance.oracle.convergence.distributions import binomial_at_least, binomial_two_sided

FALSE_ALARM_RATE = 1e-6
"""How often a correct device fails a check of this module, at most."""


class _Comparison(NamedTuple):
    """A count that is binomial on a correct device: ``hits`` of ``trials``, each with ``probability``."""

    sentence: str
    hits: int
    trials: int
    probability: float
    stands_for: int = 1
    """How many comparisons this one is the most extreme of."""


def dropout_values(*, actual: Any, inputs: Any, rate: float, tolerance: ToleranceLike, what: str) -> np.ndarray:
    """Every value is either 0 or the input divided by 1 - rate; the mask (True is kept) is returned.

    The tolerance is that of the scaled input. Inputs that are 0 within it tell nothing and are refused.
    """
    __tracebackhide__ = True
    require(tolerance)
    got, original = precise(as_array(actual, what=what)), precise(as_array(inputs, what=what))
    if got.shape != original.shape:
        raise failure(f"{what} has shape {list(got.shape)} where {list(original.shape)} is expected.")
    scaled = original / (1.0 - _checked_rate(rate))
    allowed = allowed_for(tolerance, scaled.shape, what)
    if (np.abs(scaled) <= allowed).any():
        raise CheckMisuseError(f"an input of {what} is 0 within the tolerance, so that its mask cannot be seen")
    kept = np.abs(got - scaled) <= allowed
    wrong = ~kept & (got != 0)
    if wrong.any():
        index = first(wrong)
        raise failure(
            f"{what} is {number(got[index])} at {place(index)} where dropout of {rate:g} gives 0 or "
            f"{number(scaled[index])} (input / (1 - rate)), allowed {allowed[index]:.2g} ({tolerance.explain()}); "
            f"{int(wrong.sum())} of {wrong.size} values."
        )
    return np.asarray(kept)


def dropout_masks(
    *,
    masks: Any,
    rate: float,
    axes: Sequence[str],
    what: str,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    lags: Sequence[int] = (1, 2, 3, 4, 8, 16),
) -> None:
    """Masks drop at ``rate`` and are independent along every one of ``axes`` and between positions.

    ``masks`` (True is kept) has one leading axis for each name in ``axes``, such as "replica", "step" or "seed"; the
    others are positions. Every pair of masks is compared, each mask with itself shifted by ``lags``, by a row (a
    sample) and by half of itself, the counts of pairs of masks, and each position over all masks.
    """
    __tracebackhide__ = True
    kept = np.asarray(masks).astype(bool)
    _checked_rate(rate)
    if kept.ndim <= len(axes):
        raise CheckMisuseError(f"{what} has {kept.ndim} axes, {len(axes)} of them {', '.join(axes)}; give positions")
    named = [
        (", ".join(f"{axis} {i}" for axis, i in zip(axes, index)), kept[index].ravel())
        for index in np.ndindex(*kept.shape[: len(axes)])
    ]
    if named[0][1].size == 0:
        raise CheckMisuseError(f"{what} has masks of no positions, so that the check could not fail")
    size = named[0][1].size
    shifts = sorted({*lags, *(lag for lag in (kept.shape[-1], size // 2) if 0 < lag <= size // 2)})
    comparisons = [
        *_rates(named, rate),
        *_pairs(named, rate),
        *_spread(named, rate),
        *_shifts(named, rate, shifts),
        *_positions(named, rate),
    ]
    total = sum(comparison.stands_for for comparison in comparisons)
    level = false_alarm_rate / total
    _require_power(named[0][1].size, rate, level, what)
    # One fault shows in several comparisons; the least likely of them is the nearest to its cause.
    counts = [(each.hits, each.trials, each.probability) for each in comparisons]
    chance_of = {count: binomial_two_sided(*count) for count in set(counts)}
    chances = [chance_of[count] for count in counts]
    least = min(range(len(chances)), key=chances.__getitem__)
    if chances[least] < level:
        sentence, hits, trials, probability, _ = comparisons[least]
        raise failure(
            f"{what}{sentence}: {hits} of {trials}, {trials * probability:.4g} expected, a chance of "
            f"{chances[least]:.1e}, allowed {level:.1e} (exact binomial test, false-alarm rate {false_alarm_rate:g} "
            f"over {total} comparisons)."
        )


def _rates(named: Sequence[Tuple[str, np.ndarray]], rate: float) -> Iterator[_Comparison]:
    everything = np.concatenate([mask for _, mask in named])
    yield _Comparison(" drops at a wrong rate in all", int((~everything).sum()), everything.size, rate)
    for name, mask in named:
        yield _Comparison(f" drops at a wrong rate{_of(name)}", int((~mask).sum()), mask.size, rate)


def _pairs(named: Sequence[Tuple[str, np.ndarray]], rate: float) -> Iterator[_Comparison]:
    agreement = _agreement(rate)
    for (one, first_mask), (other, second_mask) in itertools.combinations(named, 2):
        agreeing = int((first_mask == second_mask).sum())
        kind = "is the same" if agreeing == first_mask.size else "is not independent"
        yield _Comparison(f" {kind} on ({one}) and ({other}), by equal positions", agreeing, first_mask.size, agreement)


def _spread(named: Sequence[Tuple[str, np.ndarray]], rate: float) -> Iterator[_Comparison]:
    """How often two masks drop equally many: always, where a device drops a share instead of each by itself."""
    dropped = [int((~mask).sum()) for _, mask in named]
    pairs = list(zip(dropped[::2], dropped[1::2]))
    if pairs:
        equal = sum(first == second for first, second in pairs)
        sentence = " drops equally many values in two masks, by pairs of masks"
        yield _Comparison(sentence, equal, len(pairs), _equally_many(named[0][1].size, rate))


def _equally_many(positions: int, rate: float) -> float:
    """The chance that two independent masks drop equally many of their positions."""
    logs = [
        math.lgamma(positions + 1) - math.lgamma(k + 1) - math.lgamma(positions - k + 1) for k in range(positions + 1)
    ]
    chances = [math.exp(log + k * math.log(rate) + (positions - k) * math.log1p(-rate)) for k, log in enumerate(logs)]
    return math.fsum(chance * chance for chance in chances)


def _shifts(named: Sequence[Tuple[str, np.ndarray]], rate: float, lags: Sequence[int]) -> Iterator[_Comparison]:
    """Disjoint pairs of positions ``lag`` apart: overlapping ones would not be independent trials."""
    for name, mask in named:
        for lag in lags:
            blocks = mask.size // (2 * lag)
            if blocks:
                pairs = mask[: blocks * 2 * lag].reshape(blocks, 2, lag)
                agreeing = int((pairs[:, 0] == pairs[:, 1]).sum())
                sentence = f" is not independent between positions {lag} apart{_of(name)}, by equal pairs"
                yield _Comparison(sentence, agreeing, blocks * lag, _agreement(rate))


def _positions(named: Sequence[Tuple[str, np.ndarray]], rate: float) -> Iterator[_Comparison]:
    """The two extremes of all positions: if any is significant, one of these is."""
    if len(named) > 1:
        dropped = (~np.stack([mask for _, mask in named])).sum(axis=0)
        for position in (int(np.argmin(dropped)), int(np.argmax(dropped))):
            sentence = f" drops at a wrong rate at position {position} over all masks"
            yield _Comparison(sentence, int(dropped[position]), len(named), rate, stands_for=dropped.size)


def _agreement(rate: float) -> float:
    """How often two independent masks have the same at a position."""
    return rate * rate + (1.0 - rate) * (1.0 - rate)


def _of(name: str) -> str:
    return f" on ({name})" if name else ""


def _checked_rate(rate: float) -> float:
    if not 0.0 < rate < 1.0:
        raise CheckMisuseError(f"the dropout rate is {rate}; the check needs one between 0 and 1, both excluded")
    return rate


def _require_power(positions: int, rate: float, level: float, what: str) -> None:
    """Two equal masks must be a failure, else passing says nothing."""
    if binomial_at_least(positions, positions, _agreement(rate)) >= level:
        raise CheckMisuseError(
            f"{what} has masks of {positions} positions, too few to see that two are the same at a level of "
            f"{level:.1e}; give more positions or a higher false_alarm_rate"
        )
