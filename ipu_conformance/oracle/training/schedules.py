"""The learning-rate schedules: pure functions of the settings and of a count that begins at 0."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Any, Callable, Mapping

from ipu_conformance.run import Rule

Schedule = Callable[[Mapping[str, Any], int], float]


def rate(rule: Rule, count: int) -> float:
    """The learning rate that ``rule`` gives after ``count`` moves."""
    return float(TABLE[rule.name](dict(rule.settings), count))


def _decays(s: Mapping[str, Any], t: int) -> float:
    """How many times ``gamma`` has been applied."""
    return t // s["every"] if s["staircase"] else t / s["every"]


def _polynomial(s: Mapping[str, Any], t: int) -> float:
    total = s["total"]
    if s["cycle"]:
        total *= max(1, math.ceil(t / total))
    left = 1 - min(t, total) / total
    return (s["base"] - s["end"]) * left ** s["power"] + s["end"]


def _cosine(s: Mapping[str, Any], t: int) -> float:
    done = min(t, s["total"]) / s["total"]
    return s["end"] + (s["base"] - s["end"]) * (1 + math.cos(math.pi * done)) / 2


def _warmup(s: Mapping[str, Any], t: int) -> float:
    return s["start"] + (s["base"] - s["start"]) * min(t, s["length"]) / s["length"]


def _piecewise(s: Mapping[str, Any], t: int) -> float:
    find = bisect_left if s["closed"] else bisect_right
    return s["values"][find(s["boundaries"], t)]


def _noam(s: Mapping[str, Any], t: int) -> float:
    if t == 0:
        return 0.0
    return s["base"] * s["model_size"] ** -0.5 * min(t**-0.5, t * s["warmup"] ** -1.5)


TABLE: Mapping[str, Schedule] = {
    "constant": lambda s, t: s["base"],
    "step": lambda s, t: s["base"] * s["gamma"] ** (t // s["size"]),
    "multistep": lambda s, t: s["base"] * s["gamma"] ** bisect_right(s["milestones"], t),
    "exponential": lambda s, t: s["base"] * s["gamma"] ** _decays(s, t),
    "polynomial": _polynomial,
    "cosine": _cosine,
    "warmup": _warmup,
    "piecewise": _piecewise,
    "natural_exp": lambda s, t: s["base"] * math.exp(-s["gamma"] * t),
    "inverse_time": lambda s, t: s["base"] / (1 + s["gamma"] * _decays(s, t)),
    "noam": _noam,
}
"""Every schedule by its name in ``run.SCHEDULES``."""
