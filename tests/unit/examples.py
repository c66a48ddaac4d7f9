"""How many examples Hypothesis draws for a test of the project.

A test says how many it is worth at most. A run draws a part of them that still finds what is easily found;
``IPU_CONFORMANCE_EXAMPLES=1`` draws all, a larger number as many times more.
"""

from __future__ import annotations

import os
from typing import Mapping

from hypothesis import HealthCheck, settings

VARIABLE = "IPU_CONFORMANCE_EXAMPLES"
SHARE = 0.25
"""The part that is drawn where the variable is not set."""
FEWEST, DEFAULT = 4, 100


def count(most: int, environment: Mapping[str, str] = os.environ) -> int:
    """How many of at most that many examples are drawn: a share, but no fewer than four."""
    share = float(environment.get(VARIABLE) or SHARE)
    return max(min(most, FEWEST), round(most * share))


def at_most(most: int) -> settings:
    """The settings of a test that is worth at most that many examples."""
    return settings(max_examples=count(most), deadline=None)


def load_profile() -> None:
    """No time limits, which a busy machine breaks; the same examples every time where CI is set."""
    settings.register_profile(
        "project",
        max_examples=count(DEFAULT),
        deadline=None,
        derandomize=bool(os.environ.get("CI")),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("project")
