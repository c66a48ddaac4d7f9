"""How far rounding errors grow on their way through a computation, measured by putting large ones in.

Every rounded value is multiplied by 1 ± NUDGE, with random signs. NUDGE is far above float64's own rounding and small
enough that effects stay linear, so the largest deviation over a few runs, divided by NUDGE, is the factor by which a
relative error of each rounding reaches the result.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping

import numpy as np

NUDGE = 2.0**-26
EPS = float(np.finfo(np.float64).eps)
OPERATIONS = 8
"""The elementary operations behind one rounded value of an optimiser: no line of them has more."""

Arrays = Mapping[str, Any]


def tolerance(run: Callable[[Callable[..., Any]], Arrays], operations: int = OPERATIONS, repeats: int = 6) -> float:
    """What two float64 implementations of ``run`` may differ by.

    ``run(rounding)`` gives its results by name. Each of the two rounds ``operations`` times per site by at most half an
    eps; random signs explore the root of the worst case, hence the root of the number of sites.
    """
    exact, sites = run(lambda x, *site: x), 0
    worst = 0.0
    for seed in range(repeats):
        random = np.random.default_rng(seed)
        sites = 0

        def nudged(x: Any, *site: Any, random: np.random.Generator = random) -> Any:
            nonlocal sites
            sites += 1
            return x * (1 + NUDGE * random.choice((-1.0, 1.0), np.shape(x)))

        result = run(nudged)
        worst = max(worst, *(float(np.max(np.abs(result[name] - exact[name]))) for name in exact))
    assert worst > 0, "nothing was rounded"
    return 2 * operations * (EPS / 2) * math.sqrt(sites) * worst / NUDGE
