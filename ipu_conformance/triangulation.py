"""Triangulation: what several frameworks make of one call of an op is compared, and the odd one out is named.

Each framework is compared with the oracle by its own case. Where one of them fails, the others tell whether the device,
its front end or the oracle is to blame.
"""

from __future__ import annotations

from typing import Any, Dict, Generator, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import pytest

MOST_VALUES = 64
"""Values of a result that are compared between frameworks."""
MOST_LINES = 20


class Point(NamedTuple):
    """What a framework made of a call: some of its values, and how far each may be off."""

    key: str
    framework: str
    call: str
    values: List[float]
    allowed: List[float]


POINT = pytest.StashKey[Point]()


def point(key: str, framework: str, call: str, values: Any, allowed: Any) -> Point:
    """The first values of a result, as plain numbers that a worker can send."""
    flat = np.ravel(np.asarray(values, np.float64))[:MOST_VALUES]
    limits = np.ravel(np.broadcast_to(np.asarray(allowed, np.float64), np.shape(values)))[:MOST_VALUES]
    return Point(key, framework, call, flat.tolist(), limits.tolist())


def agree(one: Point, other: Point) -> bool:
    """Whether two results of one call differ by no more than both may be off together."""
    first, second = np.asarray(one.values), np.asarray(other.values)
    if first.shape != second.shape:
        return False
    with np.errstate(invalid="ignore"):
        near = np.abs(first - second) <= np.asarray(one.allowed) + np.asarray(other.allowed)
    return bool(np.all(near | (first == second) | (np.isnan(first) & np.isnan(second))))


def verdict(points: Mapping[str, Point], failed: Sequence[str]) -> Optional[str]:
    """Who is the odd one out, in a sentence; None if nobody is."""
    names = list(points)
    passed = [name for name in names if name not in failed]
    if len(names) < 2 or not failed:
        return None
    if len(failed) == 1:
        return f"{failed[0]} is the odd one out: {_listed(passed)} give{_s(passed)} what the oracle expects"
    united = all(agree(points[failed[0]], points[name]) for name in failed[1:])
    among = "agree with each other" if united else "differ from each other too"
    if not passed:
        return f"the oracle is the odd one out: {_listed(failed)} {among}" if united else f"{_listed(failed)} {among}"
    return f"{_listed(passed)} alone give{_s(passed)} what the oracle expects; {_listed(failed)} {among}"


class Triangulation:
    """Gathers the results of ops from all workers and says at the end who disagrees."""

    def __init__(self) -> None:
        self._points: Dict[str, Dict[str, Point]] = {}
        self._failed: Dict[str, List[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Send what a case found along with its report."""
        report = yield
        if report.when == "call" and POINT in item.stash:
            found: Point = item.stash[POINT]
            report.ipu_point = [*found]
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep what a case found."""
        if report.when == "call" and getattr(report, "ipu_point", None):
            found = Point(*report.ipu_point)
            key = f"{found.key} ({found.call})"
            self._points.setdefault(key, {})[found.framework] = found
            if report.failed:
                self._failed.setdefault(key, []).append(found.framework)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how many ops several frameworks ran, and who is the odd one out."""
        several = {key: points for key, points in self._points.items() if len(points) > 1}
        if not several:
            return
        sentences = {key: verdict(points, self._failed.get(key, ())) for key, points in several.items()}
        lines = [f"{key}: {sentence}." for key, sentence in sentences.items() if sentence]
        agreed = "all agree" if not lines else f"{len(lines)} do not agree"
        terminalreporter.section("triangulation")
        terminalreporter.line(f"op cases that several frameworks ran: {len(several)}, {agreed}")
        for line in lines[:MOST_LINES]:
            terminalreporter.line(line)
        if len(lines) > MOST_LINES:
            terminalreporter.line(f"and {len(lines) - MOST_LINES} more")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)


def _s(names: Sequence[str]) -> str:
    return "s" if len(names) == 1 else ""
