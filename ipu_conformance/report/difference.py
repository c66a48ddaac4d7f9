"""What changed between two reports: verdicts, outcomes, margins to tolerance and times."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple

from ipu_conformance.report.folder import differing, flat, shown

MARGIN = 0.1
"""A share of a tolerance by which a margin has to change to be named."""
SLOWER, SECONDS = 2.0, 0.5
"""A case is named if it takes so many times as long, and so many seconds longer."""
MOST = 20


class Difference(NamedTuple):
    """What changed, in lines; whether the devices did differently, apart from margins and times."""

    lines: List[str]
    results_differ: bool


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Difference:
    """Compare two report.json."""
    old, new = ({row["case"]: row for row in report["cases"]} for report in (before, after))
    lines: List[str] = []
    if before["verdict"]["word"] != after["verdict"]["word"]:
        lines.append(f"verdict: {before['verdict']['word']} -> {after['verdict']['word']}")
    lines += [
        f"{word}: {shown(first)} -> {shown(second)}"
        for word, (first, second) in differing(flat(before["run"]), flat(after["run"])).items()
    ]
    changed = [
        f"{case}: {old[case]['outcome']} -> {new[case]['outcome']}{_why(new[case])}"
        for case in sorted(set(old) & set(new))
        if old[case]["outcome"] != new[case]["outcome"]
    ]
    changed += [f"{case}: only in the first, {old[case]['outcome']}" for case in sorted(set(old) - set(new))]
    changed += [f"{case}: only in the second, {new[case]['outcome']}" for case in sorted(set(new) - set(old))]
    otherwise = [
        f"{case}: fails otherwise: {new[case]['sentence']}"
        for case in sorted(set(old) & set(new))
        if old[case]["outcome"] == new[case]["outcome"] == "failed" and old[case]["sentence"] != new[case]["sentence"]
    ]
    differ = bool(changed or otherwise) or before["verdict"]["word"] != after["verdict"]["word"]
    if not differ:
        lines.insert(0, f"the same verdict and outcomes: {after['verdict']['word']}, {len(new):,} cases")
    return Difference(lines + changed + otherwise + _margins(old, new) + _times(old, new), differ)


def _margins(old: Dict[str, Any], new: Dict[str, Any]) -> List[str]:
    rows = []
    for case in set(old) & set(new):
        if "margin" in old[case] and "margin" in new[case]:
            used = [row[case]["margin"]["used"] for row in (old, new)]
            if abs(used[1] - used[0]) > MARGIN:
                rows.append(
                    (-abs(used[1] - used[0]), f"{case}: uses {used[1]:.0%} of its tolerance, was {used[0]:.0%}")
                )
    return _first(rows, "margins to tolerance")


def _times(old: Dict[str, Any], new: Dict[str, Any]) -> List[str]:
    rows = []
    for case in set(old) & set(new):
        seconds = [row[case]["seconds"] for row in (old, new)]
        small, large = min(seconds), max(seconds)
        if large > SLOWER * small and large - small > SECONDS:
            rows.append((small - large, f"{case}: {seconds[1]:.2f} s, was {seconds[0]:.2f} s"))
    total = [sum(row["seconds"] for row in table.values()) for table in (old, new)]
    return [*_first(rows, "times"), f"time of all cases: {total[1]:.1f} s, was {total[0]:.1f} s"]


def _first(rows: List[Any], what: str) -> List[str]:
    lines = [line for _, line in sorted(rows)]
    return lines[:MOST] + ([f"and {len(lines) - MOST} more {what}"] if len(lines) > MOST else [])


def _why(row: Mapping[str, Any]) -> str:
    return f" ({row['sentence']})" if row.get("sentence") else ""
