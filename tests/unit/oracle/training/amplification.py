"""How far rounding errors grow on their way through a computation, measured by putting large ones in.

Every rounded value is multiplied by 1 ± NUDGE, with random signs. NUDGE is far above float64's own rounding and small
enough that effects stay linear, so the largest deviation over a few runs, divided by NUDGE, is the factor by which a
relative error of each rounding reaches the result.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

import numpy as np

NUDGE = 2.0**-26
EPS = float(np.finfo(np.float64).eps)
OPERATIONS = 4
"""The elementary operations behind one rounded value of an optimizer, on average: hardly a line has more."""

Arrays = Mapping[str, Any]


def tolerance(
    run: Callable[[Callable[..., Any]], Arrays],
    operations: float = OPERATIONS,
    repeats: int = 6,
    exact: Optional[Arrays] = None,
) -> float:
    """What two float64 implementations of ``run`` may differ by.

    ``run(rounding)`` gives its results by name, ``exact`` those without a rounding where they are known. Each of the
    two rounds ``operations`` times per rounded value, by at most half an eps; the nudges stand for the largest such
    error with a random sign, as real ones have.
    """
    exact = exact or run(lambda x, *site: x)
    worst = 0.0
    for seed in range(repeats):
        random = np.random.default_rng(seed)

        def nudged(x: Any, *site: Any, random: np.random.Generator = random) -> Any:
            return x * (1 + NUDGE * (2.0 * random.integers(0, 2, np.shape(x), np.int8) - 1))

        result = run(nudged)
        worst = max(worst, *(float(np.max(np.abs(result[name] - exact[name]))) for name in exact))
    assert worst > 0, "nothing was rounded"
    return 2 * operations * (EPS / 2) * worst / NUDGE
